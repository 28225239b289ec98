#include "graph/merge.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "graph/node_tree.h"

namespace tutti::graph {

using schedule::kNobody;
using schedule::TreeLinks;

class Merger {
 public:
  explicit Merger(std::vector<NodePart> parts) : parts_(std::move(parts)) {
    std::ranges::sort(parts_, {}, [](const NodePart& part) {
      return part.ranks.empty() ? -1 : index(part.ranks.front());
    });
  }

  Result<MergedGraph> run(const MergeOptions& options) {
    TUTTI_TRY(numberNodes());
    TUTTI_TRY(joinRings());
    TUTTI_TRY(takeChains());
    TUTTI_TRY(takeHeads(options));
    return std::move(merged_);
  }

 private:
  Status numberNodes() {
    size_t rankCount = 0;
    for (const NodePart& part : parts_) rankCount += part.ranks.size();
    merged_.nodeOf_.assign(rankCount, -1);
    merged_.localRank_.assign(rankCount, -1);
    seenBy_.assign(rankCount, -1);
    for (size_t node = 0; node < parts_.size(); ++node) {
      const std::vector<Rank>& ranks = parts_[node].ranks;
      if (ranks.empty()) return invalidArgument("merge: node {} has no rank", node);
      for (size_t local = 0; local < ranks.size(); ++local) {
        const auto rank = static_cast<size_t>(index(ranks[local]));
        if (index(ranks[local]) < 0 || rank >= rankCount) {
          return invalidArgument("merge: node {} has rank {}, ranks are 0 to {}", node,
                                 index(ranks[local]), rankCount - 1);
        }
        if (merged_.nodeOf_[rank] >= 0) {
          return invalidArgument("merge: rank {} is on node {} and on node {}", rank,
                                 merged_.nodeOf_[rank], node);
        }
        merged_.nodeOf_[rank] = static_cast<int32_t>(node);
        merged_.localRank_[rank] = static_cast<int32_t>(local);
      }
      merged_.ranksOf_.push_back(ranks);
    }
    return {};
  }

  // That `order` holds each of the node's ranks once.
  Status checkOrder(const char* what, size_t node, size_t channel, std::span<const Rank> order) {
    ++pass_;
    for (const Rank rank : order) {
      const auto i = static_cast<size_t>(index(rank));
      if (i >= seenBy_.size() || merged_.nodeOf_[i] != static_cast<int32_t>(node)) {
        return invalidArgument("merge: channel {} of node {}'s {} has rank {} of another node",
                               channel, node, what, index(rank));
      }
      if (std::exchange(seenBy_[i], pass_) == pass_) {
        return invalidArgument("merge: channel {} of node {}'s {} visits rank {} twice", channel,
                               node, what, index(rank));
      }
    }
    if (order.size() == parts_[node].ranks.size()) return {};
    const auto missing = std::ranges::find_if(parts_[node].ranks, [&](Rank rank) {
      return seenBy_[static_cast<size_t>(index(rank))] != pass_;
    });
    return invalidArgument("merge: channel {} of node {}'s {} leaves out rank {}", channel, node,
                           what, index(*missing));
  }

  template <typename Of>
  size_t fewestChannels(Of channelsOf) const {
    size_t fewest = parts_.empty() ? 0 : channelsOf(parts_.front());
    for (const NodePart& part : parts_) fewest = std::min(fewest, channelsOf(part));
    return fewest;
  }

  // The node's free channel that comes in on the rail where the ring left the node before, so that
  // it does not cross to another rail of the network.
  static size_t pickChannel(const NodePart& part, const std::vector<bool>& isTaken, int32_t rail) {
    size_t first = part.rings.size();
    for (size_t i = 0; i < part.rings.size(); ++i) {
      if (isTaken[i]) continue;
      if (part.rings[i].entryRail == rail) return i;
      if (first == part.rings.size()) first = i;
    }
    return first;
  }

  Status joinRings() {
    const size_t channels = fewestChannels([](const NodePart& part) { return part.rings.size(); });
    merged_.rings_.resize(channels);
    for (auto& ring : merged_.rings_) ring.reserve(merged_.nodeOf_.size());
    std::vector<int32_t> rails(channels, kAnyRail);
    for (size_t node = 0; node < parts_.size(); ++node) {
      const NodePart& part = parts_[node];
      std::vector<bool> isTaken(part.rings.size(), false);
      for (size_t channel = 0; channel < channels; ++channel) {
        // The first node sets the rails: its channels in their order.
        const size_t own = node == 0 ? channel : pickChannel(part, isTaken, rails[channel]);
        isTaken[own] = true;
        const RingPart& ring = part.rings[own];
        TUTTI_TRY(checkOrder("ring", node, own, ring.order));
        std::vector<Rank>& joined = merged_.rings_[channel];
        joined.insert(joined.end(), ring.order.begin(), ring.order.end());
        rails[channel] = ring.exitRail;
      }
    }
    return {};
  }

  Status takeChains() {
    merged_.treeChannels_ = fewestChannels([](const NodePart& part) { return part.chains.size(); });
    for (size_t node = 0; node < parts_.size(); ++node) {
      NodePart& part = parts_[node];
      for (size_t channel = 0; channel < merged_.treeChannels_; ++channel)
        TUTTI_TRY(checkOrder("tree", node, channel, part.chains[channel]));
      merged_.treePatterns_.push_back(part.treePattern);
      merged_.chains_.push_back(std::move(part.chains));
    }
    return {};
  }

  Status takeHeads(const MergeOptions& options) {
    const size_t channels = fewestChannels([](const NodePart& part) { return part.heads.size(); });
    const bool isTooBig = std::ranges::any_of(parts_, [&](const NodePart& part) {
      return part.ranks.size() > static_cast<size_t>(options.mostRanksANodeForHeads);
    });
    if (isTooBig || parts_.size() < static_cast<size_t>(options.leastNodesForHeads)) return {};
    merged_.heads_.resize(channels);
    for (size_t channel = 0; channel < channels; ++channel) {
      for (size_t node = 0; node < parts_.size(); ++node) {
        const Rank head = parts_[node].heads[channel];
        const auto i = static_cast<size_t>(index(head));
        if (i >= merged_.nodeOf_.size() || merged_.nodeOf_[i] != static_cast<int32_t>(node)) {
          return invalidArgument("merge: channel {} of node {} has rank {} of another node as head",
                                 channel, node, index(head));
        }
        merged_.heads_[channel].push_back(head);
      }
    }
    return {};
  }

  std::vector<NodePart> parts_;
  MergedGraph merged_;
  std::vector<int64_t> seenBy_;  // by rank: the last pass that met it
  int64_t pass_ = 0;
};

Result<MergedGraph> merge(std::vector<NodePart> parts, const MergeOptions& options) {
  if (parts.empty()) return invalidArgument("merge: no node");
  return Merger(std::move(parts)).run(options);
}

// The rank of a node that holds its end of a link between nodes.
Rank MergedGraph::treePort(int32_t channel, int32_t node, bool isParentSide,
                           int32_t childIndex) const {
  const std::vector<Rank>& gpus = chain(channel, node);
  // A node's link up is always at the chain's first GPU.
  if (!isParentSide || gpus.size() == 1) return gpus[0];
  switch (treePatterns_[static_cast<size_t>(node)]) {
    case Pattern::kSplitTree: return gpus[1];
    case Pattern::kBalancedTree: return gpus[childIndex == 0 ? 0 : 1];
    case Pattern::kRing:
    case Pattern::kTree:
    case Pattern::kSwitch:
    case Pattern::kDirect: break;
  }
  return gpus[0];
}

TreeLinks MergedGraph::treeLinks(int32_t channel, int32_t tree, Rank rank) const {
  const int32_t node = nodeOf(rank);
  const std::vector<Rank>& gpus = chain(channel, node);
  const auto at = static_cast<size_t>(std::ranges::find(gpus, rank) - gpus.begin());
  TreeLinks links;
  size_t childCount = 0;
  if (at > 0) links.up = gpus[at - 1];
  if (at + 1 < gpus.size()) links.down[childCount++] = gpus[at + 1];
  if (nodeCount() == 1) return links;

  const NodePlace place = placeInTree(tree, node, nodeCount());
  if (at == 0 && place.parent != kNoTreeNode)
    links.up = treePort(channel, place.parent, true, place.childIndex);
  for (int32_t i = 0; i < 2; ++i) {
    const int32_t child = place.children[static_cast<size_t>(i)];
    if (child == kNoTreeNode || treePort(channel, node, true, i) != rank) continue;
    links.down[childCount++] = treePort(channel, child, false, 0);
  }
  return links;
}

namespace {

int32_t railOf(const topology::Topology& topology, topology::NodeId port) {
  if (port == topology::kNoNode) return kAnyRail;
  const topology::Node& node = topology[port];
  return node.net.rail >= 0 ? node.net.rail : node.number;
}

std::vector<Rank> ranksOf(const topology::Topology& topology,
                          const std::vector<topology::NodeId>& gpus, int32_t firstRank) {
  std::vector<Rank> ranks;
  for (const topology::NodeId gpu : gpus) ranks.push_back(Rank{firstRank + topology[gpu].gpu.rank});
  return ranks;
}

}  // namespace

NodePart makePart(const topology::Topology& topology, const NodeGraphs& graphs,
                  const PartPlace& place) {
  NodePart part;
  part.ranks =
      ranksOf(topology, nodesOf(topology, topology::NodeKind::kGpu, place.host), place.firstRank);
  std::ranges::sort(part.ranks);
  for (const Channel& channel : graphs.ring.channels) {
    part.rings.push_back({.order = ranksOf(topology, channel.gpus, place.firstRank),
                          .entryRail = railOf(topology, channel.entry),
                          .exitRail = railOf(topology, channel.exit)});
  }
  for (const Channel& channel : graphs.tree.channels)
    part.chains.push_back(ranksOf(topology, channel.gpus, place.firstRank));
  part.treePattern = graphs.tree.pattern;
  for (const Channel& channel : graphs.direct.channels)
    part.heads.push_back(ranksOf(topology, channel.gpus, place.firstRank).front());
  return part;
}

}  // namespace tutti::graph
