// The measurements behind `tutti tune`: the times of one collective on one kind of ranks with the
// planner's choice and with each algorithm forced, in turn within one run, so that whatever else
// the machine does meets all of them alike.
#pragma once

#include <compare>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "wire/types.h"

namespace tutti::tools {

struct TuneBlock {
  Collective collective = Collective::kAllReduce;
  bool isThreads = false;  // ranks are threads of one process, else a process each
  int32_t rankCount = 2;
  int32_t cpuCount = 1;  // that the ranks may use, all together
  // Above 1 the processes are so many hosts to each other: linked by sockets, each with its part of
  // the CPUs.
  int32_t hostCount = 1;
  auto operator<=>(const TuneBlock&) const = default;
};

struct TuneOptions {
  std::vector<uint64_t> sizes{64, 512, 4096, 32768, 65536, 262144, 2097152};  // whole vectors
  int32_t rounds = 8;
  double batchUs = 1500;  // calls that are timed together last about as long
  double quantile = .25;  // which of a cell's rounds counts
};

inline constexpr std::string_view kChoice = "choice";

struct TuneTime {
  TuneBlock block{};
  uint64_t bytes = 0;
  std::string_view rival{};  // an algorithm of the catalogue, or kChoice
  double us = 0;             // of the slowest rank
};

// Runs the ranks as children of this process, on CPUs even where there are GPUs; the process itself
// must not have used the library. NCCL_ALGO does not count, other settings do. An error says which
// rank failed, or that a signal asked for the end. Signals of blockSignals() must be blocked.
Result<std::vector<TuneTime>> measureBlock(const TuneBlock& block, const TuneOptions& options);

}  // namespace tutti::tools
