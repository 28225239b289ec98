#include "launch/stream_order.h"

namespace tutti::launch {

StreamOrder::~StreamOrder() {
  for (device::Event* event : {tail_, join_, captureTail_}) accelerator_.destroyEvent(event);
}

Status StreamOrder::open() {
  for (device::Event** event : {&tail_, &join_, &captureTail_}) {
    TUTTI_TRY_ASSIGN(*event, accelerator_.createEvent());
  }
  return {};
}

Status StreamOrder::begin(std::span<const StreamCall> calls, void* stream,
                          const device::Capture& capture, bool isBusy) {
  if (capture.isActive) {
    if (capture_.isActive && capture_.id == capture.id && stream != lastCaptureStream_)
      TUTTI_TRY(accelerator_.wait(stream, captureTail_));
  } else if (isBusy && stream != lastStream_) {
    TUTTI_TRY(accelerator_.wait(stream, tail_));
  }
  void* joined = stream;
  for (const StreamCall& item : calls) {
    if (item.stream == stream || item.stream == joined) continue;
    joined = item.stream;
    TUTTI_TRY(accelerator_.record(join_, joined));
    TUTTI_TRY(accelerator_.wait(stream, join_));
  }
  return {};
}

Status StreamOrder::end(void* stream, const device::Capture& capture) {
  if (capture.isActive) {
    hasCaptured_ = true;
    capture_ = capture;
    lastCaptureStream_ = stream;
    return accelerator_.record(captureTail_, stream);
  }
  lastStream_ = stream;
  return accelerator_.record(tail_, stream);
}

Status StreamOrder::join(std::span<const StreamCall> calls, void* stream,
                         const device::Capture& capture) {
  void* joined = stream;
  for (const StreamCall& item : calls) {
    if (item.stream == stream || item.stream == joined) continue;
    joined = item.stream;
    TUTTI_TRY(accelerator_.wait(joined, capture.isActive ? captureTail_ : tail_));
  }
  return {};
}

bool StreamOrder::isTailReached() const {
  const Result<bool> done = accelerator_.isDone(tail_);
  return !done.ok() || done.value();
}

}  // namespace tutti::launch
