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

Result<device::Capture> unbrokenCaptureOf(void* stream, device::Accelerator& accelerator,
                                          Rank self) {
  TUTTI_TRY_ASSIGN(const device::Capture capture, accelerator.captureOf(stream));
  if (!capture.isBroken) return capture;
  return invalidUsage(
      "rank {}: the capture of stream {} has failed, by an earlier call that captures forbid: end "
      "it "
      "(cudaStreamEndCapture), and capture again",
      index(self), stream);
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

// A stream that is not captured and waits for one that is would become part of its graph unnoticed.
Result<device::Capture> captureOf(std::span<const StreamCall> calls,
                                  device::Accelerator& accelerator, Rank self) {
  void* first = calls.front().stream;
  TUTTI_TRY_ASSIGN(const device::Capture capture, unbrokenCaptureOf(first, accelerator, self));
  const void* seen = first;
  for (const StreamCall& item : calls) {
    if (item.stream == seen) continue;
    seen = item.stream;
    TUTTI_TRY_ASSIGN(const device::Capture other,
                     unbrokenCaptureOf(item.stream, accelerator, self));
    if (other.isActive == capture.isActive && (!other.isActive || other.id == capture.id)) continue;
    return invalidUsage(
        "rank {}: of the streams of a group all are captured into one graph, or none; {} and {} "
        "are not alike",
        index(self), first, item.stream);
  }
  return capture;
}

bool hasBroken(const device::Capture& capture, void* stream, device::Accelerator& accelerator) {
  if (!capture.isActive) return false;
  const Result<device::Capture> now = accelerator.captureOf(stream);
  return now.ok() && now.value().isBroken;
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
