#include "sim/cluster_file.h"

#include <gmock/gmock.h>

#include "sim/clusters_testing.h"

namespace tutti::sim {
namespace {

using testing::HasSubstr;

constexpr const char* kTwoNodes = R"(cluster: two
nodes:
  - count: 2
    machine: {gpus: 4, sm: 90, nvswitch_links: 18, ports: 2, port_gbps: 400}
)";

TEST(ClusterFile, ExamplesAreClusters) {
  struct Row {
    const char* name;
    int32_t nodes;
    int32_t ranks;
  };
  for (const Row& row : {Row{"dgx_h100x64", 64, 512}, Row{"dgx_a100x16", 16, 128},
                         Row{"p5x8", 8, 64}, Row{"h200x4", 1, 4}, Row{"gb200_nvl72", 4, 288},
                         Row{"cpu_cluster", 32, 128}, Row{"mixed", 6, 40}}) {
    const Cluster cluster = exampleCluster(row.name);
    EXPECT_EQ(cluster.nodeCount(), row.nodes) << row.name;
    EXPECT_EQ(cluster.rankCount(), row.ranks) << row.name;
  }
}

TEST(ClusterFile, TakesAnotherNumberOfNodes) {
  EXPECT_EQ(exampleCluster("dgx_h100x64", 3).rankCount(), 24);
}

TEST(ClusterFile, ReadsTopologyFilesBesideIt) {
  const std::string path = TUTTI_SOURCE_DIR "/tests/golden/topologies/dgx_h100.xml";
  const Cluster cluster = clusterOf("nodes: [{count: 2, topology: " + path + "}]");
  EXPECT_EQ(cluster.rankCount(), 16);
  EXPECT_EQ(cluster.kinds().front().ports.size(), 8u);
}

TEST(ClusterFile, PlacesRanksRoundTheNodes) {
  const Cluster cluster = clusterOf(std::string(kTwoNodes) + "placement: cyclic\n");
  EXPECT_EQ(cluster.nodeOf(Rank{0}), 0);
  EXPECT_EQ(cluster.nodeOf(Rank{1}), 1);
  EXPECT_EQ(cluster.localOf(Rank{3}), 1);
}

TEST(ClusterFile, ErrorsNameThePlace) {
  struct Row {
    const char* text;
    const char* wanted;
  };
  const Row rows[] = {
      {"", "c.yaml:1:1: nothing in it"},
      {"a: [", "c.yaml:1:5: no YAML"},
      {"cluster: x\n", "c.yaml:1:1: nodes is missing"},
      {"nodes: []\n", "c.yaml:1:8: nodes is a list"},
      {"nodes:\n  - count: 0\n", "c.yaml:2:12: count is 0, wanted a whole number from 1"},
      {"nodes:\n  - count: 1\n", "c.yaml:2:5: wanted either topology: FILE or machine"},
      {"nodes:\n  - {machine: {gpu: 8}}\n", "c.yaml:2:21: gpu is not known here; known are"},
      {"nodes:\n  - {machine: {gpus: 8, gpus: 4}}\n", "c.yaml:2:25: gpus stands here twice"},
      {"nodes:\n  - {machine: {ports: 1}}\n", "has no GPU and no cpu_ranks"},
      {"nodes:\n  - {count: 2, machine: {gpus: 4}}\n", "no network port"},
      {"nodes:\n  - {topology: nowhere.xml}\n", "c.yaml:2:16: "},
      {"nodes: &a [*a]\n", "aliases (*name) are not taken"},
      {"nodes:\n  - {machine: {gpus: 4}}\nnetwork: {shape: ring}\n",
       "c.yaml:3:18: shape is ring, wanted one of switch, rails"},
      {"nodes:\n  - {machine: {gpus: 4}}\nwhat_if: [{rank: 9, factor: 0.5}]\n",
       "c.yaml:3:11: cluster c.yaml: no rank 9"},
      {"nodes:\n  - {machine: {gpus: 4}}\nwhat_if: [{link: x, factor: 0.5}]\n",
       "no link is called \"x\""},
      {"nodes: [{machine: {gpus: 4}}]\n---\nnodes: []\n", "a second document"},
      {"nodes:\n  - {count: 262144, machine: {gpus: 8, ports: 1}}\n", "wanted at most"},
  };
  for (const Row& row : rows) {
    Result<Cluster> cluster = tryCluster(row.text);
    ASSERT_FALSE(cluster.ok()) << row.text;
    EXPECT_THAT(std::string(cluster.status().message()), HasSubstr(row.wanted)) << row.text;
  }
}

}  // namespace
}  // namespace tutti::sim
