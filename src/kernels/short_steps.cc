// The executor's loop over its steps, with those of frequent shapes each in code of its own.
//
// They take a third of the general way's instructions, and after a wait of any length a processor
// predicts rightly only branches that always go one way.
#include <algorithm>

#include "base/cache_lines.h"
#include "kernels/copy_bytes.h"
#include "kernels/execution.h"

namespace tutti::kernels {
namespace {

// After this many steps poll() returns, so that other executions of the same thread get their turn.
constexpr int kStepsAPoll = 32;

// Of a message that a sender ahead has left: broadcasts of 256 B, 1 and 2 KiB take 0.8, 0.6 and 0.8
// of the time that they take without (Intel Xeon VM, family 6, model 167, 2026-11-29); 4 KiB the
// same, however much is fetched.
constexpr size_t kMostFetched = 2048;

// Of a message that is not there yet, whose payload is asked for together with its head, rather
// than once that has come: all-reduces of 64 B and all-gathers and reduce-scatters of 128 B take
// 0.85 to 0.92 of the time, messages of two lines 0.96 to 0.99, of four 1.08 (Intel Xeon VM, family
// 6, model 167, 2026-11-29).
constexpr size_t kMostAwaited = 128;

}  // namespace

Execution::Attempt Execution::tryShape(const BoundStep& step, size_t elements, uint32_t& looks) {
  switch (step.shape) {
    case StepShape::kSend: return trySend(step, elements, looks);
    case StepShape::kSpread: return trySpread(step, elements, looks);
    case StepShape::kReceive: return tryReceive(step, elements, looks);
    case StepShape::kLocal: return copyHere(step, elements);
    case StepShape::kPair: return tryPair(step, elements, looks);
    case StepShape::kPairSend:
    case StepShape::kGeneral: break;
  }
  return Attempt::kUnfit;
}

Execution::Attempt Execution::copyHere(const BoundStep& step, size_t elements) {
  const size_t bytes = elements * binding_.program->elementBytes();
  for (const BoundOperand& output : BoundProgram::outputs(step))
    copyBytes(outputAt(output), localAt(step.operands[0]), bytes);
  return Attempt::kDone;
}

bool Execution::awaitSlot(const BoundOperand& link, size_t bytes, uint32_t& looks) {
  while (!wire::hasFreeSlot(*link.port, bytes)) {
    if (mayLookAgain(looks)) continue;
    blockage_ = {.what = For::kSlot, .peer = link.peer, .port = link.port, .bytes = bytes};
    return false;
  }
  return true;
}

// Payload and mark together, since a receiver that looks between them takes the line away.
void Execution::sendCopy(wire::LinkPort& port, const std::byte* from, size_t bytes,
                         uint32_t flags) {
  copyBytes(wire::payloadToFill(port, bytes), from, bytes);
  wire::publish(port, static_cast<uint32_t>(bytes), binding_.signature, wire::MessageKind::kPayload,
                flags);
}

Execution::Attempt Execution::trySend(const BoundStep& step, size_t elements, uint32_t& looks) {
  const BoundOperand& link = step.operands[1 + step.outputCount];
  const size_t bytes = elements * binding_.program->elementBytes();
  if (!awaitSlot(link, bytes, looks)) return Attempt::kBlocked;
  const std::byte* from = localAt(step.operands[0]);
  sendCopy(*link.port, from, bytes);
  // What stays here comes after: nobody waits for it.
  for (const BoundOperand& output : BoundProgram::outputs(step))
    copyBytes(outputAt(output), from, bytes);
  return Attempt::kDone;
}

// On all links or on none: a step that is tried again begins anew. Of longer messages the general
// way reads the source once.
Execution::Attempt Execution::trySpread(const BoundStep& step, size_t elements, uint32_t& looks) {
  const size_t bytes = elements * binding_.program->elementBytes();
  if (bytes > wire::kShortBytes) return Attempt::kUnfit;
  const std::span<const BoundOperand> links = BoundProgram::links(step);
  for (const BoundOperand& link : links) {
    if (!awaitSlot(link, bytes, looks)) return Attempt::kBlocked;
  }
  if (awaitsRoom(step, bytes)) return Attempt::kBlocked;
  const std::byte* from = localAt(step.operands[0]);
  if (std::byte* room = takeRoom(step, bytes)) {
    copyBytes(room, from, bytes);
    publishPosted(step, room, bytes);
  } else {
    for (const BoundOperand& link : links)
      sendCopy(*link.port, from, bytes, mayPost_ ? announceOutbox(*link.port, bytes) : 0);
  }
  for (const BoundOperand& output : BoundProgram::outputs(step))
    copyBytes(outputAt(output), from, bytes);
  return Attempt::kDone;
}

// A message of the link that brings its payload; blocked without one, unfit when it is another.
Execution::Attempt Execution::tryMessage(const BoundOperand& link, size_t bytes, uint32_t& looks,
                                         const std::byte*& payload) {
  wire::LinkPort& port = *link.port;
  while (!wire::hasMessage(port)) {
    if (bytes > wire::kInlineBytes && bytes <= kMostAwaited)
      fetchToRead(port.view.slot(port.next), bytes);
    if (mayLookAgain(looks)) continue;
    blockage_ = {.what = For::kMessage, .peer = link.peer, .port = &port};
    return Attempt::kBlocked;
  }
  const wire::MessageHead& message = port.view.message(port.next);
  if (!wire::isPlain(message, bytes, binding_.signature)) [[unlikely]] {
    payload = findPosted(port, bytes);
    return payload != nullptr ? Attempt::kDone : Attempt::kUnfit;
  }
  payload = wire::receivedPayload(port, bytes);
  return Attempt::kDone;
}

// The sender is ahead: its next message, likely as long as this one, is on its way while this call
// ends and the next begins. A sender that waits for this rank's messages has at most begun its next
// one, and would have to fetch the payload's lines back: all-gathers of 2 KiB took 1.3 of the time.
void Execution::fetchNextMessage(const BoundOperand& link, size_t bytes) {
  const wire::LinkPort& port = *link.port;
  __builtin_prefetch(&port.view.message(port.next));
  if (link.back == nullptr && bytes > wire::kInlineBytes && !port.view.isLong(bytes))
    fetchToRead(port.view.slot(port.next), std::min(bytes, kMostFetched));
}

Execution::Attempt Execution::tryReceive(const BoundStep& step, size_t elements, uint32_t& looks) {
  const BoundOperand& link = step.operands[0];
  wire::LinkPort& port = *link.port;
  const bool isBehind = wire::hasMessage(port);
  const size_t bytes = elements * binding_.program->elementBytes();
  const std::byte* payload = nullptr;
  const Attempt got = tryMessage(link, bytes, looks, payload);
  if (got != Attempt::kDone) return got;
  for (const BoundOperand& output : BoundProgram::outputs(step))
    copyBytes(outputAt(output), payload, bytes);
  wire::release(port);
  if (isBehind) fetchNextMessage(link, bytes);
  return Attempt::kDone;
}

Execution::Attempt Execution::tryPair(const BoundStep& step, size_t elements, uint32_t& looks) {
  const BoundOperand& link = step.operands[step.message];
  const std::byte* payload = nullptr;
  const Attempt got = tryMessage(link, elements * binding_.program->elementBytes(), looks, payload);
  if (got != Attempt::kDone) return got;
  const std::byte* own = localAt(step.operands[1 - step.message]);
  const std::byte* first = step.message == 0 ? payload : own;
  const std::byte* second = step.message == 0 ? own : payload;
  foldPair(binding_.program->pair(), outputAt(step.operands[2]), first, second, elements);
  wire::release(*link.port);
  return Attempt::kDone;
}

// Where a step waits for long, or needs the general way, poll() goes on from there.
bool Execution::runOnce(uint32_t looks) {
  const std::span<const BoundStep> steps = binding_.program->steps();
  pieceOffset_ = 0;
  for (; step_ < steps.size(); ++step_) {
    const BoundStep& step = steps[step_];
    if (step.elements == 0) continue;
    const Attempt attempt = isPlain_ ? tryShape(step, step.elements, looks)
                                     : tryMappedShape(step, step.elements, looks);
    if (attempt == Attempt::kBlocked) return false;
    if (attempt == Attempt::kUnfit) return runsThrough(looks);
  }
  step_ = 0;
  turn_ = 1;
  while (hasReferred_ && !isDrained()) {
    if (binding_.isJoint && helpReceivers()) continue;
    if (!mayLookAgain(looks)) return false;
  }
  if (isHearing_) [[unlikely]]
    binding_.outbox->end();
  return true;
}

bool Execution::runsThrough(uint32_t looks) {
  const Result<Progress> progress = poll(looks);
  return progress.ok() && progress.value() == Progress::kDone;
}

Result<Progress> Execution::runSteps(uint32_t looks) {
  if (looks == 1 && isStillBlocked()) return Progress::kIdle;
  const BoundProgram& program = *binding_.program;
  const std::span<const BoundStep> steps = program.steps();
  int done = 0;
  const size_t turns = program.turnCount();
  for (; turn_ < turns && done < kStepsAPoll; ++done) {
    const BoundStep& step = steps[step_];
    const size_t piece = turn_ - step.lag;  // past all where the step is not there yet
    const size_t before = piece * program.pieceElements();
    if (piece < program.pieceCount() && before < step.elements) {
      pieceOffset_ = before * program.elementBytes();
      const size_t elements = std::min(program.pieceElements(), step.elements - before);
      Attempt attempt = Attempt::kUnfit;
      if (isPlain_) {
        attempt = tryShape(step, elements, looks);
      } else if (isMapped_ && !joint_.isOpen()) {
        attempt = tryMappedShape(step, elements, looks);
      }
      if (attempt == Attempt::kUnfit) {
        if (!awaitReady(step, elements, looks)) {
          offerLanding(step, elements * program.elementBytes());
          return done > 0 ? Progress::kAdvanced : Progress::kIdle;
        }
        TUTTI_TRY_ASSIGN(attempt, runStep(step, elements, looks));
      }
      if (attempt == Attempt::kBlocked) {
        offerLanding(step, elements * program.elementBytes());
        return done > 0 ? Progress::kAdvanced : Progress::kIdle;
      }
      if (blockage_.what != For::kNothing) blockage_ = {};
    }
    if (++step_ == steps.size()) {
      step_ = 0;
      ++turn_;
    }
  }
  if (done == kStepsAPoll) return Progress::kAdvanced;
  while (hasReferred_ && !isDrained()) {
    if (binding_.isJoint && looks > 1 && helpReceivers()) continue;
    if (!mayLookAgain(looks)) return done > 0 ? Progress::kAdvanced : Progress::kIdle;
  }
  if (isHearing_) [[unlikely]]
    binding_.outbox->end();
  return Progress::kDone;
}

// A sender that waits for its receivers copies for them.
Result<Progress> Execution::pollAndHelp(uint32_t looks) {
  TUTTI_TRY_ASSIGN(const Progress progress, runSteps(looks));
  if (progress != Progress::kIdle || !hasReferred_) return progress;
  return helpReceivers() ? Progress::kAdvanced : Progress::kIdle;
}

}  // namespace tutti::kernels
