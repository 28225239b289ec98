// What the simulator of simulate.cc keeps while it plays a call. Included by it only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/traffic.h"

namespace tutti::sim {

// What lanes of a kind walk.
struct LaneProgram {
  Lane lane;
  size_t ringChunkElements = 0;  // of a ring: what each chunk is taken to have
};

// The steps of a lane; a tree's in several walks at once. What each event touches lies together:
// of a hashed network there are as many as lanes.
struct Walk {
  int32_t lane = 0;
  uint32_t program = 0;
  uint32_t outgoing = 0;  // where its edges begin in the simulator's list of them, by position
  uint32_t incoming = 0;
  uint32_t firstStep = 0;
  uint32_t endStep = 0;
  uint32_t tag = 0;    // of its messages
  int32_t after = -1;  // the walk whose pieces must be done where a step reads what it wrote
  uint32_t step = 0;
  size_t piece = 0;
  int32_t flowsLeft = 0;  // of the running step, inside the node
  bool isRunning = false;
  bool isLocalDone = false;  // its own work of the running step
  double startUs = 0;
};

// Messages of walks side by side must not be taken for each other's: each has its own slots and its
// own order, as links of their own would. Up and down of two trees at most.
constexpr size_t kMostTags = 4;

struct Message {
  double wire = 0;  // bytes
  uint32_t tag = 0;
  int32_t walk = -1;  // that waits for its end; -1: the network has it
};

// The messages of an edge that are not through yet, in order; mostly one.
class MessageQueue {
 public:
  bool empty() const { return first_ == messages_.size(); }
  bool isOne() const { return first_ + 1 == messages_.size(); }
  const Message& front() const { return messages_[first_]; }
  void push(const Message& message) { messages_.push_back(message); }
  void pop() {
    constexpr size_t kMostGone = 16;
    if (++first_ < messages_.size() && first_ < kMostGone) return;
    messages_.erase(messages_.begin(), messages_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }

 private:
  std::vector<Message> messages_;
  size_t first_ = 0;
};

// Counters of messages, which may wrap: only their differences count.
struct EdgeState {
  int32_t from = 0;  // classes of lanes
  int32_t to = 0;
  bool isBetweenNodes = false;
  double delayUs = 0;  // from the last byte's leaving until the receiver has the message
  int64_t count = 0;   // of edges that this one stands for
  std::array<uint32_t, kMostTags> posted{};    // slots taken
  std::array<uint32_t, kMostTags> arrived{};   // messages there
  std::array<uint32_t, kMostTags> consumed{};  // slots given back
  MessageQueue queue;                          // the first of them flows
};

enum class EventKind : uint8_t { kLocalEnd, kFlowEnd, kArrival };
struct Event {
  double us = 0;
  uint64_t order = 0;  // ties go in the order of making, so runs repeat
  EventKind kind = EventKind::kLocalEnd;
  int32_t which = 0;
  uint32_t version = 0;  // of a flow; of an arrival the tag
  bool operator>(const Event& other) const {
    return us != other.us ? us > other.us : order > other.order;
  }
};

}  // namespace tutti::sim
