// From the nodes' graphs to the communicator's: rings joined tail to head into circles that visit
// every rank once, double binary trees over the nodes with chains inside, heads for reduction in
// the network. Nodes may differ in size. Memory and time are linear in ranks x channels. Pure, any
// thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "graph/graph.h"
#include "schedule/linked_tree.h"

namespace tutti::graph {

// Rail of a channel's end when the node does not say; meets every other.
inline constexpr int32_t kAnyRail = -1;

// What a node says of its own graphs, with ranks instead of GPUs.
struct RingPart {
  std::vector<Rank> order{};     // the first receives from the node before, the last sends on
  int32_t entryRail = kAnyRail;  // of the port where it comes in
  int32_t exitRail = kAnyRail;   // of the port where it goes out
};
struct NodePart {
  std::vector<Rank> ranks{};                // all of the node's, ascending
  std::vector<RingPart> rings{};            // by channel
  std::vector<std::vector<Rank>> chains{};  // of the trees, by channel
  Pattern treePattern = Pattern::kTree;     // where trees are fastened to the chains
  std::vector<Rank> heads{};                // in-network reduction, by channel; empty: none
};

struct NodeGraphs {
  NodeGraph ring;
  NodeGraph tree;
  NodeGraph direct;
};
// The part of a host from its graphs, its GPUs' ranks counted from `firstRank`. REQUIRES: every GPU
// of the host has a rank.
struct PartPlace {
  int32_t host = topology::kAllHosts;
  int32_t firstRank = 0;
};
NodePart makePart(const topology::Topology& topology, const NodeGraphs& graphs,
                  const PartPlace& place = {});

class MergedGraph {
 public:
  int32_t rankCount() const { return static_cast<int32_t>(nodeOf_.size()); }
  int32_t nodeCount() const { return static_cast<int32_t>(ranksOf_.size()); }
  // Nodes are numbered by their first rank.
  int32_t nodeOf(Rank rank) const { return nodeOf_[static_cast<size_t>(index(rank))]; }
  int32_t localRank(Rank rank) const { return localRank_[static_cast<size_t>(index(rank))]; }
  std::span<const Rank> ranksOf(int32_t node) const { return ranksOf_[static_cast<size_t>(node)]; }

  int32_t ringCount() const { return static_cast<int32_t>(rings_.size()); }
  // order[i] sends to order[i + 1], the last to the first.
  std::span<const Rank> ring(int32_t channel) const { return rings_[static_cast<size_t>(channel)]; }

  // Channels of the trees. On one node a channel has one tree, its chain, otherwise two, each for
  // half of the channel's data.
  int32_t treeChannelCount() const { return static_cast<int32_t>(treeChannels_); }
  int32_t treesPerChannel() const { return nodeCount() == 1 ? 1 : 2; }
  schedule::TreeLinks treeLinks(int32_t channel, int32_t tree, Rank rank) const;

  // By channel, then node; empty unless every node has heads and in-network reduction pays.
  const std::vector<std::vector<Rank>>& heads() const { return heads_; }

 private:
  friend class Merger;
  const std::vector<Rank>& chain(int32_t channel, int32_t node) const {
    return chains_[static_cast<size_t>(node)][static_cast<size_t>(channel)];
  }
  Rank treePort(int32_t channel, int32_t node, bool isParentSide, int32_t childIndex) const;

  std::vector<int32_t> nodeOf_;
  std::vector<int32_t> localRank_;
  std::vector<std::vector<Rank>> ranksOf_;
  std::vector<std::vector<Rank>> rings_;
  std::vector<std::vector<std::vector<Rank>>> chains_;  // [node][channel]
  size_t treeChannels_ = 0;
  std::vector<Pattern> treePatterns_;  // by node
  std::vector<std::vector<Rank>> heads_;
};

struct MergeOptions {
  int32_t leastNodesForHeads = 2;  // NCCL_COLLNET_NODE_THRESHOLD
  int32_t mostRanksANodeForHeads = 8;
};

// kInvalidArgument, naming rank and node, when the parts do not make up ranks 0 to n - 1, or when a
// node's ring or chain leaves out or repeats one of its ranks.
Result<MergedGraph> merge(std::vector<NodePart> parts, const MergeOptions& options = {});

}  // namespace tutti::graph
