#include "sim/cluster.h"

#include <gmock/gmock.h>

#include <set>

#include "sim/clusters_testing.h"

namespace tutti::sim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> namesOf(const Cluster& cluster, const FlowEnds& ends) {
  Result<FlowRoute> route = cluster.route(ends);
  EXPECT_TRUE(route.ok());
  std::vector<std::string> names;
  for (const int32_t link : route->links) names.push_back(cluster.nameOfLink(link));
  return names;
}

std::string fourNodes(const std::string& network) {
  return "nodes: [{count: 4, machine: {gpus: 2, sm: 90, nvswitch_links: 18, ports: 2, sockets: 1, "
         "port_gbps: 400}}]\nnetwork: " +
         network;
}

TEST(Cluster, RoutesInsideANodeOverTheNvSwitch) {
  const Cluster cluster = clusterOf(fourNodes("{}"));
  EXPECT_THAT(namesOf(cluster, {.from = Rank{2}, .to = Rank{3}}),
              ElementsAre("node 1: GPU 0 -> NVSwitch", "node 1: NVSwitch -> GPU 1"));
}

TEST(Cluster, RailsKeepToTheirLeaf) {
  const Cluster cluster = clusterOf(fourNodes("{shape: rails, nodes_per_leaf: 4}"));
  const auto names = namesOf(cluster, {.from = Rank{1}, .to = Rank{7}});
  EXPECT_THAT(names, testing::Contains("node 0 port 1 -> leaf 1"));
  EXPECT_THAT(names, testing::Contains("leaf 1 -> node 3 port 1"));
  EXPECT_THAT(names, testing::Not(testing::Contains(HasSubstr("spine"))));
}

// What every route must be, whatever the network: from the sender's node to the receiver's, each
// network link beginning where the one before ended.
TEST(Cluster, RoutesHangTogetherInEveryShape) {
  for (const char* network :
       {"{shape: switch}", "{shape: rails, nodes_per_leaf: 2}",
        "{shape: leaf_spine, nodes_per_leaf: 1}",
        "{shape: fat_tree, nodes_per_leaf: 1, leaves_per_pod: 2}",
        "{shape: dragonfly, nodes_per_leaf: 1, routers_per_group: 2}",
        "{shape: leaf_spine, nodes_per_leaf: 1, routing: balanced, spines: 3}"}) {
    const Cluster cluster = clusterOf(fourNodes(network));
    for (int32_t from = 0; from < 8; ++from) {
      for (int32_t to = 0; to < 8; ++to) {
        if (from == to) continue;
        const auto names = namesOf(cluster, {.from = Rank{from}, .to = Rank{to}});
        ASSERT_FALSE(names.empty());
        EXPECT_THAT(names.front(), HasSubstr(fmt::format("node {}: GPU {}", from / 2, from % 2)));
        EXPECT_TRUE(names.back().ends_with(fmt::format("GPU {}", to % 2))) << names.back();
        const std::set<std::string> once(names.begin(), names.end());
        EXPECT_EQ(once.size(), names.size()) << network;
      }
    }
  }
}

TEST(Cluster, UplinksCarryWhatPortsDoLessOversubscription) {
  const Cluster cluster = clusterOf(
      fourNodes("{shape: leaf_spine, nodes_per_leaf: 2, spines: 2, oversubscription: 2}"));
  for (int32_t link = 0; link < cluster.linkCount(); ++link) {
    if (cluster.nameOfLink(link) != "leaf 0 -> spine 1") continue;
    EXPECT_DOUBLE_EQ(cluster.gbPerSecond(link), 4 * 50.0 / 2 / 2);
    return;
  }
  FAIL() << "no such link";
}

TEST(Cluster, FlowsAvoidAFailedSpine) {
  Cluster cluster = clusterOf(fourNodes("{shape: leaf_spine, nodes_per_leaf: 1, spines: 2}"));
  ASSERT_TRUE(cluster.scaleLink("leaf 0 -> spine 0", 0).ok());
  for (uint64_t flow = 0; flow < 16; ++flow) {
    EXPECT_THAT(namesOf(cluster, {.from = Rank{0}, .to = Rank{2}, .flow = flow}),
                testing::Contains("leaf 0 -> spine 1"));
  }
  ASSERT_TRUE(cluster.scaleLink("leaf 0 -> spine 1", 0).ok());
  Result<FlowRoute> none = cluster.route({.from = Rank{0}, .to = Rank{2}});
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("no way from node 0"));
}

TEST(Cluster, FlowsAvoidAFailedPort) {
  Cluster cluster = clusterOf(fourNodes("{shape: rails}"));
  ASSERT_TRUE(cluster.scaleLink("node 0 port 0 -> leaf 0", 0).ok());
  EXPECT_THAT(namesOf(cluster, {.from = Rank{0}, .to = Rank{2}}),
              testing::Contains("node 0 port 1 -> leaf 1"));
}

TEST(Cluster, HashSpreadsFlowsOverSpines) {
  const Cluster cluster = clusterOf(fourNodes("{shape: leaf_spine, nodes_per_leaf: 1, spines: 4}"));
  std::set<std::string> spines;
  for (uint64_t flow = 0; flow < 64; ++flow) {
    for (const auto& name : namesOf(cluster, {.from = Rank{0}, .to = Rank{2}, .flow = flow})) {
      if (name.starts_with("leaf 0 -> spine")) spines.insert(name);
    }
  }
  EXPECT_EQ(spines.size(), 4u);
}

std::vector<Rank> ranksOf(std::initializer_list<int32_t> numbers) {
  std::vector<Rank> ranks;
  for (const int32_t number : numbers) ranks.push_back(Rank{number});
  return ranks;
}

TEST(ClusterPart, KeepsNamesAndRoutesInItsOwnOrder) {
  Cluster whole = clusterOf(fourNodes("{shape: rails, nodes_per_leaf: 2}"));
  ASSERT_TRUE(whole.scaleLink("node 3: GPU 1 -> NVSwitch", 0.5).ok());
  ASSERT_TRUE(whole.scaleLink("node 1 port 1 -> leaf 2", 0.5).ok());
  ASSERT_TRUE(whole.slowRank(7, 0.25).ok());
  // GPU 1 of nodes 3 and 1, and node 1's GPU 0: ranks 7, 3 and 2 of the whole.
  const auto ranks = ranksOf({7, 3, 2});
  const Cluster part = whole.part(ranks).value();
  EXPECT_EQ(part.rankCount(), 3);
  EXPECT_EQ(part.nodeCount(), 2);
  EXPECT_EQ(part.speedOf(Rank{0}), 0.25);
  for (int32_t from = 0; from < 3; ++from) {
    for (int32_t to = 0; to < 3; ++to) {
      if (from == to) continue;
      const auto at = [&](int32_t rank) { return ranks[static_cast<size_t>(rank)]; };
      EXPECT_EQ(namesOf(part, {.from = Rank{from}, .to = Rank{to}}),
                namesOf(whole, {.from = at(from), .to = at(to)}));
    }
  }
  const auto speedOf = [](const Cluster& cluster, const std::string& name) {
    for (int32_t link = 0; link < cluster.linkCount(); ++link) {
      if (cluster.nameOfLink(link) == name) return cluster.gbPerSecond(link);
    }
    return -1.0;
  };
  for (const char* name : {"node 3: GPU 1 -> NVSwitch", "node 1 port 1 -> leaf 2"})
    EXPECT_EQ(speedOf(part, name), speedOf(whole, name)) << name;
}

TEST(ClusterPart, RefusesNobodyTwiceAndStrangers) {
  const Cluster whole = clusterOf(fourNodes("{}"));
  EXPECT_THAT(std::string(whole.part({}).status().message()), HasSubstr("no ranks"));
  EXPECT_THAT(std::string(whole.part(ranksOf({1, 2, 1})).status().message()),
              HasSubstr("rank 1 stands in a part twice"));
  EXPECT_THAT(std::string(whole.part(ranksOf({8})).status().message()),
              HasSubstr("no rank 8; ranks are 0 to 7"));
}

TEST(ClusterPart, OfAllRanksIsTheWhole) {
  const Cluster whole = exampleCluster("mixed");
  std::vector<Rank> all;
  for (int32_t rank = 0; rank < whole.rankCount(); ++rank) all.push_back(Rank{rank});
  const Cluster part = whole.part(all).value();
  ASSERT_EQ(part.linkCount(), whole.linkCount());
  for (int32_t link = 0; link < whole.linkCount(); ++link)
    EXPECT_EQ(part.nameOfLink(link), whole.nameOfLink(link));
}

}  // namespace
}  // namespace tutti::sim
