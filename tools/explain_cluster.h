// `tutti explain --topo`: a described cluster planned without it: the graphs of its nodes, the
// rings and trees over all ranks, what the reference system would choose for a call there, and what
// this library does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "graph/cluster.h"
#include "graph/cost_table.h"
#include "schedule/schedule.h"
#include "tools/explain_gpu.h"

namespace tutti::tools {

struct ClusterCall {
  Collective collective = Collective::kAllReduce;
  uint64_t bytes = 0;
  Rank root{0};
  Rank rank{0};  // whose program is shown
  std::string topologyFile;
  std::string profileFile;  // completes a skeleton; "": none
  std::string graphFile;    // NCCL_GRAPH_FILE; "": search
  std::string dumpFile;     // NCCL_GRAPH_DUMP_FILE; "": none
  int32_t nodeCount = 0;    // 0: as described
  int32_t rankCount = 0;    // 0: all GPUs; on one node fewer are the first ones
  std::string constants;    // "2.29", "2.12"
};

struct ClusterExplanation {
  ClusterCall call;
  graph::ClusterPlan plan;
  std::vector<graph::MethodChoice> choices;  // the cheapest first
  std::vector<std::pair<uint64_t, graph::MethodChoice>> switches;
  std::optional<OwnGpuWay> own;  // none: through host memory
  std::string outOfReach;        // pairOutOfReach()
  std::string direct;            // of the rank's GPU on one of several nodes: which adapters reach
                                 // its memory, and why not the others
  schedule::Schedule schedule;   // of the chosen method's first channel; no program: it has none
  bool isProved = false;         // tried at all
  std::string refusal;           // of the prover
};

// Errors name the file, or the option and what is allowed.
Result<ClusterExplanation> explainCluster(const ClusterCall& call);

void printText(const ClusterExplanation& explanation);
void printJson(const ClusterExplanation& explanation);

}  // namespace tutti::tools
