// Trace: the last events of one rank, kept in memory of a fixed size, and written as a file that
// Perfetto (ui.perfetto.dev) and chrome://tracing open. `tutti trace` joins the files of many
// ranks.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "observe/profiler.h"

namespace tutti::observe {

enum class TraceStage : uint8_t { kOpen, kMoved, kEnded };

// One event as it is kept.
struct TraceRecord {
  uint64_t number = 0;  // from 1, in the order of their beginnings; 0: none
  EventKind kind = EventKind::kGroup;
  TraceStage stage = TraceStage::kOpen;
  bool isSend = false;  // transfers and messages, these four
  uint8_t lane = 0;
  int32_t peer = -1;
  uint64_t first = 0;   // of a transfer its first message, of a message its number on the link
  uint64_t bytes = 0;   // of a transfer: messages; of a group: calls
  uint64_t parent = 0;  // by number
  Instant began{};
  Instant moved{};
  Instant ended{};
  CallNote call;
};
static_assert(sizeof(TraceRecord) == 128);  // as TUTTI_TRACE_EVENTS says

// Who the trace is of; goes into the file.
struct TraceIdentity {
  uint64_t communicator = 0;  // equal on all its ranks, as no other's
  std::string name;
  int32_t rank = 0;
  int32_t rankCount = 1;
  std::string host;
  uint64_t hostHash = 0;  // ranks with equal ones share a clock
  int32_t processId = 0;
};

class Trace : public ProfilerSink {
 public:
  // Takes the memory for `capacity` events; the newest overwrites the oldest.
  explicit Trace(size_t capacity) : records_(capacity) {}

  Handle beginGroup(const GroupNote& note, Instant now) override;
  Handle beginCall(Handle group, const CallNote& note, Instant now) override;
  // Not kept: the ranges of Nsight Systems show it.
  Handle beginLaunch(Handle group, void* stream, Instant now) override;
  Handle beginRun(Handle call, Instant now) override;
  Handle beginTransfer(Handle call, const TransferNote& note, Instant now) override;
  Handle beginMessage(Handle transfer, const MessageNote& note, Instant now) override;
  void messageMoved(Handle message, uint64_t bytes, Instant now) override;
  void end(EventKind kind, Handle event, Instant now) override;
  void drop(size_t calls) override;

  // In the order of their beginnings.
  std::vector<TraceRecord> records() const;
  // What was overwritten, and calls that were not told of.
  uint64_t droppedCount() const;

 private:
  Handle add(const TraceRecord& record);
  TraceRecord* find(Handle event);

  mutable std::mutex mutex_;          // guards all below
  std::vector<TraceRecord> records_;  // by number, round and round
  uint64_t last_ = 0;
  uint64_t untold_ = 0;
};

// The file's text. `now`: the end of what has none yet. `wallClockNs`: what the wall clock says at
// that moment, in nanoseconds since 1970.
struct TraceMoment {
  Instant now{};
  int64_t wallClockNs = 0;
  uint64_t droppedCount = 0;
};
std::string traceText(const TraceIdentity& identity, const std::vector<TraceRecord>& records,
                      const TraceMoment& moment);

}  // namespace tutti::observe
