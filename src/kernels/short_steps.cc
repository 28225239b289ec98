// The executor's steps of frequent shapes, each in code of its own.
//
// They take a third of the general way's instructions, and after a wait of any length a processor
// predicts rightly only branches that always go one way.
#include <cstring>

#include "base/relax_cpu.h"
#include "kernels/execution.h"

namespace tutti::kernels {
namespace {

// At most kInlineBytes: a few stores, which leave the core together.
void copyFew(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes >= 8) {
    for (size_t at = 0; at + 8 < bytes; at += 8) std::memcpy(to + at, from + at, 8);
    std::memcpy(to + bytes - 8, from + bytes - 8, 8);
  } else if (bytes >= 4) {
    std::memcpy(to, from, 4);
    std::memcpy(to + bytes - 4, from + bytes - 4, 4);
  } else {
    for (size_t at = 0; at < bytes; ++at) to[at] = from[at];
  }
}

void copyBytes(std::byte* to, const std::byte* from, size_t bytes) {
  if (to == from) return;
  if (bytes <= wire::kInlineBytes) {
    copyFew(to, from, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace

Execution::Attempt Execution::tryShape(const BoundStep& step, size_t elements, uint32_t& looks) {
  switch (step.shape) {
    case StepShape::kSend: return trySend(step, elements, looks);
    case StepShape::kReceive: return tryReceive(step, elements, looks);
    case StepShape::kPair: return tryPair(step, elements, looks);
    case StepShape::kGeneral: break;
  }
  return Attempt::kUnfit;
}

// False: the looks are used up, and others are told what is missing.
bool Execution::mayLookAgain(const Blockage& blockage, uint32_t& looks) {
  if (--looks > 0) {
    relaxCpu();
    return true;
  }
  looks = 1;
  blockage_ = blockage;
  return false;
}

Execution::Attempt Execution::trySend(const BoundStep& step, size_t elements, uint32_t& looks) {
  const BoundOperand& link = step.operands[1 + step.outputCount];
  wire::LinkPort& port = *link.port;
  while (!wire::hasFreeSlot(port)) {
    if (!mayLookAgain({.what = For::kSlot, .peer = link.peer, .port = &port}, looks))
      return Attempt::kBlocked;
  }
  const size_t bytes = elements * binding_.program->elementBytes();
  const std::byte* from = localAt(step.operands[0]);
  for (const BoundOperand& output : BoundProgram::outputs(step))
    copyBytes(outputAt(output), from, bytes);
  // Last, since a receiver that looks between payload and mark takes the line away.
  copyBytes(port.view.payload(port.next, bytes), from, bytes);
  wire::publish(port, static_cast<uint32_t>(bytes), binding_.signature);
  return Attempt::kDone;
}

Execution::Attempt Execution::tryReceive(const BoundStep& step, size_t elements, uint32_t& looks) {
  const BoundOperand& link = step.operands[0];
  wire::LinkPort& port = *link.port;
  const bool isBehind = wire::hasMessage(port);
  while (!wire::hasMessage(port)) {
    if (!mayLookAgain({.what = For::kMessage, .peer = link.peer, .port = &port}, looks))
      return Attempt::kBlocked;
  }
  const size_t bytes = elements * binding_.program->elementBytes();
  const wire::MessageHead& message = port.view.message(port.next);
  if (!wire::isPlain(message, bytes, binding_.signature)) [[unlikely]]
    return Attempt::kUnfit;
  const std::byte* payload = wire::payloadOf(message, bytes);
  for (const BoundOperand& output : BoundProgram::outputs(step))
    copyBytes(outputAt(output), payload, bytes);
  wire::release(port);
  // The sender runs ahead: its next message is on its way while this call ends and the next begins.
  if (isBehind) __builtin_prefetch(&port.view.message(port.next));
  return Attempt::kDone;
}

Execution::Attempt Execution::tryPair(const BoundStep& step, size_t elements, uint32_t& looks) {
  const BoundOperand& link = step.operands[step.message];
  wire::LinkPort& port = *link.port;
  while (!wire::hasMessage(port)) {
    if (!mayLookAgain({.what = For::kMessage, .peer = link.peer, .port = &port}, looks))
      return Attempt::kBlocked;
  }
  const size_t bytes = elements * binding_.program->elementBytes();
  const wire::MessageHead& message = port.view.message(port.next);
  if (!wire::isPlain(message, bytes, binding_.signature)) [[unlikely]]
    return Attempt::kUnfit;
  const std::byte* payload = wire::payloadOf(message, bytes);
  const std::byte* own = localAt(step.operands[1 - step.message]);
  const std::byte* first = step.message == 0 ? payload : own;
  const std::byte* second = step.message == 0 ? own : payload;
  foldPair(binding_.program->pair(), outputAt(step.operands[2]), first, second, elements);
  wire::release(port);
  return Attempt::kDone;
}

}  // namespace tutti::kernels
