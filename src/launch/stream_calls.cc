#include "launch/stream_calls.h"

namespace tutti::launch {
namespace {

Status checkBuffer(const Call& call, const void* buffer, device::Accelerator& accelerator) {
  if (buffer == nullptr) return {};
  TUTTI_TRY_ASSIGN(const auto place, accelerator.placeOf(buffer));
  if (place != device::MemoryPlace::kUnknownHost) return {};
  return invalidArgument(
      "{}: buffer {} is host memory that no GPU can address; GPU ranks want memory from "
      "cudaMalloc, ncclMemAlloc or cudaHostAlloc (or TUTTI_DEVICE=host for CPU ranks)",
      name(call.shape.collective), buffer);
}

}  // namespace

Status checkBuffers(std::span<const StreamCall> calls, device::Accelerator& accelerator) {
  for (const StreamCall& item : calls) {
    if (item.call->shape.count == 0) continue;
    TUTTI_TRY(checkBuffer(*item.call, item.call->input, accelerator));
    TUTTI_TRY(checkBuffer(*item.call, item.call->output, accelerator));
  }
  return {};
}

Status checkSelfTransfers(std::span<const StreamCall> calls, Rank self) {
  size_t nextReceive = 0;
  size_t receives = 0;
  size_t sends = 0;
  for (const StreamCall& item : calls) {
    const Call& call = *item.call;
    if (!isPointToPoint(call) || call.shape.peer != self) continue;
    if (call.shape.collective == Collective::kRecv) {
      ++receives;
      continue;
    }
    ++sends;
    const auto isOwnReceive = [self](const StreamCall& other) {
      return other.call->shape.collective == Collective::kRecv && other.call->shape.peer == self;
    };
    while (nextReceive < calls.size() && !isOwnReceive(calls[nextReceive])) ++nextReceive;
    if (nextReceive == calls.size()) break;
    const Call& receive = *calls[nextReceive++].call;
    if (bytesOf(call) != bytesOf(receive)) {
      return invalidUsage("rank {} sends {} elements of {} to itself but receives {} of {}",
                          index(self), call.shape.count, name(call.shape.type), receive.shape.count,
                          name(receive.shape.type));
    }
  }
  if (sends == receives) return {};
  return invalidUsage(
      "rank {} has {} send(s) to itself and {} receive(s) from itself in this group: put each send "
      "and its receive into one ncclGroupStart/ncclGroupEnd",
      index(self), sends, receives);
}

}  // namespace tutti::launch
