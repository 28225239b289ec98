#include "graph/cluster.h"

#include <gmock/gmock.h>

#include "graph/graphs_testing.h"
#include "graph/print.h"

namespace tutti::graph {
namespace {

using testing::HasSubstr;
using topology::Topology;

Result<ClusterPlan> planOf(const std::string& machine, int32_t nodes) {
  const Topology topology = topology::machine(machine);
  return planCluster(topology, topology::computePaths(topology), {.nodeCount = nodes});
}

TEST(Cluster, PlansOneNodeByItself) {
  const Result<ClusterPlan> plan = planOf("dgx_h100", 0);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan.value().graphs.nodeCount, 1);
  EXPECT_EQ(plan.value().graphs.rankCount, 8);
  EXPECT_EQ(plan.value().graphs.smVersion, 90);
  EXPECT_EQ(plan.value().graphs.switched.channelCount, 8);
  EXPECT_EQ(plan.value().merged.ringCount(), 12);
}

TEST(Cluster, RepeatsADescribedNode) {
  const Result<ClusterPlan> plan = planOf("dgx_h100", 6);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan.value().merged.rankCount(), 48);
  EXPECT_EQ(plan.value().merged.nodeOf(Rank{47}), 5);
  EXPECT_EQ(plan.value().graphs.mostRanksPerNode, 8);
  EXPECT_GE(plan.value().graphs.ring.channelCount * plan.value().graphs.ring.interGbPerSecond, 360);
}

TEST(Cluster, IsDrawn) {
  const Result<ClusterPlan> plan = planOf("single_gpu_4_nodes", 0);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(drawRing(plan.value().merged, 0), "0 -> 1 -> 2 -> 3 -> 0");
  EXPECT_EQ(drawTree(plan.value().merged, {.tree = 0}),
            "  node 0: 0\n    under 0: node 2: 2\n      under 2: node 1: 1\n"
            "      under 2: node 3: 3\n");
  const Result<ClusterPlan> big = planOf("dgx_h100", 100);
  ASSERT_TRUE(big.ok());
  EXPECT_THAT(drawRing(big.value().merged, 0), HasSubstr("... (768 more) -> "));
  EXPECT_THAT(drawTree(big.value().merged, {.tree = 1, .mostNodes = 5}),
              HasSubstr("... 95 more nodes"));
}

TEST(Cluster, TakesFromUnequalNodesWhatHoldsOnAll) {
  const Result<ClusterPlan> plan = planOf("unequal_8_4_2", 0);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan.value().merged.rankCount(), 14);
  EXPECT_EQ(plan.value().graphs.mostRanksPerNode, 8);
  // The second has two ports of 25 GB/s.
  EXPECT_EQ(plan.value().graphs.ring.channelCount, 2);
}

TEST(Cluster, SaysWhatIsMissing) {
  EXPECT_THAT(planOf("cpu_2_numa", 2).status().message(),
              HasSubstr("no host of the topology has a GPU"));
  topology::Description machine = topology::describe(topology::goldenFolder(), "dgx1v");
  const auto strip = [](auto& self, std::vector<topology::PciDevice>& devices) -> void {
    for (topology::PciDevice& each : devices) {
      each.nics.clear();
      self(self, each.children);
    }
  };
  for (topology::CpuNode& cpu : machine.cpus) {
    cpu.nics.clear();
    strip(strip, cpu.devices);
  }
  const Result<Topology> topology = buildTopology(machine);
  ASSERT_TRUE(topology.ok());
  const Result<ClusterPlan> plan =
      planCluster(topology.value(), topology::computePaths(topology.value()), {.nodeCount = 2});
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(plan.status().message(), HasSubstr("host 0 has no network port"));
}

}  // namespace
}  // namespace tutti::graph
