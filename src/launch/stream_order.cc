#include "launch/stream_order.h"

#include <algorithm>

namespace tutti::launch {

StreamOrder::~StreamOrder() {
  for (device::Event* event : {tail_, join_}) accelerator_.destroyEvent(event);
  for (const CaptureTail& tail : captures_) accelerator_.destroyEvent(tail.event);
}

Status StreamOrder::open() {
  for (device::Event** event : {&tail_, &join_}) {
    TUTTI_TRY_ASSIGN(*event, accelerator_.createEvent());
  }
  return {};
}

Status StreamOrder::begin(std::span<const StreamCall> calls, void* stream,
                          const device::Capture& capture, bool isBusy) {
  if (capture.isActive) {
    const CaptureTail* before = find(capture);
    if (before != nullptr && before->stream != stream)
      TUTTI_TRY(accelerator_.wait(stream, before->event));
  } else {
    TUTTI_TRY_ASSIGN(const uint64_t id, accelerator_.streamId(stream));
    if (isBusy && id != lastStream_) TUTTI_TRY(accelerator_.wait(stream, tail_));
    lastStream_ = id;
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
    CaptureTail& tail = placeOf(capture);
    if (tail.event == nullptr) {
      TUTTI_TRY_ASSIGN(tail.event, accelerator_.createEvent());
    }
    tail.stream = stream;
    return accelerator_.record(tail.event, stream);
  }
  return accelerator_.record(tail_, stream);
}

Status StreamOrder::join(std::span<const StreamCall> calls, void* stream,
                         const device::Capture& capture) {
  device::Event* tail = capture.isActive ? placeOf(capture).event : tail_;
  void* joined = stream;
  for (const StreamCall& item : calls) {
    if (item.stream == stream || item.stream == joined) continue;
    joined = item.stream;
    TUTTI_TRY(accelerator_.wait(joined, tail));
  }
  return {};
}

StreamOrder::CaptureTail* StreamOrder::find(const device::Capture& capture) {
  const auto found = std::ranges::find_if(
      captures_, [&](const CaptureTail& one) { return one.turn != 0 && one.id == capture.id; });
  return found == captures_.end() ? nullptr : &*found;
}

StreamOrder::CaptureTail& StreamOrder::placeOf(const device::Capture& capture) {
  CaptureTail* tail = find(capture);
  if (tail == nullptr) tail = &*std::ranges::min_element(captures_, {}, &CaptureTail::turn);
  tail->id = capture.id;
  tail->turn = ++captureTurns_;
  return *tail;
}

bool StreamOrder::isTailReached() const {
  const Result<bool> done = accelerator_.isDone(tail_);
  return !done.ok() || done.value();
}

}  // namespace tutti::launch
