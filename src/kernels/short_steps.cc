// The executor's steps of frequent shapes, each in code of its own.
//
// They take a third of the general way's instructions, and after a wait of any length a processor
// predicts rightly only branches that always go one way.
#include "kernels/copy_bytes.h"
#include "kernels/execution.h"

namespace tutti::kernels {

Execution::Attempt Execution::tryShape(const BoundStep& step, size_t elements, uint32_t& looks) {
  switch (step.shape) {
    case StepShape::kSend: return trySend(step, elements, looks);
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

Execution::Attempt Execution::trySend(const BoundStep& step, size_t elements, uint32_t& looks) {
  const BoundOperand& link = step.operands[1 + step.outputCount];
  wire::LinkPort& port = *link.port;
  const size_t bytes = elements * binding_.program->elementBytes();
  while (!wire::hasFreeSlot(port, bytes)) {
    if (mayLookAgain(looks)) continue;
    blockage_ = {.what = For::kSlot, .peer = link.peer, .port = &port, .bytes = bytes};
    return Attempt::kBlocked;
  }
  const std::byte* from = localAt(step.operands[0]);
  // Together, since a receiver that looks between payload and mark takes the line away. What stays
  // here comes after: nobody waits for it.
  copyBytes(wire::payloadToFill(port, bytes), from, bytes);
  wire::publish(port, static_cast<uint32_t>(bytes), binding_.signature);
  for (const BoundOperand& output : BoundProgram::outputs(step))
    copyBytes(outputAt(output), from, bytes);
  return Attempt::kDone;
}

// A message of the link that brings its payload; blocked without one, unfit when it is another.
Execution::Attempt Execution::tryMessage(const BoundOperand& link, size_t bytes, uint32_t& looks,
                                         const std::byte*& payload) {
  wire::LinkPort& port = *link.port;
  while (!wire::hasMessage(port)) {
    if (mayLookAgain(looks)) continue;
    blockage_ = {.what = For::kMessage, .peer = link.peer, .port = &port};
    return Attempt::kBlocked;
  }
  const wire::MessageHead& message = port.view.message(port.next);
  if (!wire::isPlain(message, bytes, binding_.signature)) [[unlikely]]
    return Attempt::kUnfit;
  payload = wire::receivedPayload(port, bytes);
  return Attempt::kDone;
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
  // The sender runs ahead: its next message is on its way while this call ends and the next begins.
  if (isBehind) __builtin_prefetch(&port.view.message(port.next));
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

}  // namespace tutti::kernels
