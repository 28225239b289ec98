#include "graph/print.h"

#include <fmt/core.h>

#include <vector>

namespace tutti::graph {
namespace {

using topology::NodeId;
using topology::Topology;

std::string gpuName(const Topology& topology, NodeId gpu) {
  const topology::Node& node = topology[gpu];
  return std::to_string(node.gpu.rank >= 0 ? node.gpu.rank : node.number);
}

std::string printRing(const Topology& topology, const Channel& channel) {
  std::string text;
  for (const NodeId gpu : channel.gpus)
    text += (text.empty() ? "" : " -> ") + gpuName(topology, gpu);
  if (channel.entry == topology::kNoNode) return text + " -> " + gpuName(topology, channel.gpus[0]);
  return fmt::format("[{}] -> {} -> [{}]", topology[channel.entry].name, text,
                     topology[channel.exit].name);
}

// Where the tree between the nodes is fastened.
std::string_view fastening(Pattern pattern) {
  switch (pattern) {
    case Pattern::kTree: return ", parent and children at the first GPU";
    case Pattern::kSplitTree: return ", parent at the first GPU, children at the second";
    case Pattern::kBalancedTree:
      return ", parent and one child at the first GPU, one child at the second";
    case Pattern::kRing:
    case Pattern::kSwitch:
    case Pattern::kDirect: break;
  }
  return "";
}

std::string printChain(const Topology& topology, const Channel& channel) {
  std::string text;
  for (const NodeId gpu : channel.gpus)
    text += (text.empty() ? "" : " - ") + gpuName(topology, gpu);
  if (channel.entry == topology::kNoNode) return text;
  return fmt::format("[{}] - {}", topology[channel.entry].name, text);
}

std::string printChannel(const Topology& topology, const NodeGraph& graph, const Channel& channel) {
  switch (graph.pattern) {
    case Pattern::kRing: return printRing(topology, channel);
    case Pattern::kTree:
    case Pattern::kSplitTree:
    case Pattern::kBalancedTree: return printChain(topology, channel);
    case Pattern::kSwitch: return "head " + gpuName(topology, channel.gpus[0]);
    case Pattern::kDirect:
      return fmt::format("head {} at [{}]", gpuName(topology, channel.gpus[0]),
                         topology[channel.entry].name);
  }
  return "";
}

}  // namespace

std::string print(const Topology& topology, const FoundGraph& found) {
  const NodeGraph& graph = found.graph;
  if (graph.channels.empty()) return fmt::format("{}: none\n", nameOf(graph.pattern));
  std::string text = fmt::format(
      "{}: {} channel{} x {:.2f} = {:.1f} GB/s (at most {:.1f}), {}", nameOf(graph.pattern),
      graph.channels.size(), graph.channels.size() > 1 ? "s" : "", graph.intraGbPerSecond,
      graph.totalGbPerSecond(), found.boundGbPerSecond, topology::nameOf(graph.intraKind));
  const bool hasPorts = graph.channels.front().entry != topology::kNoNode;
  if (hasPorts) {
    text += fmt::format(", ports {}", topology::nameOf(graph.interKind));
    if (graph.channels.front().gpus.size() > 1) text += fastening(graph.pattern);
  }
  text += graph.crossNic ? ", leaving by another port\n" : "\n";
  for (size_t first = 0; first < graph.channels.size();) {
    size_t last = first;
    while (last + 1 < graph.channels.size() && graph.channels[last + 1] == graph.channels[first])
      ++last;
    const std::string numbers =
        first == last ? std::to_string(first) : fmt::format("{}-{}", first, last);
    text +=
        fmt::format("  {:>5}  {}\n", numbers, printChannel(topology, graph, graph.channels[first]));
    first = last + 1;
  }
  return text;
}

std::string drawRing(const MergedGraph& merged, int32_t channel) {
  constexpr size_t kMostShown = 32;
  const std::span<const Rank> ring = merged.ring(channel);
  std::string text;
  for (size_t i = 0; i < ring.size(); ++i) {
    if (ring.size() > kMostShown && i == kMostShown / 2) {
      text += fmt::format("... ({} more) -> ", ring.size() - kMostShown);
      i = ring.size() - kMostShown / 2;
    }
    text += fmt::format("{} -> ", index(ring[i]));
  }
  return text + std::to_string(index(ring.front()));
}

namespace {

class TreeDrawing {
 public:
  TreeDrawing(const MergedGraph& merged, const TreeToDraw& what) : merged_(merged), what_(what) {}

  std::string draw() {
    for (int32_t i = 0; i < merged_.rankCount(); ++i) {
      if (links(Rank{i}).up == schedule::kNobody) {
        addNode(Rank{i}, schedule::kNobody, 0);
        break;
      }
    }
    if (nodes_ > what_.mostNodes)
      text_ += fmt::format("  ... {} more nodes\n", merged_.nodeCount() - what_.mostNodes);
    return std::move(text_);
  }

 private:
  schedule::TreeLinks links(Rank rank) const {
    return merged_.treeLinks(what_.channel, what_.tree, rank);
  }
  bool isInside(Rank rank, int32_t node) const {
    return rank != schedule::kNobody && merged_.nodeOf(rank) == node;
  }

  // Depth is that of the tree between nodes: the logarithm of their number.
  void addNode(Rank first, Rank parent, size_t depth) {
    if (++nodes_ > what_.mostNodes) return;
    const int32_t node = merged_.nodeOf(first);
    std::vector<Rank> chain{first};
    // The chain's next GPU is the first child of each.
    while (isInside(links(chain.back()).down[0], node))
      chain.push_back(links(chain.back()).down[0]);
    text_.append(2 * (depth + 1), ' ');
    if (parent != schedule::kNobody) text_ += fmt::format("under {}: ", index(parent));
    if (merged_.nodeCount() > 1) text_ += fmt::format("node {}: ", node);
    for (size_t i = 0; i < chain.size(); ++i)
      text_ += fmt::format("{}{}", i == 0 ? "" : " - ", index(chain[i]));
    text_ += '\n';
    for (const Rank each : chain) {
      for (const Rank child : links(each).down) {
        if (child != schedule::kNobody && !isInside(child, node)) addNode(child, each, depth + 1);
      }
    }
  }

  const MergedGraph& merged_;
  const TreeToDraw& what_;
  std::string text_;
  int32_t nodes_ = 0;
};

}  // namespace

std::string drawTree(const MergedGraph& merged, const TreeToDraw& what) {
  return TreeDrawing(merged, what).draw();
}

}  // namespace tutti::graph
