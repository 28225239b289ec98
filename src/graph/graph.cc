#include "graph/graph.h"

#include <algorithm>

namespace tutti::graph {
namespace {

topology::PathKind farther(topology::PathKind one, topology::PathKind other) {
  return topology::isCloser(one, other) ? other : one;
}

}  // namespace

std::string_view nameOf(Pattern pattern) {
  switch (pattern) {
    case Pattern::kRing: return "ring";
    case Pattern::kTree: return "tree";
    case Pattern::kSplitTree: return "split tree";
    case Pattern::kBalancedTree: return "balanced tree";
    case Pattern::kSwitch: return "switch";
    case Pattern::kDirect: return "direct";
  }
  return "?";
}

GraphSummary summarise(const NodeGraph& graph) {
  return {.pattern = graph.pattern,
          .channelCount = static_cast<int32_t>(graph.channels.size()),
          .intraGbPerSecond = graph.intraGbPerSecond,
          .interGbPerSecond = graph.interGbPerSecond,
          .intraKind = graph.intraKind,
          .interKind = graph.interKind,
          .interLatencyUs = graph.interLatencyUs,
          .crossNic = graph.crossNic,
          .sameChannels = graph.sameChannels};
}

GraphSummary align(const GraphSummary& one, const GraphSummary& other) {
  // A plain tree asks least of a node, so it is what nodes of different patterns agree on.
  return {.pattern = one.pattern == other.pattern ? one.pattern : Pattern::kTree,
          .channelCount = std::min(one.channelCount, other.channelCount),
          .intraGbPerSecond = std::min(one.intraGbPerSecond, other.intraGbPerSecond),
          .interGbPerSecond = std::min(one.interGbPerSecond, other.interGbPerSecond),
          .intraKind = farther(one.intraKind, other.intraKind),
          .interKind = farther(one.interKind, other.interKind),
          .interLatencyUs = std::max(one.interLatencyUs, other.interLatencyUs),
          .crossNic = one.crossNic || other.crossNic,
          .sameChannels = one.sameChannels && other.sameChannels};
}

}  // namespace tutti::graph
