// The executor's steps of frequent shapes where their messages name memory that both ranks have
// mapped, each in code of its own, as short_steps.cc has them for messages that bring a payload.
//
// What is not as it is in the steady state (a segment that is not mapped yet, a message in another
// form, a peer that has failed) is unfit: the general way then does the step from its beginning.
#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/copy_bytes.h"
#include "kernels/execution.h"
#include "wire/placed_result.h"

namespace tutti::kernels {
namespace {

using schedule::Place;

bool hasMapped(wire::LinkPort& port, const wire::SharedSegment& segment) {
  return segment.serial != 0 && port.ledger != nullptr && !port.ledger->isWaiting() &&
         port.ledger->isMapped(segment.serial);
}

}  // namespace

Execution::Attempt Execution::tryMappedShape(const BoundStep& step, size_t elements,
                                             uint32_t& looks) {
  if (step.shape == StepShape::kLocal) return copyHere(step, elements);
  if (elements * binding_.program->elementBytes() < binding_.shared->minBytes)
    return Attempt::kUnfit;
  switch (step.shape) {
    case StepShape::kSend: return tryMappedSend(step, elements, looks);
    case StepShape::kReceive: return tryMappedReceive(step, elements, looks);
    case StepShape::kPair: return tryMappedPair(step, elements, looks);
    case StepShape::kPairSend: return tryPlacedPair(step, elements, looks);
    case StepShape::kLocal:
    case StepShape::kSpread:
    case StepShape::kGeneral: break;
  }
  return Attempt::kUnfit;
}

// The message goes first: what the step leaves in this rank's own output, its peer does not wait
// for.
Execution::Attempt Execution::tryMappedSend(const BoundStep& step, size_t elements,
                                            uint32_t& looks) {
  const SharedBuffers& shared = *binding_.shared;
  const BoundOperand& content = step.operands[0];
  const BoundOperand& link = step.operands[1 + step.outputCount];
  wire::LinkPort& port = *link.port;
  const size_t number = numberOf(step);
  const bool isReferable = number < shared.referableSteps.size() && shared.referableSteps[number];
  const wire::SharedSegment& segment =
      content.place == Place::kInput ? shared.input : shared.output;
  if (!isReferable || port.place != nullptr || port.isReceiverHere || !hasMapped(port, segment) ||
      (shared.mapsOutput && !hasMapped(port, shared.output)))
    return Attempt::kUnfit;
  const size_t bytes = elements * binding_.program->elementBytes();
  if (!awaitSlot(link, bytes, looks)) return Attempt::kBlocked;
  const std::byte* from = localAt(content);
  hasForms_ = hasReferred_ = true;
  // A copy of its own it makes while the receiver reads: broadcasts out of place of 32, 128 and 512
  // KiB took 1.1, 1.25 and 1.5 times as long where it wrote for that first.
  const bool copiesHere =
      std::ranges::any_of(BoundProgram::outputs(step),
                          [&](const BoundOperand& output) { return outputAt(output) != from; });
  JointSend half;
  if (!copiesHere)
    half = divide(port, from, static_cast<uint32_t>(bytes), wire::MessageKind::kShared);
  wire::publishShared(port,
                      {.serial = segment.serial,
                       .offset = static_cast<uint64_t>(from - segment.start),
                       .address = reinterpret_cast<uint64_t>(from)},
                      static_cast<uint32_t>(bytes), binding_.signature,
                      flagsOf(step, port, MessageForm::kShared) | half.flags());
  half.write(port);
  for (const BoundOperand& output : BoundProgram::outputs(step))
    copyBytes(outputAt(output), from, bytes);
  return Attempt::kDone;
}

// The memory that the link's next message names; keeps the place that it may offer.
Execution::Attempt Execution::tryMappedMessage(const BoundOperand& link, size_t bytes,
                                               uint32_t& looks, const std::byte*& memory) {
  wire::LinkPort& port = *link.port;
  while (!wire::hasMessage(port)) {
    if (mayLookAgain(looks)) continue;
    blockage_ = {.what = For::kMessage, .peer = link.peer, .port = &port};
    return Attempt::kBlocked;
  }
  const wire::MessageHead& message = port.view.message(port.next);
  const bool isOurs = message.bytes == bytes && message.signature == binding_.signature;
  if (!isOurs || (message.flags & wire::kAnnounces) != 0 || port.mapper == nullptr ||
      message.kind != wire::MessageKind::kShared || wire::hasSenderLeft(port)) [[unlikely]]
    return Attempt::kUnfit;
  wire::SharedReference reference;
  std::memcpy(&reference, message.inlinePayload, sizeof reference);
  memory = port.mapper->find(reference, bytes);
  if (memory == nullptr) [[unlikely]]
    return Attempt::kUnfit;
  if ((message.flags & wire::kAgrees) == 0) flags_ = 0;
  if ((message.flags & wire::kOffersPlace) != 0 && link.back != nullptr) {
    wire::takeOffer(port, *link.back);
    hasPlaces_ = true;
  }
  return Attempt::kDone;
}

// Where what was named was read while its sender had it.
Execution::Attempt Execution::endMapped(wire::LinkPort& port) {
  if (wire::hasSenderLeft(port)) [[unlikely]]
    return Attempt::kUnfit;
  wire::release(port);
  return Attempt::kDone;
}

Execution::Attempt Execution::tryMappedReceive(const BoundStep& step, size_t elements,
                                               uint32_t& looks) {
  const BoundOperand& link = step.operands[0];
  wire::LinkPort& port = *link.port;
  const size_t bytes = elements * binding_.program->elementBytes();
  const std::byte* memory = nullptr;
  if (binding_.isJoint) offerJointly(step, bytes);
  const Attempt got = tryMappedMessage(link, bytes, looks, memory);
  if (got != Attempt::kDone) return got == Attempt::kUnfit ? tryLanded(step, bytes) : got;
  if (isJoint(step)) return tryMappedJointly(step, memory, looks);
  for (const BoundOperand& output : BoundProgram::outputs(step))
    copyBytes(outputAt(output), memory, bytes);
  return endMapped(port);
}

// Of one piece: else those ahead are opened, too.
Execution::Attempt Execution::tryMappedJointly(const BoundStep& step, const std::byte* memory,
                                               uint32_t& looks) {
  if (!binding_.program->runsOnce()) return Attempt::kUnfit;
  const BoundOperand& link = step.operands[0];
  joint_.open(*link.port, memory, outputAt(step.operands[1]), segmentOfOutput());
  for (;;) {
    Result<Progress> progress = joint_.poll();
    if (!progress.ok()) [[unlikely]]
      return Attempt::kUnfit;  // and comes upon it again
    if (*progress == Progress::kDone) return endMapped(*link.port);
    do {
      if (mayLookAgain(looks)) continue;
      blockage_ = {.what = For::kBlocks, .peer = link.peer, .port = link.port};
      return Attempt::kBlocked;
    } while (!joint_.isAnswered());
  }
}

// A result that its sender has put where this rank offered, and that goes nowhere else.
Execution::Attempt Execution::tryLanded(const BoundStep& step, size_t bytes) {
  wire::LinkPort& port = *step.operands[0].port;
  const wire::MessageHead& message = port.view.message(port.next);
  const bool isOurs = message.bytes == bytes && message.signature == binding_.signature;
  if (!isOurs || message.kind != wire::MessageKind::kLanded || port.landing != nullptr ||
      (message.flags & (wire::kAnnounces | wire::kOffersPlace)) != 0 || !isPlaced(step) ||
      step.outputCount != 1)
    return Attempt::kUnfit;
  if ((message.flags & wire::kAgrees) == 0) flags_ = 0;
  wire::release(port);
  return Attempt::kDone;
}

Execution::Attempt Execution::tryMappedPair(const BoundStep& step, size_t elements,
                                            uint32_t& looks) {
  const BoundOperand& link = step.operands[step.message];
  const std::byte* memory = nullptr;
  const size_t bytes = elements * binding_.program->elementBytes();
  const Attempt got = tryMappedMessage(link, bytes, looks, memory);
  if (got != Attempt::kDone) return got;
  const std::byte* own = localAt(step.operands[1 - step.message]);
  const std::byte* first = step.message == 0 ? memory : own;
  const std::byte* second = step.message == 0 ? own : memory;
  foldPair(binding_.program->pair(), outputAt(step.operands[2]), first, second, elements);
  return endMapped(*link.port);
}

// The same into a place that the receiver of the result has offered, too.
Execution::Attempt Execution::tryPlacedPair(const BoundStep& step, size_t elements,
                                            uint32_t& looks) {
  const BoundOperand& link = step.operands[step.message];
  wire::LinkPort& to = *step.operands[3].port;
  const std::byte* memory = nullptr;
  const size_t bytes = elements * binding_.program->elementBytes();
  const Attempt got = tryMappedMessage(link, bytes, looks, memory);
  if (got != Attempt::kDone) return got;
  if (!hasPlaces_ || !wire::hasFreeSlot(to, bytes)) return Attempt::kUnfit;
  std::byte* place = wire::beginWriting(to, bytes);
  if (place == nullptr) return Attempt::kUnfit;
  const std::byte* own = localAt(step.operands[1 - step.message]);
  const std::array<const void*, 2> sources{step.message == 0 ? memory : own,
                                           step.message == 0 ? own : memory};
  const std::array<void*, 2> destinations{outputAt(step.operands[2]), place};
  fold(binding_.program->fold(),
       {.sources = sources, .destinations = destinations, .elementCount = elements});
  wire::endWriting(to);
  if (wire::hasSenderLeft(*link.port)) [[unlikely]]
    return Attempt::kUnfit;
  hasForms_ = true;
  wire::publish(to, static_cast<uint32_t>(bytes), binding_.signature, wire::MessageKind::kLanded,
                flags_ | wire::kIsAnswered);
  wire::release(*link.port);
  return Attempt::kDone;
}

}  // namespace tutti::kernels
