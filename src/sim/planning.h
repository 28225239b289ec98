// The cluster's graphs, found as its ranks would find them together, but without asking each: a
// search a kind of node, and a merge over all nodes. Pure.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/status.h"
#include "graph/cluster.h"
#include "sim/cluster.h"

namespace tutti::sim {

// Where the ring channels of a GPU enter and leave the node: channel and port.
struct RingPorts {
  std::vector<std::pair<int32_t, topology::NodeId>> exits;
  std::vector<std::pair<int32_t, topology::NodeId>> entries;
};

struct VirtualPlan {
  std::vector<graph::HostGraphs> kinds;           // by kind of node; none for CPU ranks
  graph::ClusterGraphs graphs;                    // what holds on all nodes
  graph::MergedGraph merged;                      // over all ranks; no ring for CPU ranks
  std::vector<std::vector<RingPorts>> ringPorts;  // by kind, then GPU
  // Of CPU ranks, as in plan::Agreement: the host of each, ranks by place, and hosts where each
  // holds as many.
  std::vector<int32_t> hostOf;
  std::vector<Rank> order;
  int32_t evenHostCount = 1;
};

Result<VirtualPlan> planVirtual(const Cluster& cluster);

// The ends of a flow of this channel, by the ports that the channel's ring uses where it has some.
FlowEnds endsOf(const Cluster& cluster, const VirtualPlan& plan, int32_t channel,
                std::pair<Rank, Rank> fromTo);

}  // namespace tutti::sim
