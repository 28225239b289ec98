// Profiler: what one rank does, told while it happens to whoever asked for it: a trace file
// (TUTTI_TRACE_DIR), a profiler plug-in (NCCL_PROFILER_PLUGIN). Where nobody asked a communicator
// has none, and short calls keep their short way.
//
// Events nest: a group has calls, and on a GPU their launch; a call its run, and a transfer for
// each network link that it uses; a transfer its messages. An event begins while its parent is
// open. It ends before its parent, but for what a call leaves to be sent when it is over: a
// transfer may outlive its call. What a GPU runs is told of when it is seen, with the instants at
// which it was.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "wire/types.h"

namespace tutti::observe {

struct GroupNote {
  size_t callCount = 0;
  bool isUsers = false;     // between the program's ncclGroupStart and ncclGroupEnd
  bool isCaptured = false;  // into a graph of a GPU's, which runs it later
};

struct CallNote {
  Collective collective = Collective::kAllReduce;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  bool isCaptured = false;  // its group is
  int32_t peer = 0;         // or root
  uint64_t count = 0;
  uint64_t sequence = 0;  // of collectives, from 1; else 0
  const void* input = nullptr;
  void* output = nullptr;
  std::string_view algorithm{};  // of the catalogue, whose names stay
  void* stream = nullptr;        // of a GPU's; else null
};

// The messages of one call over one link to another host, in one direction.
struct TransferNote {
  int32_t peer = -1;
  bool isSend = false;
  uint8_t lane = 0;           // channel::Lane
  uint64_t firstMessage = 0;  // of the call on this link; both ends number them alike
  uint64_t messageCount = 0;
  uint64_t messageBytes = 0;  // of the longest
};

struct MessageNote {
  uint64_t number = 0;  // on its link
  uint32_t step = 0;    // of its transfer
  uint64_t bytes = 0;
};

enum class EventKind : uint8_t { kGroup, kCall, kLaunch, kRun, kTransfer, kMessage };

// Thread-safe: events of one communicator come from the threads that drive it and from the
// network's. Nothing here waits for anybody.
class ProfilerSink {
 public:
  // An event as the sink knows it; null: it does not keep the event.
  using Handle = void*;

  virtual Handle beginGroup(const GroupNote& note, Instant now) = 0;
  // Queued. REQUIRES: what `note` points to outlives the call's own event.
  virtual Handle beginCall(Handle group, const CallNote& note, Instant now) = 0;
  // The host puts the group's kernels on streams of a GPU, of which this is the first call's.
  virtual Handle beginLaunch(Handle group, void* stream, Instant now) = 0;
  // The executor starts on it, or the GPU on its kernel.
  virtual Handle beginRun(Handle call, Instant now) = 0;
  virtual Handle beginTransfer(Handle call, const TransferNote& note, Instant now) = 0;
  // Sending: the message lies in the ring. Receiving: its first bytes have come.
  virtual Handle beginMessage(Handle transfer, const MessageNote& note, Instant now) = 0;
  // Sending: the network has been given it. Receiving: all of it has come.
  virtual void messageMoved(Handle message, uint64_t bytes, Instant now) = 0;
  // Of a message: its memory is free again. Once an event, with the handle that its begin gave.
  virtual void end(EventKind kind, Handle event, Instant now) = 0;
  // So many calls are not told of: too much was under way.
  virtual void drop(size_t calls) = 0;

  virtual ~ProfilerSink() = default;
};

// An event as all sinks know it.
inline constexpr size_t kMaxSinks = 2;
struct EventTag {
  std::array<ProfilerSink::Handle, kMaxSinks> handles{};
};

// Gives each event to all sinks. Thread-safe as they are.
class Profiler {
 public:
  // At most kMaxSinks of them.
  explicit Profiler(std::vector<std::unique_ptr<ProfilerSink>> sinks) : sinks_(std::move(sinks)) {}

  EventTag beginGroup(const GroupNote& note, Instant now);
  EventTag beginCall(const EventTag& group, const CallNote& note, Instant now);
  EventTag beginLaunch(const EventTag& group, void* stream, Instant now);
  EventTag beginRun(const EventTag& call, Instant now);
  EventTag beginTransfer(const EventTag& call, const TransferNote& note, Instant now);
  EventTag beginMessage(const EventTag& transfer, const MessageNote& note, Instant now);
  void messageMoved(const EventTag& message, uint64_t bytes, Instant now);
  void end(EventKind kind, const EventTag& event, Instant now);
  void drop(size_t calls);

 private:
  const std::vector<std::unique_ptr<ProfilerSink>> sinks_;
};

}  // namespace tutti::observe
