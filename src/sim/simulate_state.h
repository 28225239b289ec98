// What the simulator of simulate.cc keeps while it plays a call. Included by it only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

namespace tutti::sim {

// The steps of a lane; a tree's in several walks at once.
struct Walk {
  int32_t lane = 0;
  size_t firstStep = 0;
  size_t endStep = 0;
  size_t tag = 0;      // of its messages
  int32_t after = -1;  // the walk whose pieces must be done where a step reads what it wrote
  size_t piece = 0;
  size_t step = 0;
  bool isRunning = false;
  int32_t flowsLeft = 0;     // of the running step, inside the node
  bool isLocalDone = false;  // its own work of the running step
  double startUs = 0;
};

// Messages of walks side by side must not be taken for each other's: each has its own slots and its
// own order, as links of their own would. Up and down of two trees at most.
constexpr size_t kMostTags = 4;

struct Message {
  double wire = 0;  // bytes
  size_t tag = 0;
  int32_t walk = -1;  // that waits for its end; -1: the network has it
};

struct EdgeState {
  std::array<int64_t, kMostTags> posted{};    // slots taken
  std::array<int64_t, kMostTags> arrived{};   // messages there
  std::array<int64_t, kMostTags> consumed{};  // slots given back
  std::deque<Message> queue;                  // the first of them flows
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
