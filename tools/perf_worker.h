// One process of a measurement: its ranks as threads, a time limit, an exit code.
#pragma once

#include "tools/perf_rank.h"

namespace tutti::tools {

// Runs the ranks firstRank .. firstRank + options.threads - 1 and returns the process's exit code
// (command.h), having said on standard error what went wrong. After a failure or at the time limit
// the process ends here, since its other ranks may be waiting inside the library.
int runWorker(const RankContext& context, int firstRank);

}  // namespace tutti::tools
