// What the search finds in one node and what of it travels to the other ranks: the shape in which
// data goes through the node's GPUs, channel by channel, with what each channel carries. Plain
// values.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "topology/paths.h"
#include "topology/topology.h"

namespace tutti::graph {

// How a channel runs through a node. The tree patterns are chains of GPUs and differ in where the
// tree between the nodes is fastened to the chain.
enum class Pattern : uint8_t {
  kRing,          // a circle, or from one port to another
  kTree,          // parent and both children at the first GPU
  kSplitTree,     // parent at the first GPU, both children at the second
  kBalancedTree,  // parent and one child at the first GPU, one child at the second
  kSwitch,        // reduction in the NVLink switch: one GPU a channel is its head (NVLS)
  kDirect,        // in-network reduction: the GPUs next to the ports are heads (CollNet direct)
};

std::string_view nameOf(Pattern pattern);

// One path through the node.
struct Channel {
  std::vector<topology::NodeId> gpus;  // ring or chain, in order; kSwitch, kDirect: the head
                                       // first
  topology::NodeId entry = topology::kNoNode;  // the port where data comes in; none on one node
  topology::NodeId exit = topology::kNoNode;   // the port where it goes out; other than entry only
                                               // with crossNic
  bool operator==(const Channel&) const = default;
};

// A node's share of the ring, of the trees, ... All channels are alike in speed.
struct NodeGraph {
  Pattern pattern = Pattern::kRing;
  double intraGbPerSecond = 0;  // of one channel, between GPUs
  double interGbPerSecond = 0;  // of one channel, to and from the network
  topology::PathKind intraKind = topology::PathKind::kLoc;  // the farthest used
  topology::PathKind interKind = topology::PathKind::kLoc;
  double interLatencyUs = 0;  // of the slowest port used
  bool crossNic = false;      // some channel leaves by another port than it came in by
  bool sameChannels = true;   // all channels take the GPUs in one order
  std::vector<Channel> channels{};

  double totalGbPerSecond() const {
    return intraGbPerSecond * static_cast<double>(channels.size());
  }
  bool operator==(const NodeGraph&) const = default;
};

// What of a graph decides costs, and what all ranks must agree on.
struct GraphSummary {
  Pattern pattern = Pattern::kRing;
  int32_t channelCount = 0;
  double intraGbPerSecond = 0;
  double interGbPerSecond = 0;
  topology::PathKind intraKind = topology::PathKind::kLoc;
  topology::PathKind interKind = topology::PathKind::kLoc;
  double interLatencyUs = 0;
  bool crossNic = false;
  bool sameChannels = true;
  bool operator==(const GraphSummary&) const = default;
};

GraphSummary summarise(const NodeGraph& graph);

// The summary that holds on both of two nodes: fewest channels, slowest speeds, farthest kinds. A
// node without the graph (no channel) leaves none for all. REQUIRES: the same kind of graph.
GraphSummary align(const GraphSummary& one, const GraphSummary& other);

}  // namespace tutti::graph
