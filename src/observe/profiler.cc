#include "observe/profiler.h"

namespace tutti::observe {
namespace {

using Sinks = std::vector<std::unique_ptr<ProfilerSink>>;

template <typename Begin>
EventTag beginAt(const Sinks& sinks, const Begin& begin) {
  EventTag tag;
  for (size_t i = 0; i < sinks.size() && i < kMaxSinks; ++i) tag.handles[i] = begin(*sinks[i], i);
  return tag;
}

}  // namespace

EventTag Profiler::beginGroup(const GroupNote& note, Instant now) {
  return beginAt(sinks_,
                 [&](ProfilerSink& sink, size_t /*at*/) { return sink.beginGroup(note, now); });
}

EventTag Profiler::beginCall(const EventTag& group, const CallNote& note, Instant now) {
  return beginAt(sinks_, [&](ProfilerSink& sink, size_t at) {
    return sink.beginCall(group.handles[at], note, now);
  });
}

EventTag Profiler::beginLaunch(const EventTag& group, void* stream, Instant now) {
  return beginAt(sinks_, [&](ProfilerSink& sink, size_t at) {
    return sink.beginLaunch(group.handles[at], stream, now);
  });
}

EventTag Profiler::beginRun(const EventTag& call, Instant now) {
  return beginAt(
      sinks_, [&](ProfilerSink& sink, size_t at) { return sink.beginRun(call.handles[at], now); });
}

EventTag Profiler::beginTransfer(const EventTag& call, const TransferNote& note, Instant now) {
  return beginAt(sinks_, [&](ProfilerSink& sink, size_t at) {
    return sink.beginTransfer(call.handles[at], note, now);
  });
}

EventTag Profiler::beginMessage(const EventTag& transfer, const MessageNote& note, Instant now) {
  return beginAt(sinks_, [&](ProfilerSink& sink, size_t at) {
    return sink.beginMessage(transfer.handles[at], note, now);
  });
}

void Profiler::messageMoved(const EventTag& message, uint64_t bytes, Instant now) {
  for (size_t i = 0; i < sinks_.size() && i < kMaxSinks; ++i) {
    if (message.handles[i] != nullptr) sinks_[i]->messageMoved(message.handles[i], bytes, now);
  }
}

void Profiler::end(EventKind kind, const EventTag& event, Instant now) {
  for (size_t i = 0; i < sinks_.size() && i < kMaxSinks; ++i) {
    if (event.handles[i] != nullptr) sinks_[i]->end(kind, event.handles[i], now);
  }
}

void Profiler::drop(size_t calls) {
  for (const auto& sink : sinks_) sink->drop(calls);
}

}  // namespace tutti::observe
