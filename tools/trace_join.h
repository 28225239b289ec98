// Traces of many ranks (src/observe/trace.h) as one, on one clock.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"

namespace tutti::tools {

// One rank's file.
struct RankTrace {
  std::string path;
  nlohmann::json document;
};

// kInvalidArgument, with the path, unless it is a rank's trace.
Status checkTrace(const RankTrace& trace);

// What is to be added to the times of each clock, in us, to have one time for all; by the clock's
// name. Hosts' wall clocks differ by more than a message takes. So their difference is chosen such
// that the quickest messages take alike each way, as NTP does between two; over a ring, where all
// go one way, such that they take alike at each hop. Wall clocks alone decide between hosts that no
// message connects. REQUIRES: checked traces.
std::map<std::string, double> alignClocks(const std::vector<RankTrace>& traces);

// One trace: each rank a process, by communicator and rank; the first event at 0.
nlohmann::json joinTraces(std::vector<RankTrace> traces,
                          const std::map<std::string, double>& shifts);

}  // namespace tutti::tools
