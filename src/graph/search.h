// Finds a node's graphs: the rings, chains and heads that move most bytes a second over its links.
// First total bandwidth (channels x speed), then closer routes, then fewer channels. Bounded by
// steps, never by time, so that all ranks of a node find the same. Pure, any thread.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "graph/graph.h"
#include "topology/paths.h"
#include "topology/topology.h"

namespace tutti::graph {

enum class CrossNic : uint8_t { kNever, kAlways, kWhereBetter };  // NCCL_CROSS_NIC=0, 1, 2

struct SearchOptions {
  Pattern pattern = Pattern::kRing;  // kBalancedTree: the best of the three trees
  int32_t host = 0;                  // of the topology: a graph stays within a host
  bool betweenNodes = false;         // channels begin and end at network ports
  bool inNetworkOnly = false;        // only ports that can reduce
  CrossNic crossNic = CrossNic::kWhereBetter;
  int32_t mostChannels = 32;
  int64_t stepBudget = 0;  // 0: by the number of GPUs
};

struct FoundGraph {
  NodeGraph graph;              // without channels when there is none
  double boundGbPerSecond = 0;  // no graph of this pattern can carry more
  int64_t steps = 0;            // that the search took
  bool isBest() const { return graph.totalGbPerSecond() >= boundGbPerSecond * .999; }
};

FoundGraph search(const topology::Topology& topology, const topology::Paths& paths,
                  const SearchOptions& options);

// GB/s that one channel moves at most: what a thread block of such a GPU does.
double mostGbPerSecondPerChannel(int32_t smVersion);

}  // namespace tutti::graph
