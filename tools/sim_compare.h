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
// nccl), mode (eager, graph), case (what else sets calls apart) and run (of several measurements of
// one call) are optional, other columns are left alone.
struct Measured {
  sim::System system = sim::System::kTutti;
  sim::Launch launch = sim::Launch::kEager;
  Collective collective = Collective::kAllReduce;
  int32_t ranks = 0;
  uint64_t bytes = 0;
  double us = 0;
  std::string run = "";
  std::string caseName = "";
};
// Errors name file, line and column.
Result<std::vector<Measured>> parseMeasured(std::string_view text, const std::string& source);

// How far off a simulated call may be: what the project wants of its own measurements.
inline constexpr double kWantedError = 0.25;

// A call with all its runs: the median counts.
struct Compared {
  Measured measured;           // us: the median
  std::vector<Measured> runs;  // as they came
  double us = 0;
  std::string way = "";
  double error() const { return us / measured.us - 1; }  // above 0: simulated too slow
  // Of a call of one run: what the line between its neighbours in size says, where both were run
  // several times; 0: unknown.
  double lineUs = 0;
  // By how much the slowest run takes longer than the fastest. One run alone has its neighbours'
  // line beside it.
  double spread() const;
  // What was measured is further apart than the simulation may be from it.
  bool isUnstable() const { return spread() > kWantedError; }
};
Result<std::vector<Compared>> compare(std::span<const Measured> measured,
                                      const std::string& clusterFile);

void printCompared(std::span<const Compared> compared);
void printComparedJson(std::span<const Compared> compared);

}  // namespace tutti::tools
