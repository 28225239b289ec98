// Another opinion on algorithms than the planner's own: what a tuner plug-in is to the planner.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "graph/nccl_constants.h"
#include "wire/types.h"

namespace tutti::plan {

struct AlgorithmCost {
  std::string_view algorithm;  // of the catalogue
  double us = 0;               // as predicted
  // Of GPU kernels' ways, which are several of one algorithm; CPU ranks have one way.
  graph::Protocol protocol = graph::Protocol::kSimple;
};

// Any thread.
class Tuner {
 public:
  struct Question {
    Collective collective = Collective::kAllReduce;
    uint64_t bytes = 0;                    // of the whole vector
    std::span<const AlgorithmCost> costs;  // of all that may be taken
    std::string_view chosen;               // the planner's own choice, one of these
    graph::Protocol chosenProtocol = graph::Protocol::kSimple;
    bool areKernels = false;  // on GPUs, of which each reaches all others' memory
  };
  struct Advice {
    std::string_view algorithm{};  // of one of the question's costs; empty: no opinion
    graph::Protocol protocol = graph::Protocol::kSimple;  // of the same
    int32_t channels = 0;                                 // thread blocks at most; 0: no opinion
  };
  // The same on every rank, or operations fail.
  virtual Advice advise(const Question& question) = 0;
  virtual std::string_view name() const = 0;
  virtual ~Tuner() = default;
};

}  // namespace tutti::plan
