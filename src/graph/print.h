// Graphs as text that a person can read: what they carry, and channel by channel the GPUs in order.
// Pure, any thread.
#pragma once

#include <string>

#include "graph/search.h"
#include "topology/topology.h"

namespace tutti::graph {

// "ring: 6 channels x 20.0 = 120.0 GB/s (at most 120.0), NVL", then a line for each different
// channel: "  0-5  0 -> 1 -> 2 -> 3 -> 0". GPUs go by rank where they have one, else by device.
std::string print(const topology::Topology& topology, const FoundGraph& found);

}  // namespace tutti::graph
