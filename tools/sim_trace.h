// `tutti sim --trace`: a program's steps on a described cluster.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "sim/trace.h"
#include "tools/sim_run.h"

namespace tutti::tools {

struct TraceReport {
  std::string source;
  std::string clusterFile;
  sim::Timing timing{};
  int32_t rankCount = 0;
  sim::Trace trace;
  sim::TraceTimes times;

  // Calls that are alike: how many, and what each takes on average.
  struct Calls {
    std::string group;  // "NAME +7": and seven others that do the same
    int32_t groupSize = 0;
    std::string call;
    std::string way;
    uint64_t bytes = 0;
    int64_t count = 0;   // of all ranks
    double us = 0;       // of one
    double aloneUs = 0;  // what it would take with nothing else on its links
    double waitUs = 0;   // for the others to come
  };
  std::vector<Calls> calls;           // those that take most first
  std::vector<sim::RankTimes> ranks;  // by rank
  std::string busiestLink;            // "": nothing was moved
  double busiestShare = 0;            // of the time, if it went at its full speed
};

// `file`: ours, or, ending in ".0.et", Chakra's with a file a rank. `groups`: a trace file that
// says which ranks Chakra's groups have; "": none. The cluster is the sweep's.
Result<TraceReport> runTrace(const SimSweep& sweep, const std::string& file,
                             const std::string& groups);

void printTrace(const TraceReport& report);
void printTraceJson(const TraceReport& report, Rank rank);
std::string tracePage(const TraceReport& report, Rank rank, const std::string& commandLine);

}  // namespace tutti::tools
