// Graphs as text that a person can read: what they carry, and channel by channel the GPUs in order.
// Pure, any thread.
#pragma once

#include <cstdint>
#include <string>

#include "graph/merge.h"
#include "graph/search.h"
#include "topology/topology.h"

namespace tutti::graph {

// "ring: 6 channels x 20.0 = 120.0 GB/s (at most 120.0), NVL", then a line for each different
// channel: "  0-5  0 -> 1 -> 2 -> 3 -> 0". GPUs go by rank where they have one, else by device.
std::string print(const topology::Topology& topology, const FoundGraph& found);

// The ring over all ranks, "0 -> 1 -> ... -> 0"; of long ones both ends.
std::string drawRing(const MergedGraph& merged, int32_t channel);
// One tree of a channel: a line for each node with its chain, below the GPU where it is fastened;
// no more than `mostNodes` lines.
struct TreeToDraw {
  int32_t channel = 0;
  int32_t tree = 0;
  int32_t mostNodes = 32;
};
std::string drawTree(const MergedGraph& merged, const TreeToDraw& what);

}  // namespace tutti::graph
