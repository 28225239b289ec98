// For tests: whether a graph visits every GPU once a channel and fits the links.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "graph/graph.h"
#include "graph/link_load.h"
#include "graph/merge.h"
#include "schedule/linked_tree.h"
#include "topology/machines_testing.h"

namespace tutti::graph {

inline constexpr double kRounding = 1e-3;

inline void expectValid(const topology::Topology& topology, const topology::Paths& paths,
                        const NodeGraph& graph, int32_t host) {
  const std::vector<topology::NodeId> gpus = nodesOf(topology, topology::NodeKind::kGpu, host);
  LinkLoad load(topology, paths);
  for (const Channel& channel : graph.channels) {
    EXPECT_EQ(channel.gpus.size(), gpus.size());
    EXPECT_EQ(std::set<topology::NodeId>(channel.gpus.begin(), channel.gpus.end()).size(),
              gpus.size());
    load.add(graph, channel);
  }
  const LinkLoad::Busiest busiest = load.busiest();
  if (busiest.share > 0) {
    EXPECT_LE(busiest.gbPerSecond, topology[busiest.link].gbPerSecond + kRounding)
        << "link " << topology::index(busiest.link);
  }
  for (const topology::PathKind each : {graph.intraKind, graph.interKind})
    EXPECT_TRUE(isCloser(each, topology::PathKind::kNet)) << topology::nameOf(each);
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
