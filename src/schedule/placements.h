// Which messages their sender may put straight into the receiver's output instead of sending a copy
// that the receiver moves there: one pass over memory less, and nothing to do when it has come.
//
// The sender must know the place, so the receiver offers it with an earlier message of its own: in
// a reduction's way up and its result's way down, a rank's contribution can say where the result
// is wanted. Nobody is asked to agree: who gets no offer, or cannot write there, sends as ever.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/schedule.h"

namespace tutti::schedule {

// Of one rank's program, by step.
struct Placements {
  static constexpr int32_t kNone = -1;
  // The later step whose message this step's message may offer a place for: that step's output.
  std::vector<int32_t> offers;
  // 1: such a later step. What it receives may be in its output already.
  std::vector<uint8_t> placed;
};

// A step that only sends, to one rank and of one chunk, may offer the place of a later message of
// that chunk when that rank
//   - sends it as its next message to us after it has received the offer, and
//   - in between neither a step of ours nor another rank, by a reference of ours, touches the place
//     (the rank itself may read it there in the step that writes: element by element).
// `inPlace` is this rank's own, by NCCL's rules: input and output are equal or do not overlap. Of a
// schedule that passes checkStructure().
Placements placements(const Schedule& schedule, Rank rank, bool inPlace);

}  // namespace tutti::schedule
