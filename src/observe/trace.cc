#include "observe/trace.h"

#include <algorithm>

namespace tutti::observe {
namespace {

ProfilerSink::Handle handleOf(uint64_t number) {
  return reinterpret_cast<ProfilerSink::Handle>(static_cast<uintptr_t>(number));
}
uint64_t numberOf(ProfilerSink::Handle handle) {
  return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(handle));
}

}  // namespace

ProfilerSink::Handle Trace::beginGroup(const GroupNote& note, Instant now) {
  const std::lock_guard lock(mutex_);
  return add({.kind = EventKind::kGroup, .bytes = note.callCount, .began = now, .call = {}});
}

ProfilerSink::Handle Trace::beginCall(Handle group, const CallNote& note, Instant now) {
  const std::lock_guard lock(mutex_);
  return add({.kind = EventKind::kCall, .parent = numberOf(group), .began = now, .call = note});
}

ProfilerSink::Handle Trace::beginLaunch(Handle /*group*/, void* /*stream*/, Instant /*now*/) {
  return nullptr;
}

ProfilerSink::Handle Trace::beginRun(Handle call, Instant now) {
  const std::lock_guard lock(mutex_);
  return add({.kind = EventKind::kRun, .parent = numberOf(call), .began = now, .call = {}});
}

ProfilerSink::Handle Trace::beginTransfer(Handle call, const TransferNote& note, Instant now) {
  const std::lock_guard lock(mutex_);
  const TraceRecord* of = find(call);
  return add({.kind = EventKind::kTransfer,
              .isSend = note.isSend,
              .lane = note.lane,
              .peer = note.peer,
              .first = note.firstMessage,
              .bytes = note.messageCount,
              .parent = numberOf(call),
              .began = now,
              .call = of != nullptr ? of->call : CallNote{}});
}

// What it needs of its transfer it keeps: that one may be overwritten first.
ProfilerSink::Handle Trace::beginMessage(Handle transfer, const MessageNote& note, Instant now) {
  const std::lock_guard lock(mutex_);
  const TraceRecord* of = find(transfer);
  if (of == nullptr) return nullptr;
  return add({.kind = EventKind::kMessage,
              .isSend = of->isSend,
              .lane = of->lane,
              .peer = of->peer,
              .first = note.number,
              .bytes = note.bytes,
              .parent = numberOf(transfer),
              .began = now,
              .call = of->call});
}

void Trace::messageMoved(Handle message, uint64_t bytes, Instant now) {
  const std::lock_guard lock(mutex_);
  TraceRecord* record = find(message);
  if (record == nullptr) return;
  record->stage = TraceStage::kMoved;
  record->bytes = bytes;
  record->moved = now;
}

void Trace::end(EventKind /*kind*/, Handle event, Instant now) {
  const std::lock_guard lock(mutex_);
  TraceRecord* record = find(event);
  if (record == nullptr) return;
  if (record->stage == TraceStage::kOpen) record->moved = now;
  record->stage = TraceStage::kEnded;
  record->ended = now;
}

void Trace::drop(size_t calls) {
  const std::lock_guard lock(mutex_);
  untold_ += calls;
}

ProfilerSink::Handle Trace::add(const TraceRecord& record) {
  const uint64_t number = ++last_;
  TraceRecord& slot = records_[number % records_.size()];
  slot = record;
  slot.number = number;
  return handleOf(number);
}

TraceRecord* Trace::find(Handle event) {
  const uint64_t number = numberOf(event);
  TraceRecord& slot = records_[number % records_.size()];
  return number != 0 && slot.number == number ? &slot : nullptr;
}

std::vector<TraceRecord> Trace::records() const {
  const std::lock_guard lock(mutex_);
  std::vector<TraceRecord> kept;
  std::ranges::copy_if(records_, std::back_inserter(kept),
                       [](const TraceRecord& record) { return record.number != 0; });
  std::ranges::sort(kept, {}, &TraceRecord::number);
  return kept;
}

uint64_t Trace::droppedCount() const {
  const std::lock_guard lock(mutex_);
  return untold_ + (last_ > records_.size() ? last_ - records_.size() : 0);
}

}  // namespace tutti::observe
