// The executor's messages that name memory instead of bringing it: which form each takes, and where
// the receiver finds it.
#include <algorithm>
#include <cstring>

#include "kernels/execution.h"
#include "wire/placed_result.h"

namespace tutti::kernels {
namespace {

using schedule::Place;

bool bringsPayload(MessageForm form) {
  return form == MessageForm::kPayload || form == MessageForm::kPayloadAnnouncing;
}

bool announces(MessageForm form) {
  return form == MessageForm::kPayloadAnnouncing || form == MessageForm::kReferenceAnnouncing;
}

}  // namespace

// By what the receiver of this link can do now, or its carrier. Asks the receiver to map the
// segments where they are new.
MessageForm Execution::chooseForm(wire::LinkPort& port, const wire::SharedSegment* segment,
                                  const StepData& data) {
  if (binding_.shared != nullptr && binding_.shared->mapsOutput && !port.isReceiverHere) {
    const wire::SharedSegment& output = binding_.shared->output;
    if (!wire::isMappedByReceiver(port, output)) {
      isOutputUnmapped_ = true;
      if (wire::tryAnnounce(port, output, data.bytes))
        return data.refers ? MessageForm::kReferenceAnnouncing : MessageForm::kPayloadAnnouncing;
    }
  }
  if (segment == nullptr) return MessageForm::kPayload;
  if (port.carrierReach == wire::CarrierReach::kAnything) return MessageForm::kReference;
  if (segment->serial == 0) return MessageForm::kPayload;
  if (port.carrierReach == wire::CarrierReach::kSegments) return MessageForm::kReference;
  if (port.isReceiverHere) return MessageForm::kReference;
  if (wire::isMappedByReceiver(port, *segment)) return MessageForm::kShared;
  isUnmapped_ = true;
  const bool announces = wire::tryAnnounce(port, *segment, data.bytes);
  if (data.refers) return announces ? MessageForm::kReferenceAnnouncing : MessageForm::kReference;
  return announces ? MessageForm::kPayloadAnnouncing : MessageForm::kPayload;
}

// The segment that holds what the step's messages say, which `data.reference` then names; null when
// they must bring copies.
const wire::SharedSegment* Execution::sharedContent(const BoundStep& step, StepData& data) const {
  const SharedBuffers& shared = *binding_.shared;
  const size_t number = numberOf(step);
  if (number >= shared.referableSteps.size() || shared.referableSteps[number] == 0) return nullptr;
  if (step.linkCount == 0) return nullptr;
  const BoundOperand* content = nullptr;
  if (isLocalCopy(step)) {
    content = binding_.program->sources(step).data();
  } else if (step.outputCount > 0) {
    content = &binding_.program->outputs(step).back();
  }
  if (content == nullptr) return nullptr;
  const bool isInput = content->place == Place::kInput;
  const wire::SharedSegment& segment = isInput ? shared.input : shared.output;
  const bool isCarried =
      std::ranges::any_of(BoundProgram::links(step), [](const BoundOperand& link) {
        return link.port->carrierReach == wire::CarrierReach::kAnything;
      });
  if (segment.serial == 0 && !isCarried) return nullptr;
  data.reference = isInput ? inputAt(*content) : outputAt(*content);
  return &segment;
}

// Without a segment: what was offered a place goes there, the rest is copied.
void Execution::placeByForms(const BoundStep& step, const wire::SharedSegment* segment,
                             StepData& data) {
  StepScratch& scratch = *binding_.scratch;
  data.shared = segment;
  data.hasForms = hasForms_ = true;
  for (const BoundOperand& output : binding_.program->outputs(step))
    scratch.destinations[data.localCount++] = outputAt(output);
  // A partial sum, which lies in no buffer, could only have been copied.
  const SharedBuffers* shared = binding_.shared;
  const bool couldRefer = shared == nullptr || (numberOf(step) < shared->referableSteps.size() &&
                                                shared->referableSteps[numberOf(step)] != 0);
  size_t at = 0;
  for (const BoundOperand& link : binding_.program->links(step)) {
    wire::LinkPort& port = *link.port;
    MessageForm& form = scratch.forms[at++];
    if (hasPlaces_) {
      if (std::byte* place = wire::beginWriting(port, data.bytes)) {
        form = MessageForm::kPlaced;
        scratch.destinations[data.localCount++] = place;
        continue;
      }
    }
    form = chooseForm(port, segment, data);
    hasReferred_ = hasReferred_ || !bringsPayload(form);
  }
  if (postCopies(step, data))
    scratch.destinations[data.localCount++] = const_cast<std::byte*>(data.room);
  at = 0;
  for (const BoundOperand& link : binding_.program->links(step)) {
    if (!bringsPayload(scratch.forms[at++])) continue;
    hasCopied_ = hasCopied_ || couldRefer;
    scratch.destinations[data.localCount++] = wire::payloadToFill(*link.port, data.bytes);
  }
}

// Beside the message: where the result is wanted that a later step waits for.
uint32_t Execution::offerPlace(const BoundStep& step, wire::LinkPort& port, MessageForm form) {
  const bool hasRoom = form == MessageForm::kPayload || form == MessageForm::kShared;
  const schedule::Placements* placements = binding_.shared->placements;
  if (!hasRoom || placements == nullptr) return 0;
  const int32_t wanted = placements->offers[numberOf(step)];
  if (wanted == schedule::Placements::kNone) return 0;
  const BoundStep& receives = binding_.program->steps()[static_cast<size_t>(wanted)];
  const std::byte* place = outputAt(BoundProgram::outputs(receives).front());
  if (!wire::tryOfferPlace(port, binding_.shared->output, place)) return 0;
  hasOffered_ = true;
  return wire::kOffersPlace;
}

uint32_t Execution::flagsOf(const BoundStep& step, wire::LinkPort& port, MessageForm form) {
  uint32_t flags = flags_;
  if (announces(form)) flags |= wire::kAnnounces;
  if (form == MessageForm::kPlaced) return flags | wire::kIsAnswered;
  if (binding_.shared == nullptr) return flags;
  const std::span<const uint8_t> answered = binding_.shared->answeredSteps;
  const size_t number = numberOf(step);
  if (form == MessageForm::kShared && number < answered.size() && answered[number] != 0)
    flags |= wire::kIsAnswered;
  return flags | offerPlace(step, port, form);
}

void Execution::publishByForms(const BoundStep& step, const StepData& data) {
  const auto bytes = static_cast<uint32_t>(data.bytes);
  const uint32_t signature = binding_.signature;
  size_t at = 0;
  for (const BoundOperand& link : binding_.program->links(step)) {
    wire::LinkPort& port = *link.port;
    const MessageForm form = binding_.scratch->forms[at++];
    const uint32_t flags = data.bytes > wire::kInlineBytes ? flagsOf(step, port, form) : flags_;
    switch (form) {
      case MessageForm::kPayload:
      case MessageForm::kPayloadAnnouncing:
        wire::publish(port, bytes, signature, wire::MessageKind::kPayload,
                      flags | announcementBeside(step, port, data.bytes));
        break;
      case MessageForm::kPosted: publishRoom(port, data.room, data.bytes); break;
      case MessageForm::kReference:
      case MessageForm::kReferenceAnnouncing: {
        JointSend half = divide(port, data.reference, bytes, wire::MessageKind::kReference);
        wire::publishReference(port, data.reference, bytes, signature, flags | half.flags());
        half.write(port, binding_.streams, binding_.crew);
        break;
      }
      case MessageForm::kShared: {
        JointSend half = divide(port, data.reference, bytes, wire::MessageKind::kShared);
        wire::publishShared(port,
                            {.serial = data.shared->serial,
                             .offset = static_cast<uint64_t>(data.reference - data.shared->start),
                             .address = reinterpret_cast<uint64_t>(data.reference)},
                            bytes, signature, flags | half.flags());
        half.write(port, binding_.streams, binding_.crew);
        break;
      }
      case MessageForm::kPlaced:
        wire::endWriting(port);
        wire::publish(port, bytes, signature, wire::MessageKind::kLanded, flags);
        break;
    }
  }
}

// A message of this call in another form than this rank's own have: the sender announces a segment
// beside it, names memory that this rank has mapped or may read, or brings a copy.
Status Execution::takeOtherForm(const BoundStep& step, size_t at, StepData& data) {
  const BoundOperand& source = binding_.program->sources(step)[at];
  wire::LinkPort& port = *source.port;
  const wire::MessageHead& message = port.view.message(port.next);
  const bool fits = data.bytes > wire::kInlineBytes;
  if ((message.flags & wire::kOnGpu) != 0 && port.view.gpuSlots == nullptr)
    return refuseMessage(step, source, data.bytes);
  if ((message.flags & wire::kAnnounces) != 0 && fits) wire::answerAnnouncement(port);
  if ((message.flags & wire::kAgrees) == 0) flags_ = 0;
  if ((message.flags & wire::kOffersPlace) != 0 && fits && source.back != nullptr) {
    wire::takeOffer(port, *source.back);
    hasPlaces_ = true;
  }
  switch (message.kind) {
    case wire::MessageKind::kPayload:
      if (data.bytes > port.view.geometry.slotBytes) break;
      binding_.scratch->sources[at] = wire::receivedPayload(port, data.bytes);
      return {};
    case wire::MessageKind::kReference:
      if (!fits || (!data.refers && !port.isSenderHere && !binding_.program->mayRefer())) break;
      takeReference(port, at, data);
      return {};
    case wire::MessageKind::kShared:
      if (!fits) break;
      return takeShared(source, at, data);
    case wire::MessageKind::kLanded:
      if (port.landing != nullptr) {
        binding_.scratch->sources[at] = port.landing->memory;
        return {};
      }
      if (!isPlaced(step)) break;
      binding_.scratch->sources[at] = outputAt(BoundProgram::outputs(step).front());
      return {};
  }
  return refuseMessage(step, source, data.bytes);
}

// Whether this rank may have offered a place for the step's message.
bool Execution::isPlaced(const BoundStep& step) const {
  const SharedBuffers* shared = binding_.shared;
  if (shared == nullptr || shared->placements == nullptr) return false;
  return shared->placements->placed[numberOf(step)] != 0;
}

// The message that a step waits for, and that goes to an output as it is, may be put there at once.
void Execution::offerLanding(const BoundStep& step, size_t bytes) {
  if (blockage_.what != For::kMessage || blockage_.port->landing == nullptr) return;
  if (blockage_.port->carrierReach == wire::CarrierReach::kSegments &&
      segmentOfOutput().serial == 0)
    return;
  if (!step.isCopy || step.outputCount == 0 || bytes < wire::kLandingMinBytes) return;
  wire::offerLanding(*blockage_.port, outputAt(BoundProgram::outputs(step).front()), bytes,
                     binding_.signature);
}

Status Execution::takeShared(const BoundOperand& source, size_t at, StepData& data) {
  const wire::LinkPort& port = *source.port;
  wire::SharedReference reference;
  std::memcpy(&reference, port.view.message(port.next).inlinePayload, sizeof reference);
  const std::byte* found =
      port.mapper == nullptr ? nullptr : port.mapper->find(reference, data.bytes);
  binding_.scratch->sources[at] = found;
  data.readsPeers = true;
  if (found != nullptr) return {};
  return remoteError(
      "rank {} names {} bytes at {} of its segment {}, which this rank has not mapped or which "
      "ends before: the link's memory was overwritten; NCCL_P2P_DISABLE=1 on rank {} does without",
      source.peer, data.bytes, reference.offset, reference.serial, source.peer);
}

}  // namespace tutti::kernels
