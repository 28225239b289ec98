// What a call does with buffers that peers map (ncclMemAlloc), step by step: for `tutti explain`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "schedule/schedule.h"

namespace tutti::tools {

// Of one step of the shown rank.
struct MappedStepFacts {
  size_t step = 0;
  bool namesMemory = false;  // its messages say where the data lies instead of bringing it
  int32_t offersFor = -1;    // the later step whose result's place its message offers; -1: none
  bool isPlaced = false;     // what it waits for may be in its output already
  std::vector<Rank> placesAt = {};  // puts its result into the outputs of these
};

struct MappedFacts {
  bool isAny = false;  // messages are long enough, and of processes of one host
  std::vector<MappedStepFacts> steps = {};  // that do anything of it
};

// `plan` is what the planner of `agreement` makes of the shape, `schedule` the one it takes.
MappedFacts explainMapped(const plan::Agreement& agreement, const plan::CallShape& shape,
                          const plan::Plan& plan, const schedule::Schedule& schedule);

// One line a step.
std::vector<std::string> textOf(const MappedFacts& facts);

}  // namespace tutti::tools
