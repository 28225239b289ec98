// `tutti sim`: the cells of a sweep, each a call on a cluster of so many nodes, simulated on
// several threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "sim/choice.h"
#include "sim/simulate.h"

namespace tutti::tools {

struct SimSweep {
  std::string clusterFile;
  Collective collective = Collective::kAllReduce;
  DataType type = DataType::kFloat32;
  Rank root{0};
  int32_t rankCount = 0;  // 0: as nodes say
  std::vector<uint64_t> sizes{};
  std::vector<int32_t> nodeCounts{};      // 0: as the file says
  std::vector<std::string> algorithms{};  // "": the choice
  std::string protocol{};
  int32_t channelCount = 0;
  sim::Fidelity fidelity = sim::Fidelity::kClosed;
  sim::Timing timing{};
  std::vector<std::pair<std::string, double>> links{};   // what if: name, factor
  std::vector<std::pair<int32_t, double>> stragglers{};  // rank, factor
  int32_t threadCount = 1;
};

struct SimRow {
  int32_t nodeCount = 0;
  int32_t rankCount = 0;
  uint64_t bytes = 0;
  sim::Choices choices;
  double us = 0;       // by the fidelity asked for
  double busGb = 0;    // GB/s
  std::string limit;   // what it is bound by: a link's name, or the ranks themselves
  int64_t events = 0;  // 0: closed form
  size_t laneClasses = 0;
  int64_t laneCount = 0;
};

// The loads of one row's links and one rank's time line, for pictures and exports.
struct SimDetail {
  std::string clusterName;
  std::string way;
  uint64_t bytes = 0;
  int32_t rankCount = 0;
  struct Load {
    std::string link;
    double bytes = 0;
    double us = 0;
  };
  std::vector<Load> loads;  // the busiest first
  size_t linkCount = 0;     // that carry something
  Rank rank{0};
  uint64_t drawnMessages = 0;       // of all ranks, in the call that the time line is of
  std::vector<sim::Span> timeline;  // none where the messages are too many
  double us = 0;
};

// The call of a sweep's cell.
sim::SimCall callOf(const SimSweep& sweep, uint64_t bytes, int32_t rankCount);
// The cluster of a file, with what the sweep supposes.
Result<sim::Cluster> readCluster(const SimSweep& sweep, int32_t nodeCount);

// In the order of node counts, algorithms, sizes. `tell` hears how many of how many are done, from
// one thread at a time.
using TellProgress = std::function<void(size_t done, size_t all)>;
Result<std::vector<SimRow>> runSweep(const SimSweep& sweep, const TellProgress& tell);

Result<SimDetail> detailOf(const SimSweep& sweep, const SimRow& row);

}  // namespace tutti::tools
