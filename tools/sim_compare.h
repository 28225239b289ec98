// `tutti sim compare`: measured times beside simulated ones, with signed errors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "sim/time_constants.h"
#include "wire/types.h"

namespace tutti::tools {

// A line of the CSV: its header names at least collective, ranks, bytes and us; system (tutti,
// nccl), mode (eager, graph) and run (kept together in the report) are optional, others are left
// alone.
struct Measured {
  sim::System system = sim::System::kTutti;
  sim::Launch launch = sim::Launch::kEager;
  Collective collective = Collective::kAllReduce;
  int32_t ranks = 0;
  uint64_t bytes = 0;
  double us = 0;
  std::string run = "";
};
// Errors name file, line and column.
Result<std::vector<Measured>> parseMeasured(std::string_view text, const std::string& source);

struct Compared {
  Measured measured;
  double us = 0;
  std::string way;
  double error() const { return us / measured.us - 1; }  // above 0: simulated too slow
};
Result<std::vector<Compared>> compare(std::span<const Measured> measured,
                                      const std::string& clusterFile);

void printCompared(std::span<const Compared> compared);
void printComparedJson(std::span<const Compared> compared);

}  // namespace tutti::tools
