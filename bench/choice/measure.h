// The times of one collective on one kind of ranks with the planner's choice and with each
// algorithm forced, in turn within one run, so that whatever else the machine does meets all of
// them alike.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "wire/types.h"

namespace tutti::bench {

struct Block {
  Collective collective = Collective::kAllReduce;
  bool isThreads = false;  // ranks are threads of one process, else a process each
  int32_t rankCount = 2;
  int32_t cpuCount = 1;  // that the ranks may use, all together
  // Above 1 the processes are so many hosts to each other: linked by sockets, each with its part of
  // the CPUs.
  int32_t hostCount = 1;
  auto operator<=>(const Block&) const = default;
};

struct MeasureOptions {
  std::vector<uint64_t> sizes{};  // bytes of the whole vector
  int32_t rounds = 50;
  double batchUs = 500;   // calls that are timed together last about as long
  double quantile = .25;  // which of a cell's times counts
};

inline constexpr std::string_view kChoice = "choice";

struct CellTime {
  Block block{};
  uint64_t bytes = 0;
  std::string_view rival{};  // an algorithm, or kChoice
  double us = 0;             // of the slowest rank
};

// Runs the ranks as children of this process, which itself must not use the library. An error says
// which rank failed.
Result<std::vector<CellTime>> measureBlock(const Block& block, const MeasureOptions& options);

}  // namespace tutti::bench
