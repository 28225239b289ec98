// Another opinion on algorithms than the planner's own: what a tuner plug-in is to the planner.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "wire/types.h"

namespace tutti::plan {

struct AlgorithmCost {
  std::string_view algorithm;  // of the catalogue
  double us = 0;               // as predicted
};

// Any thread.
class Tuner {
 public:
  struct Question {
    Collective collective = Collective::kAllReduce;
    uint64_t bytes = 0;                    // of the whole vector
    std::span<const AlgorithmCost> costs;  // of all that may be taken
    std::string_view chosen;               // the planner's own choice, one of these
  };
  // One of the question's algorithms; empty: no opinion. The same on every rank, or operations
  // fail.
  virtual std::string_view advise(const Question& question) = 0;
  virtual std::string_view name() const = 0;
  virtual ~Tuner() = default;
};

}  // namespace tutti::plan
