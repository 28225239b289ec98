// Prices fitted to what `tutti tune` measured, and how well they choose.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "plan/device_constants.h"
#include "plan/tuning.h"
#include "tools/tune_measure.h"

namespace tutti::tools {

// CPU ranks' prices to the times of one host, where there are some; then the sockets' to what those
// of several hosts take beside.
plan::Tuning fitTo(const std::vector<TuneTime>& times, const plan::Origin& origin);

// Of how many cells, each a collective on one kind and number of ranks with one size, the right
// algorithm was taken: one within 10 % of the best that was forced.
struct TuneScore {
  int cells = 0;
  int asItRan = 0;  // by the ranks that chose
  // That, or no slower than the best forced algorithm in its own slowest repeat, of which at most
  // 25 % over its median count: what differs less than one algorithm from itself is no choice.
  int asItRanOrSpread = 0;
  int byFitted = 0;  // the algorithm that the fitted prices name, by its own time
  int byBuiltIn = 0;
};

// A cell where the choice, as it ran, was not good.
struct TuneMiss {
  TuneBlock block{};
  uint64_t bytes = 0;
  double choiceUs = 0;
  std::string_view best{};
  double bestUs = 0;
};

struct TuneJudgement {
  std::map<std::string, TuneScore> scores{};  // by collective, by ranks; "all"
  std::vector<TuneMiss> misses{};
};
// Of each rival of each cell the median of its times counts.
TuneJudgement judge(const std::vector<TuneTime>& times, const plan::Tuning& fitted);

}  // namespace tutti::tools
