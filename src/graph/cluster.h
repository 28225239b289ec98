// A whole cluster planned from its description, as its ranks would together: graphs of every node,
// what holds on all of them, and the rings and trees over all ranks. Pure, any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "graph/cost_table.h"
#include "graph/merge.h"
#include "graph/search.h"
#include "topology/paths.h"
#include "topology/topology.h"

namespace tutti::graph {

struct ClusterOptions {
  int32_t nodeCount = 0;  // the described hosts, over and over; 0: each once
  CrossNic crossNic = CrossNic::kWhereBetter;
  int32_t mostChannels = 32;
  std::vector<NodeGraph> given{};  // of every host, instead of a search: NCCL_GRAPH_FILE
};

struct HostGraphs {
  int32_t host = 0;  // of the topology
  FoundGraph ring{};
  FoundGraph tree{};
  FoundGraph switched{};
  FoundGraph direct{};
};

struct ClusterPlan {
  topology::Topology topology;    // the described one, its GPUs ranked as below
  std::vector<HostGraphs> hosts;  // that have GPUs
  ClusterGraphs graphs;
  MergedGraph merged;
};

// Ranks go by node, then by GPU. kInvalidArgument when no host has a GPU, or when hosts without a
// network port would have to be joined.
Result<ClusterPlan> planCluster(const topology::Topology& topology, const topology::Paths& paths,
                                const ClusterOptions& options = {});

}  // namespace tutti::graph
