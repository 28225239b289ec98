#include "kernels/execution.h"

#include <algorithm>
#include <cstring>

namespace tutti::kernels {
namespace {

using schedule::Place;

// The port of a link whose message says where the sender has what it sends, and may fail to keep
// it; null: another source.
const wire::LinkPort* namingPort(const BoundOperand& source) {
  if (source.place != Place::kLink) return nullptr;
  const wire::MessageHead& message = source.port->view.message(source.port->next);
  const bool names =
      message.kind == wire::MessageKind::kReference || message.kind == wire::MessageKind::kShared;
  return names && (message.flags & wire::kIsPosted) == 0 ? source.port : nullptr;
}

}  // namespace

void Execution::start() {
  binding_.scratch->reserve(binding_.program->operandLimit());
  rewind();
  refers_ = binding_.program->isDirect() || (binding_.program->mayRefer() && binding_.refers);
  hasReferred_ = refers_;
  bringsPayloads_ = !refers_ && binding_.shared == nullptr && !binding_.streams &&
                    binding_.gpu == nullptr && binding_.crew == nullptr;
  isPlain_ = bringsPayloads_ && !binding_.agrees;
  mayPost_ = binding_.outbox != nullptr && mayPost();
  isHearing_ =
      binding_.outbox != nullptr && !binding_.outbox->isOfHosts() && binding_.program->hearsAll();
  if (isHearing_) [[unlikely]]
    binding_.outbox->begin();
  isMapped_ = binding_.shared != nullptr && !binding_.streams && binding_.crew == nullptr &&
              (binding_.shared->input.serial != 0 || binding_.shared->output.serial != 0);
  flags_ = binding_.agrees ? wire::kAgrees : 0;
  blockage_ = {};
  dropJoint();
}

// Looks while it may. The word that is missing is looked at alone until it is there.
bool Execution::awaitReady(const BoundStep& step, size_t elements, uint32_t& looks) {
  if (binding_.isJoint) offerJointly(step, elements * binding_.program->elementBytes());
  while (!isReady(step, elements)) {
    do {
      if (!mayLookAgain(looks)) return false;
    } while (isStillBlocked());
  }
  return true;
}

// The one look that most polls come to.
bool Execution::isStillBlocked() const {
  switch (blockage_.what) {
    case For::kMessage: return !wire::hasMessage(*blockage_.port);
    case For::kSlot: return !wire::hasFreeSlot(*blockage_.port, blockage_.bytes);
    case For::kDrain: return !wire::isDrained(*blockage_.port);
    case For::kRoom: return !wire::isGivenBack(*blockage_.port, blockage_.number);
    case For::kBlocks: return !joint_.isAnswered();
    case For::kGpu: return false;  // asked when the step is tried
    case For::kEnd: return true;
    case For::kNothing: return false;
  }
  return false;
}

bool Execution::isReady(const BoundStep& step, size_t elements) {
  for (const BoundOperand& source : binding_.program->sources(step)) {
    if (source.place != Place::kLink || wire::hasMessage(*source.port)) continue;
    blockage_ = {.what = For::kMessage, .peer = source.peer, .port = source.port};
    return false;
  }
  const size_t bytes = elements * binding_.program->elementBytes();
  for (const BoundOperand& link : binding_.program->links(step)) {
    if (wire::hasFreeSlot(*link.port, bytes)) continue;
    blockage_ = {.what = For::kSlot, .peer = link.peer, .port = link.port, .bytes = bytes};
    return false;
  }
  return !awaitsRoom(step, bytes);
}

Result<Execution::Attempt> Execution::runStep(const BoundStep& step, size_t elements,
                                              uint32_t& looks) {
  if (joint_.isOpen()) {
    if (const BoundOperand* lost = beginReading(step)) return endWith(*lost);
    return receiveJointly(step, looks);
  }
  StepData data{.elements = elements, .bytes = elements * binding_.program->elementBytes()};
  data.refers = refers_ && data.bytes > wire::kInlineBytes;
  if (binding_.gpu != nullptr) return runOnGpu(step, data);
  TUTTI_TRY(takeSources(step, data));
  if (data.readsPeers) {
    if (const BoundOperand* lost = beginReading(step)) return endWith(*lost);
  }
  placeDestinations(step, data);
  if (isJoint(step)) {
    const StepScratch& scratch = *binding_.scratch;
    joint_.open(*binding_.program->sources(step)[0].port,
                static_cast<const std::byte*>(scratch.sources[0]),
                static_cast<std::byte*>(scratch.destinations[0]), segmentOfOutput(),
                streamedCount(step, data) > 0);
    openAhead(step);
    return receiveJointly(step, looks);
  }
  Status computed = compute(step, data);
  if (data.readsPeers) {
    if (const BoundOperand* lost = findLost(step)) return endWith(*lost);
  }
  TUTTI_TRY(std::move(computed));
  publish(step, data);
  return Attempt::kDone;
}

// A message that goes to one place and no further, so that the sender has nothing else to do.
bool Execution::mayBeJoint(const BoundStep& step) const {
  return binding_.isJoint && step.isCopy && step.outputCount == 1 && step.linkCount == 0 &&
         step.operands[0].place == Place::kLink;
}

bool Execution::isJoint(const BoundStep& step) const {
  if (!mayBeJoint(step)) return false;
  const BoundOperand& source = step.operands[0];
  const wire::MessageHead& message = source.port->view.message(source.port->next);
  if ((message.flags & wire::kIsDivided) != 0) return true;
  // What is mapped the receiver copies alone, unless the sender can map where it goes, too: by the
  // kernel that writes at a third of the speed, and is waited for in each piece. Broadcasts in
  // place of 8, 16, 32 and 64 MB took 191, 550, 2970 and 6200 us with such help, and 150, 402, 1165
  // and 4140 without (AMD EPYC VM, family 26, 2026-11-27).
  return wire::isJoint(source.port->view, message) &&
         (message.kind != wire::MessageKind::kShared || segmentOfOutput().serial != 0);
}

// Where the message of a step is wanted that may be one, unless it is there. Who fails must be able
// to wait for who writes.
void Execution::offerJointly(const BoundStep& step, size_t bytes) {
  if (!mayBeJoint(step)) return;
  wire::LinkPort& port = *step.operands[0].port;
  const wire::SharedSegment segment = segmentOfOutput();
  const size_t least = segment.serial != 0 ? kDividedMinBytes : wire::kJointMinBytes;
  if (bytes < least || bytes > wire::kDividedMostBytes) return;
  if (port.offered == port.next + 1 || port.landing != nullptr || wire::hasMessage(port)) return;
  if (port.view.geometry.slotBytes < sizeof(wire::JointCopy) || !canFenceOthers()) return;
  JointReceive::offer(port, static_cast<uint32_t>(bytes), binding_.signature,
                      outputAt(step.operands[1]), segment);
  hasOffered_ = true;
}

// Of a program that does nothing else the next pieces' messages, as far as they are there. None of
// mapped memory where the sender could not write: isJoint().
void Execution::openAhead(const BoundStep& step) {
  const BoundProgram& program = *binding_.program;
  if (program.steps().size() != 1) return;
  const wire::SharedSegment segment = segmentOfOutput();
  const wire::LinkPort& port = *program.sources(step)[0].port;
  const wire::MessageKind kind = port.view.message(port.next).kind;
  const size_t pieceElements = program.pieceElements();
  const size_t mine = turn_ - step.lag;
  for (uint64_t piece = mine + joint_.ahead() + 1; piece < program.pieceCount(); ++piece) {
    const size_t before = piece * pieceElements;
    if (before >= step.elements) return;
    const size_t bytes = std::min(pieceElements, step.elements - before) * program.elementBytes();
    const uint64_t number = port.next + (piece - mine);
    if (number - port.next > port.view.mask) return;
    const wire::MessageHead& message = port.view.message(number);
    if (message.mark.load(std::memory_order_acquire) != number + 1) return;
    if (message.kind != kind || message.bytes != bytes || message.signature != binding_.signature ||
        !wire::isJoint(port.view, message) || (message.flags & wire::kIsDivided) != 0)
      return;
    joint_.openAhead(static_cast<std::byte*>(binding_.scratch->destinations[0]) +
                         (piece - mine) * pieceElements * program.elementBytes(),
                     segment);
  }
}

wire::SharedSegment Execution::segmentOfOutput() const {
  return binding_.shared == nullptr ? wire::SharedSegment{} : binding_.shared->output;
}

Result<Execution::Attempt> Execution::receiveJointly(const BoundStep& step, uint32_t& looks) {
  const BoundOperand& source = binding_.program->sources(step)[0];
  Result<Progress> progress = joint_.poll(binding_.crew);
  while (progress.ok() && *progress == Progress::kIdle && mayLookAgain(looks)) {
    if (joint_.isAnswered()) progress = joint_.poll(binding_.crew);
  }
  if (progress.ok() && *progress == Progress::kIdle) {
    // A sender that fails waits for who reads, also where this thread is the one that has to let it
    // go on.
    endReading(step);
    blockage_ = {.what = For::kBlocks, .peer = source.peer, .port = source.port};
    return Attempt::kBlocked;
  }
  if (const BoundOperand* lost = findLost(step)) return endWith(*lost);
  if (!progress.ok()) return progress.takeStatus();
  wire::release(*source.port);
  return Attempt::kDone;
}

void Execution::withdraw(const MayWait& mayWait) {
  if (!joint_.isOpen() && joint_.ahead() == 0) return;
  const BoundOperand& writer = binding_.program->sources(binding_.program->steps()[step_])[0];
  joint_.withdraw([&] { return mayWait(writer); });
}

// A block's time at most.
bool Execution::helpReceivers() {
  return std::ranges::any_of(binding_.program->outgoing(), [this](const BoundOperand& link) {
    return helpReceiver(*link.port, binding_.streams, binding_.crew);
  });
}

const BoundOperand* Execution::beginReading(const BoundStep& step) const {
  for (const BoundOperand& source : binding_.program->sources(step)) {
    const wire::LinkPort* port = namingPort(source);
    if (port == nullptr) continue;
    if (port->isSenderHere ? wire::beginReading(*port) : !wire::hasSenderLeft(*port)) continue;
    endReading(step);
    return &source;
  }
  return nullptr;
}

const BoundOperand* Execution::findLost(const BoundStep& step) const {
  for (const BoundOperand& source : binding_.program->sources(step)) {
    const wire::LinkPort* port = namingPort(source);
    if (port == nullptr || !wire::hasSenderLeft(*port)) continue;
    endReading(step);
    return &source;
  }
  return nullptr;
}

void Execution::endReading(const BoundStep& step) const {
  for (const BoundOperand& source : binding_.program->sources(step)) {
    if (source.place == Place::kLink && source.port->isSenderHere) wire::endReading(*source.port);
  }
}

Execution::Attempt Execution::endWith(const BoundOperand& source) {
  blockage_ = {.what = For::kEnd, .peer = source.peer, .port = source.port};
  return Attempt::kBlocked;
}

Status Execution::takeSources(const BoundStep& step, StepData& data) {
  StepScratch& scratch = *binding_.scratch;
  size_t i = 0;
  for (const BoundOperand& source : binding_.program->sources(step)) {
    switch (source.place) {
      case Place::kInput: scratch.sources[i] = inputAt(source); break;
      case Place::kOutput: scratch.sources[i] = outputAt(source); break;
      case Place::kLink: TUTTI_TRY(takeMessage(step, i, data)); break;
    }
    ++i;
  }
  return {};
}

Status Execution::takeMessage(const BoundStep& step, size_t at, StepData& data) {
  const BoundOperand& source = binding_.program->sources(step)[at];
  const wire::LinkPort& port = *source.port;
  const wire::MessageHead& message = port.view.message(port.next);
  if (message.bytes != data.bytes || message.signature != binding_.signature) [[unlikely]]
    return refuseMessage(step, source, data.bytes);
  const auto wanted = data.refers ? wire::MessageKind::kReference : wire::MessageKind::kPayload;
  if (const std::byte* posted = findPosted(port, data.bytes); posted != nullptr) {
    binding_.scratch->sources[at] = posted;
    flags_ = 0;  // it does not agree
    return {};
  }
  const uint32_t place = port.view.gpuSlots != nullptr ? wire::kOnGpu : 0;
  if (message.kind != wanted || (message.flags & ~place) != flags_) [[unlikely]]
    return takeOtherForm(step, at, data);
  if (data.refers) {
    takeReference(port, at, data);
  } else {
    binding_.scratch->sources[at] = wire::receivedPayload(port, data.bytes);
  }
  return {};
}

void Execution::takeReference(const wire::LinkPort& port, size_t at, StepData& data) {
  StepScratch& scratch = *binding_.scratch;
  wire::Reference reference;
  std::memcpy(&reference, port.view.message(port.next).inlinePayload, sizeof reference);
  const auto* memory = reinterpret_cast<const std::byte*>(reference.address);
  scratch.sources[at] = memory;
  data.readsPeers = true;
  if (port.isSenderHere) return;
  // Null the others' first: only steps with such a source look there.
  if (data.remoteCount++ == 0) std::ranges::fill(scratch.remote, nullptr);
  scratch.remote[at] = memory;
}

// Where the result goes; what links get is a reference to one of the rank's own buffers where the
// program allows it.
void Execution::placeDestinations(const BoundStep& step, StepData& data) {
  const bool mayShare = binding_.shared != nullptr && data.bytes >= binding_.shared->minBytes;
  const wire::SharedSegment* segment = mayShare ? sharedContent(step, data) : nullptr;
  const bool hasForms = hasPlaces_ || (mayShare && binding_.shared->mapsOutput);
  if (segment != nullptr || (hasForms && !data.refers && step.linkCount > 0)) {
    placeByForms(step, segment, data);
    return;
  }
  StepScratch& scratch = *binding_.scratch;
  for (const BoundOperand& output : binding_.program->outputs(step))
    scratch.destinations[data.localCount++] = outputAt(output);
  if (data.refers) {
    data.reference = static_cast<const std::byte*>(
        isLocalCopy(step) ? scratch.sources[0] : scratch.destinations[data.localCount - 1]);
    return;
  }
  if (std::byte* room = takeRoom(step, data.bytes)) {
    data.room = room;
    scratch.destinations[data.localCount++] = room;
    return;
  }
  for (const BoundOperand& link : binding_.program->links(step))
    scratch.destinations[data.localCount++] = wire::payloadToFill(*link.port, data.bytes);
}

// Logged by the caller, who may know what the other rank called.
Status Execution::refuseMessage(const BoundStep& step, const BoundOperand& source,
                                size_t bytes) const {
  const wire::MessageHead& header = source.port->view.message(source.port->next);
  return Status(
      Code::kInvalidUsage,
      fmt::format(
          "the message from rank {} belongs to another call: it carries {} bytes with signature "
          "{:08x}, this rank's call wants {} bytes with {:08x} (step {}); all ranks must make the "
          "same calls in the same order with the same count, type, operation and root",
          source.peer, header.bytes, header.signature, bytes, binding_.signature, numberOf(step)));
}

// The sender's part of the next message, which its receiver may have offered a place. Where several
// wait for messages none waits until another's part is written.
JointSend Execution::divide(wire::LinkPort& port, const std::byte* from, uint32_t bytes,
                            wire::MessageKind kind) const {
  if (!binding_.isJoint || binding_.program->outgoing().size() != 1) return {};
  return {port, from, bytes, binding_.signature, kind};
}

// Hands filled slots to their receivers, who wait for them, then drained ones back to their
// senders, who rarely do.
void Execution::publish(const BoundStep& step, const StepData& data) {
  const auto bytes = static_cast<uint32_t>(data.bytes);
  if (data.hasForms) {
    publishByForms(step, data);
  } else if (data.room != nullptr) {
    publishPosted(step, data.room, data.bytes);
  } else {
    for (const BoundOperand& link : binding_.program->links(step)) {
      const bool isOnGpu = link.port->view.gpuSlots != nullptr && link.port->view.isLong(bytes);
      if (data.refers) {
        JointSend half = divide(*link.port, data.reference, bytes, wire::MessageKind::kReference);
        wire::publishReference(*link.port, data.reference, bytes, binding_.signature,
                               flags_ | half.flags());
        half.write(*link.port, binding_.streams, binding_.crew);
      } else {
        wire::publish(*link.port, bytes, binding_.signature, wire::MessageKind::kPayload,
                      (isOnGpu ? flags_ | wire::kOnGpu : flags_) |
                          announcementBeside(step, *link.port, data.bytes));
      }
    }
  }
  for (const BoundOperand& source : binding_.program->sources(step)) {
    if (source.place == Place::kLink) wire::release(*source.port);
  }
}

// References are read from the user's buffers, which are the caller's again when the run is done.
bool Execution::isDrained() {
  for (const BoundOperand& link : binding_.program->outgoing()) {
    if (wire::isDrained(*link.port)) continue;
    blockage_ = {.what = For::kDrain, .peer = link.peer, .port = link.port};
    return false;
  }
  return true;
}

void Execution::addWaits(device::WaitSet& waits) const {
  if (blockage_.what == For::kGpu) waits.overflowed = true;  // which wakes nobody
  if (blockage_.port == nullptr || blockage_.what == For::kEnd) return;
  const wire::LinkPort& port = *blockage_.port;
  wire::LinkControl& control = *port.view.control;
  if (blockage_.what == For::kBlocks) {
    const FutexPoint point = joint_.wait();
    waits.add({.word = point.word, .seen = point.seen, .sleeper = &control.receiverSleeps});
    return;
  }
  if (blockage_.what != For::kMessage) {
    const bool isLong = blockage_.isLong() && port.next - port.known <= port.view.mask;
    waits.add({.word = isLong ? &control.longHead : &control.head,
               .seen = isLong ? port.longKnown : port.known,
               .sleeper = &control.senderSleeps});
    return;
  }
  std::atomic<uint64_t>& mark = port.view.message(port.next).mark;
  const uint64_t seen = mark.load(std::memory_order_acquire);
  // Arrived since the poll: any other value than the present one keeps the driver from sleeping.
  const uint64_t waited = seen == port.next + 1 ? seen - 1 : seen;
  waits.add({.word = &mark, .seen = waited, .sleeper = &control.receiverSleeps});
}

Execution::Awaited Execution::awaited() const {
  const auto steps = binding_.program->steps();
  const size_t lag = step_ < steps.size() ? steps[step_].lag : 0;
  return {.peer = blockage_.peer,
          .isSender = blockage_.isSender(),
          .step = step_,
          .piece = turn_ - lag};
}

bool Execution::awaitsOthersOnly(std::span<const uint8_t> near) const {
  if (near.empty() || blockage_.what != For::kMessage) return false;
  const BoundStep& step = binding_.program->steps()[step_];
  return std::ranges::none_of(BoundProgram::sources(step), [&](const BoundOperand& source) {
    if (source.place != Place::kLink || wire::hasMessage(*source.port)) return false;
    const auto peer = static_cast<size_t>(source.peer);
    return peer >= near.size() || near[peer] != 0;
  });
}

wire::LinkFault Execution::awaitedFault() const {
  if (blockage_.port == nullptr) return wire::LinkFault::kNone;
  const wire::LinkPort& port = *blockage_.port;
  const wire::LinkControl& control = *port.view.control;
  const bool isSender = blockage_.isSender();
  const auto& word = isSender ? control.receiverFault : control.senderFault;
  const auto fault = static_cast<wire::LinkFault>(word.load(std::memory_order_acquire));
  if (fault == wire::LinkFault::kNone) return fault;
  // The peer may have moved the link after our last poll, and then left. What it did before it
  // left is visible now.
  const bool hasMoved = isSender
                            ? control.head.load(std::memory_order_acquire) != port.known ||
                                  control.longHead.load(std::memory_order_acquire) != port.longKnown
                            : !isStillBlocked();
  return hasMoved ? wire::LinkFault::kNone : fault;
}

}  // namespace tutti::kernels
