#include "launch/stream_order.h"

#include <algorithm>

namespace tutti::launch {

StreamOrder::~StreamOrder() { accelerator_.destroyEvent(join_); }

Status StreamOrder::open() {
  TUTTI_TRY_ASSIGN(tail_, makeEvent());
  TUTTI_TRY_ASSIGN(join_, accelerator_.createEvent());
  return {};
}

Result<StreamOrder::Event> StreamOrder::makeEvent() {
  TUTTI_TRY_ASSIGN(device::Event * event, accelerator_.createEvent());
  return Event(
      event, [&accelerator = accelerator_](device::Event* one) { accelerator.destroyEvent(one); });
}

Status StreamOrder::begin(std::span<const StreamCall> calls, void* stream,
                          const device::Capture& capture, bool isBusy) {
  if (capture.isActive) {
    const CaptureTail* before = find(capture);
    if (before != nullptr && before->stream != stream)
      TUTTI_TRY(accelerator_.wait(stream, before->event.get()));
  } else {
    TUTTI_TRY_ASSIGN(const uint64_t id, accelerator_.streamId(stream));
    if (isBusy && id != lastStream_) TUTTI_TRY(accelerator_.wait(stream, tail_.get()));
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
      TUTTI_TRY_ASSIGN(tail.event, makeEvent());
    }
    tail.stream = stream;
    return accelerator_.record(tail.event.get(), stream);
  }
  return accelerator_.record(tail_.get(), stream);
}

Status StreamOrder::join(std::span<const StreamCall> calls, void* stream,
                         const device::Capture& capture) {
  device::Event* tail = capture.isActive ? placeOf(capture).event.get() : tail_.get();
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
  const Result<bool> done = accelerator_.isDone(tail_.get());
  return !done.ok() || done.value();
}

}  // namespace tutti::launch
