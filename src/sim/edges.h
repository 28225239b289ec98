// The links of one call's lanes, each with all that goes over it during the call: what closed-form
// times and link loads are made of. Exact, without walking the programs of rings and trees. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/traffic.h"

namespace tutti::sim {

// From one rank to another on a channel, during the whole call.
struct Edge {
  Rank from{0};
  Rank to{0};
  uint64_t bytes = 0;
  uint64_t wireBytes = 0;
  uint64_t messages = 0;
  bool operator==(const Edge&) const = default;
};

// By sender. Edges that carry nothing are left out.
std::vector<Edge> edgesOf(const Traffic& traffic, int32_t channel);

struct LinkLoads {
  std::vector<double> wireBytes;  // by link of the cluster
  uint64_t messages = 0;          // of all ranks
  uint64_t bytes = 0;
  uint64_t mostBytesSent = 0;  // by one rank, data
  double longestFlow = 0;      // wire bytes of one edge, the most
  double mostHopUs = 0;        // the longest latency of the network that an edge meets
};
Result<LinkLoads> loadsOf(const Traffic& traffic);

// The link that takes longest for its load; -1 when there is none.
struct BusiestLink {
  int32_t link = -1;
  double us = 0;
};
BusiestLink busiestOf(const Cluster& cluster, const LinkLoads& loads);

}  // namespace tutti::sim
