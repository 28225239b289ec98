// The graph of CPU ranks: hosts as nodes, a host's ranks one NUMA node after the other. Joined by
// the same merge as GPUs' graphs, it gives the order in which ranks are neighbours, so that a ring
// enters each host and each NUMA node once, whatever ranks' numbers are. Pure, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "graph/merge.h"

namespace tutti::graph {

// Where a rank runs.
struct Place {
  uint64_t host = 0;     // equal on one host
  int32_t cpuNode = -1;  // the NUMA node that it is bound to; -1: none
};

// By rank. One channel, rings and trees.
Result<MergedGraph> mergePlaces(std::span<const Place> places);

// The ring's ranks from rank 0 on; empty where that is 0, 1, 2, ...
std::vector<Rank> orderOf(const MergedGraph& merged);

}  // namespace tutti::graph
