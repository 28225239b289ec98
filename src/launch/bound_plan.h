// What a communicator keeps of each shape of call: its plan with the links it runs over, how its
// messages go, and how the last call went.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "channel/link_set.h"
#include "kernels/execution.h"
#include "launch/call.h"
#include "launch/form_trial.h"
#include "plan/plan.h"

namespace tutti::launch {

// Each rank sends to and receives from others as much as they do.
bool isAmongAll(Collective collective);

// In place, an all-to-all would have to refer to a copy: two copies, against the one into slots.
bool isCopyOnly(const plan::CallShape& shape, bool inPlace);

// A plan with the links it runs over; they are resolved by the first operation that uses it.
struct BoundVariant {
  plan::Plan plan;
  bool isConnected = false;
  std::vector<channel::Link*> outgoing;
  std::optional<kernels::BoundProgram> program;  // once the links are made
  // By whether the call is in place: Planner::mappedSteps(), once something asks for it.
  std::array<std::optional<plan::MappedSteps>, 2> mappedSteps;
};

// How a plan's last call of a form went: the next one with the same buffers goes the same way
// without finding it out again, in the thread that calls. That is most of what a short call of
// buffers that peers map costs; and a trial so measures what comes after it (all-gather of 4 KiB by
// 2 ranks: references took 0.60 us so, and 0.85 otherwise, where copies take 0.75; Intel Xeon VM,
// 2026-11-23).
struct Recall {
  BoundVariant* variant = nullptr;  // null: nothing is recalled
  const void* input = nullptr;
  const void* output = nullptr;
  uint64_t segments = 0;  // SegmentCache::generation()
  kernels::SharedBuffers shared;
  bool isShared = false;  // the above is used
  bool refers = false;    // these two as in kernels::Binding
  bool isJoint = false;
  bool isTried = false;      // the form is a turn of the trial, or its answer
  bool hasReferred = false;  // kernels::Execution's
  bool couldRefer = false;   // FormTrial::Outcome's

  // Whether the call may go so.
  bool fits(const void* from, const void* to, uint64_t generation) const {
    return variant != nullptr && from == input && to == output && generation == segments;
  }
  // REQUIRES: fits(); `binding` is of the variant, for a call without choice.
  void applyTo(kernels::Binding& binding) const;
};

// A shape but for its count, in one word.
constexpr uint64_t kindOf(const plan::CallShape& shape) {
  return uint64_t{static_cast<uint8_t>(shape.collective)} |
         uint64_t{static_cast<uint8_t>(shape.type)} << 8 |
         uint64_t{static_cast<uint8_t>(shape.op)} << 16 | uint64_t{shape.isOnGpu} << 24 |
         uint64_t{static_cast<uint32_t>(index(shape.peer))} << 32;
}

// What is known of a shape. Cached.
struct BoundPlan {
  plan::CallShape shape;
  uint64_t kind = 0;   // kindOf(shape)
  uint64_t noted = 0;  // observe::packWhat() of its calls
  channel::Lane lane = channel::Lane::kCollective;
  bool mayRunAtOnce = false;  // connected, and short
  bool hasChoice = true;      // of its messages' form or another algorithm, with any buffers
  bool streams = false;       // kernels::Binding::streams
  bool mayShare = true;       // long enough for messages that name mapped memory
  BoundVariant own;
  // Of its own variant's calls that are run at once, with nothing to choose: what they share is
  // bound once.
  kernels::Execution bare;
  bool isBareBound = false;           // and the last one ended well
  std::optional<BoundVariant> other;  // Planner::makeOther()
  FormTrial forms;                    // where there is a choice
  Instant lastEnd{};                  // of the last call that was measured
  std::array<Recall, 3> recalls;      // by form
};

}  // namespace tutti::launch
