// Measured times of `tutti tune` as lines of a file, so that several measurements, of several
// machines too, can be fitted and judged together.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "tools/tune_measure.h"

namespace tutti::tools {

// "threads", "processes", "hosts:2": processes of several hosts.
std::string kindOf(const TuneBlock& block);

// A line each: collective, kind, ranks, CPUs, bytes, rival, us.
Status writeTimes(const std::string& path, const std::vector<TuneTime>& times);
// Lines of algorithms that there are no more are left out. An error names file and line.
Result<std::vector<TuneTime>> readTimes(const std::string& path);

// One time for each rival of each cell: the middle one of those given, of two their mean.
std::vector<TuneTime> mediansOf(const std::vector<TuneTime>& times);

}  // namespace tutti::tools
