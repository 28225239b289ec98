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

}  // namespace
}  // namespace tutti::sim
