// For tests: whether a graph visits every GPU once a channel and fits the links.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "graph/graph.h"
#include "graph/merge.h"
#include "schedule/linked_tree.h"
#include "topology/machines_testing.h"

namespace tutti::graph {

inline constexpr double kRounding = 1e-3;

// What the graph takes of each link, counted anew from its channels.
class Load {
 public:
  Load(const topology::Topology& topology, const topology::Paths& paths)
      : topology_(topology), paths_(paths) {}

  void add(topology::NodeId from, topology::NodeId to, double gbPerSecond) {
    const topology::Path& path = paths_.between(from, to);
    ASSERT_TRUE(isCloser(path.kind, topology::PathKind::kNet));
    for (const topology::LinkId hop : path.hops) load_[hop] += gbPerSecond;
  }
  void addBoth(topology::NodeId one, topology::NodeId other, double gbPerSecond) {
    add(one, other, gbPerSecond);
    add(other, one, gbPerSecond);
  }
  void expectFits() const {
    for (const auto& [link, load] : load_)
      EXPECT_LE(load, topology_[link].gbPerSecond + kRounding) << "link " << topology::index(link);
  }

 private:
  const topology::Topology& topology_;
  const topology::Paths& paths_;
  std::map<topology::LinkId, double> load_;
};

inline void addChannel(Load& load, const NodeGraph& graph, const Channel& channel) {
  const double speed = graph.intraGbPerSecond;
  const bool isRing = graph.pattern == Pattern::kRing;
  for (size_t i = 0; i + 1 < channel.gpus.size(); ++i) {
    if (isRing) {
      load.add(channel.gpus[i], channel.gpus[i + 1], speed);
    } else {
      load.addBoth(channel.gpus[i], channel.gpus[i + 1], speed / 2);
    }
  }
  if (channel.entry == topology::kNoNode) {
    if (isRing && channel.gpus.size() > 1)
      load.add(channel.gpus.back(), channel.gpus.front(), speed);
    return;
  }
  if (isRing) {
    load.add(channel.entry, channel.gpus.front(), speed);
    load.add(channel.gpus.back(), channel.exit, speed);
    return;
  }
  const bool isAlone = channel.gpus.size() == 1;
  const double first = isAlone || graph.pattern == Pattern::kTree ? 1
                       : graph.pattern == Pattern::kSplitTree     ? .5
                                                                  : .75;
  load.addBoth(channel.gpus[0], channel.entry, speed * first);
  if (!isAlone) load.addBoth(channel.gpus[1], channel.entry, speed * (1 - first));
}

inline void expectValid(const topology::Topology& topology, const topology::Paths& paths,
                        const NodeGraph& graph, int32_t host) {
  const std::vector<topology::NodeId> gpus = nodesOf(topology, topology::NodeKind::kGpu, host);
  Load load(topology, paths);
  for (const Channel& channel : graph.channels) {
    EXPECT_EQ(channel.gpus.size(), gpus.size());
    EXPECT_EQ(std::set<topology::NodeId>(channel.gpus.begin(), channel.gpus.end()).size(),
              gpus.size());
    addChannel(load, graph, channel);
  }
  load.expectFits();
}

// All ranks' programs over the trees of one channel.
inline schedule::Schedule treeSchedule(const MergedGraph& merged, int32_t channel) {
  schedule::Schedule schedule{.algorithm = "tree",
                              .collective = Collective::kAllReduce,
                              .rankCount = merged.rankCount(),
                              .chunkCount = merged.rankCount() == 1 ? 1 : merged.treesPerChannel()};
  for (int32_t i = 0; i < merged.rankCount(); ++i) {
    std::vector<schedule::TreeLinks> trees;
    for (int32_t tree = 0; tree < merged.treesPerChannel(); ++tree)
      trees.push_back(merged.treeLinks(channel, tree, Rank{i}));
    schedule.programs.push_back(schedule::linkedTreeAllReduce(trees, merged.rankCount()));
  }
  return schedule;
}

}  // namespace tutti::graph
