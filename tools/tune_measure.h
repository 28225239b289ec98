// The measurements behind `tutti tune`: every algorithm of a collective, forced, by `tutti perf` in
// processes of its own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "wire/types.h"

namespace tutti::tools {

struct TuneOptions {
  std::vector<std::string> collectives{};  // none: all that have a choice
  std::vector<int32_t> rankCounts{2, 4, 8};
  int32_t rounds = 3;       // of everything, one after the other; the least time counts
  double minSeconds = .01;  // that each time fills
  uint64_t maxBytes = 4 << 20;
  int32_t stepFactor = 8;
  std::string outputPath = "-";
};

struct TuneTime {
  Collective collective = Collective::kAllReduce;
  bool isThreads = false;  // ranks are threads of one process, else processes
  int32_t rankCount = 1;
  uint64_t bytes = 0;  // of the whole vector
  std::string_view algorithm{};
  double us = 0;
};

// The collectives that have more than one algorithm, of those asked for. kInvalidArgument names
// what is none.
Result<std::vector<Collective>> collectivesToTune(const TuneOptions& options);

Result<std::vector<TuneTime>> measure(const TuneOptions& options);

}  // namespace tutti::tools
