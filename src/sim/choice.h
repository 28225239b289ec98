// What would be done for a call on a cluster, and what instead: by this library, whose planner's
// choice is asked (CPU ranks) or whose prices decide (GPUs), and by NCCL, whose choice model
// (graph/cost_table.h) is asked. Each way with its simulated time; the two need not agree on which
// is best. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "sim/closed_form.h"

namespace tutti::sim {

struct Choices {
  struct Way {
    std::string name;              // "ring LL128", "NVLS Simple"
    std::optional<Method> method;  // none: nothing here plays that algorithm
    double choiceUs = 0;           // what NCCL's choice model says; 0: not asked
    Estimate estimate;             // when there is a method
  };
  std::vector<Way> ways;  // the chosen first, then the others, the cheapest first
  std::string reason;
};

struct Wanted {
  std::string algorithm{};  // "": choose
  std::string protocol{};   // "LL", "LL128", "Simple"; "": choose
  int32_t channelCount = 0;
};

// kInvalidArgument when nothing of what is wanted exists.
Result<Choices> chooseFor(Estimator& estimator, const SimCall& call, const Timing& timing,
                          const Wanted& wanted = {});

// The chosen way that can be played. Never null: chooseFor() fails where there is none.
const Choices::Way& playedOf(const Choices& choices);

}  // namespace tutti::sim
