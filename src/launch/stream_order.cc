#include "launch/stream_order.h"

#include <algorithm>

namespace tutti::launch {

StreamOrder::~StreamOrder() { accelerator_.destroyEvent(join_); }

Status StreamOrder::open(void* ownStream) {
  ownStream_ = ownStream;
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
  TUTTI_TRY(capture.isActive ? beginCaptured(stream, capture, isBusy) : beginNow(stream, isBusy));
  void* joined = stream;
  for (const StreamCall& item : calls) {
    if (item.stream == stream || item.stream == joined) continue;
    joined = item.stream;
    TUTTI_TRY(accelerator_.record(join_, joined));
    TUTTI_TRY(accelerator_.wait(stream, join_));
  }
  return {};
}

Status StreamOrder::beginNow(void* stream, bool isBusy) {
  joined_.clear();
  TUTTI_TRY_ASSIGN(const uint64_t id, accelerator_.streamId(stream));
  if (mixed_ != nullptr) {
    TUTTI_TRY(accelerator_.wait(stream, mixed_.get()));
  } else if (isBusy && id != lastStream_) {
    TUTTI_TRY(accelerator_.wait(stream, tail_.get()));
  }
  lastStream_ = id;
  return {};
}

Status StreamOrder::beginCaptured(void* stream, const device::Capture& capture, bool isBusy) {
  if (const Graph* graph = find(capture); graph != nullptr) {
    const bool isElsewhere = graph->tail != nullptr && graph->stream != stream;
    return isElsewhere ? accelerator_.wait(stream, graph->tail.get()) : Status();
  }
  std::erase_if(captured_, [](const Graph& graph) { return graph.own.expired(); });
  if (mixesGraphs_ && mixed_ == nullptr) TUTTI_TRY(beginMixing(isBusy));
  const auto own = std::make_shared<std::shared_ptr<const void>>(graphs_);
  TUTTI_TRY(accelerator_.shareWithGraph(stream, own));
  hasCaptured_ = true;
  if (mixed_ != nullptr) {
    TUTTI_TRY(accelerator_.waitInGraph(stream, mixed_.get()));
    beginsGraph_ = true;
  }
  captured_.push_back(
      {.capture = capture.id, .own = own, .stream = stream, .tail = {}, .record = {}});
  return {};
}

Status StreamOrder::beginMixing(bool isBusy) {
  TUTTI_TRY_ASSIGN(Event mixed, makeEvent());
  if (isBusy && !isTailReached()) TUTTI_TRY(recordBehindTail(mixed.get()));
  mixed_ = std::move(mixed);
  return {};
}

// The last call's stream may be gone, or captured.
Status StreamOrder::recordBehindTail(device::Event* event) {
  if (ownStream_ != nullptr) return accelerator_.record(event, ownStream_);
  TUTTI_TRY_ASSIGN(void* stream, accelerator_.createStream());
  Status status = accelerator_.wait(stream, tail_.get());
  if (status.ok()) status = accelerator_.record(event, stream);
  accelerator_.destroyStream(stream);
  return status;
}

Status StreamOrder::joinOrder(const Event& other, void* stream, const device::Capture& capture) {
  if (!capture.isActive) {
    if (std::ranges::find(joined_, other) != joined_.end()) return {};
    joined_.push_back(other);
    return accelerator_.wait(stream, other.get());
  }
  Graph& graph = *find(capture);
  if (std::ranges::find(graph.others, other, &Other::event) != graph.others.end()) return {};
  TUTTI_TRY(accelerator_.waitInGraph(stream, other.get()));
  graph.others.push_back({.event = other});
  if (std::ranges::find(others_, other) == others_.end()) others_.push_back(other);
  return {};
}

Status StreamOrder::end(void* stream, const device::Capture& capture) {
  beginsGraph_ = false;
  if (!capture.isActive) {
    TUTTI_TRY(accelerator_.record(tail_.get(), stream));
    for (const Event& other : joined_) TUTTI_TRY(accelerator_.record(other.get(), stream));
    joined_.clear();
    return mixed_ != nullptr ? accelerator_.record(mixed_.get(), stream) : Status();
  }
  Graph& graph = *find(capture);
  if (graph.tail == nullptr) {
    TUTTI_TRY_ASSIGN(graph.tail, makeEvent());
  }
  graph.stream = stream;
  TUTTI_TRY(accelerator_.record(graph.tail.get(), stream));
  for (Other& other : graph.others)
    TUTTI_TRY(accelerator_.recordInGraph(other.event.get(), stream, other.record));
  return mixed_ != nullptr ? accelerator_.recordInGraph(mixed_.get(), stream, graph.record)
                           : Status();
}

Status StreamOrder::join(std::span<const StreamCall> calls, void* stream,
                         const device::Capture& capture) {
  device::Event* tail = capture.isActive ? tailOf(capture).get() : tail_.get();
  void* joined = stream;
  for (const StreamCall& item : calls) {
    if (item.stream == stream || item.stream == joined) continue;
    joined = item.stream;
    TUTTI_TRY(accelerator_.wait(joined, tail));
  }
  return {};
}

StreamOrder::Graph* StreamOrder::find(const device::Capture& capture) {
  const auto found =
      std::ranges::find(captured_.rbegin(), captured_.rend(), capture.id, &Graph::capture);
  return found == captured_.rend() ? nullptr : &*found;
}

bool StreamOrder::isTailReached() const {
  const Result<bool> done = accelerator_.isDone(tail_.get());
  return !done.ok() || done.value();
}

}  // namespace tutti::launch
