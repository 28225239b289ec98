#include "topology/paths.h"

#include <gmock/gmock.h>

#include "topology/machines_testing.h"

namespace tutti::topology {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const Path& between(const Paths& paths, NodeId from, NodeId to) { return paths.between(from, to); }

TEST(Levels, AreReadByNameInAnyCaseAndByNumber) {
  EXPECT_EQ(*parseLevel("NCCL_P2P_LEVEL", "phb").value(), PathKind::kPhb);
  EXPECT_EQ(*parseLevel("NCCL_P2P_LEVEL", "SYS").value(), PathKind::kSys);
  EXPECT_EQ(*parseLevel("NCCL_P2P_LEVEL", "0").value(), PathKind::kLoc);
  EXPECT_EQ(*parseLevel("NCCL_P2P_LEVEL", "1").value(), PathKind::kPix);
  EXPECT_EQ(*parseLevel("NCCL_P2P_LEVEL", "4").value(), PathKind::kPhb);
  EXPECT_EQ(*parseLevel("NCCL_P2P_LEVEL", "5").value(), PathKind::kSys);
  EXPECT_FALSE(parseLevel("NCCL_P2P_LEVEL", "").value().has_value());
  const Result<std::optional<PathKind>> wrong = parseLevel("NCCL_NET_GDR_LEVEL", "near");
  EXPECT_THAT(std::string(wrong.status().message()),
              HasSubstr("NCCL_NET_GDR_LEVEL=near: wanted one of LOC"));
}

TEST(Levels, AreOrderedByCloseness) {
  EXPECT_TRUE(isCloser(PathKind::kNvl, PathKind::kPix));
  EXPECT_TRUE(isCloser(PathKind::kPxb, PathKind::kPxn));
  EXPECT_FALSE(isCloser(PathKind::kSys, PathKind::kSys));
  EXPECT_TRUE(isWithin(PathKind::kSys, PathKind::kSys));
  EXPECT_TRUE(isCloser(PathKind::kNet, PathKind::kDis));
}

TEST(Paths, OfTheCubeMeshRelayOverTheWidestNeighbour) {
  const Topology topology = machine("dgx1v");
  const Paths paths = computePaths(topology);
  const Path& direct = between(paths, gpu(topology, 0), gpu(topology, 3));
  EXPECT_EQ(direct.kind, PathKind::kNvl);
  EXPECT_EQ(direct.gbPerSecond, 40);
  const Path& relayed = between(paths, gpu(topology, 0), gpu(topology, 7));
  EXPECT_EQ(relayed.kind, PathKind::kNvb);
  EXPECT_EQ(relayed.gbPerSecond, 40);
  EXPECT_EQ(topology[relayed.relay].number, 4);  // over 4 both halves have two links; over 3 one
                                                 // has one
  EXPECT_FALSE(relayed.isDirect());
}

TEST(Paths, WithoutRelaysGoThroughTheCpus) {
  const Topology topology = machine("dgx1v");
  const Paths paths = computePaths(topology, {.relayOverGpus = false});
  const Path& path = between(paths, gpu(topology, 0), gpu(topology, 7));
  EXPECT_EQ(path.kind, PathKind::kSys);
  EXPECT_EQ(path.gbPerSecond, 6);
  EXPECT_EQ(topology[path.relay].kind, NodeKind::kCpu);
}

TEST(Paths, OverAnNvSwitchCarryAllLinks) {
  const Topology topology = machine("dgx_h100");
  const Path path = computePaths(topology).between(gpu(topology, 0), gpu(topology, 7));
  EXPECT_EQ(path.kind, PathKind::kNvl);
  EXPECT_NEAR(path.gbPerSecond, 18 * 20.6, 1e-9);
  EXPECT_TRUE(path.isDirect());
}

TEST(Paths, ReachAFarNicThroughTheGpuBesideIt) {
  const Topology topology = machine("dgx_h100");
  const Paths paths = computePaths(topology);
  const Path& own = between(paths, gpu(topology, 0), port(topology, 0));
  EXPECT_EQ(own.kind, PathKind::kPix);
  EXPECT_EQ(own.gbPerSecond, 48);
  const Path& other = between(paths, gpu(topology, 0), port(topology, 7));
  EXPECT_EQ(other.kind, PathKind::kPxn);
  EXPECT_EQ(topology[other.relay].number, 7);
  const Paths plain = computePaths(topology, {.relayToNics = false});
  EXPECT_EQ(between(plain, gpu(topology, 0), port(topology, 7)).kind, PathKind::kSys);
  EXPECT_THAT(paths.nearestPorts(topology, gpu(topology, 3)), ElementsAre(port(topology, 3)));
}

TEST(Paths, KeepToTheLevelsThatAreSet) {
  const Topology topology = machine("server_8xl40s");
  const NodeId one = gpu(topology, 0), near = gpu(topology, 1), far = gpu(topology, 4);
  const Paths normal = computePaths(topology);
  EXPECT_TRUE(between(normal, one, near).isDirect());
  EXPECT_FALSE(between(normal, one, far).isDirect());
  const Paths wide =
      computePaths(topology, {.peerLevel = PathKind::kSys, .directNetLevel = PathKind::kSys});
  EXPECT_TRUE(between(wide, one, far).isDirect());
  EXPECT_TRUE(between(wide, one, port(topology, 1)).isDirect());
  const Paths never =
      computePaths(topology, {.peerLevel = PathKind::kLoc, .directNetLevel = PathKind::kLoc});
  EXPECT_EQ(between(never, one, near).kind, PathKind::kPhb);
  EXPECT_EQ(topology[between(never, one, near).relay].name, "CPU 0");
  EXPECT_FALSE(between(never, one, port(topology, 0)).isDirect());
}

TEST(Paths, DetourAroundMissingPeerAccess) {
  const Topology topology = machine("workstation_2x4090");
  const Path path = computePaths(topology).between(gpu(topology, 0), gpu(topology, 1));
  EXPECT_EQ(path.kind, PathKind::kPhb);
  EXPECT_EQ(topology[path.relay].kind, NodeKind::kCpu);
}

TEST(Paths, OfBridgedGpusStayOnNvLink) {
  const Topology topology = machine("workstation_4xa6000");
  const Paths paths = computePaths(topology);
  EXPECT_EQ(between(paths, gpu(topology, 0), gpu(topology, 1)).kind, PathKind::kNvl);
  EXPECT_EQ(between(paths, gpu(topology, 0), gpu(topology, 1)).gbPerSecond, 48);
  EXPECT_EQ(between(paths, gpu(topology, 0), gpu(topology, 2)).kind, PathKind::kPhb);
}

TEST(Paths, OverC2cReachTheNicDirectly) {
  const Topology topology = machine("gh200");
  const Paths paths = computePaths(topology);
  EXPECT_EQ(between(paths, gpu(topology, 0), cpu(topology, 0)).kind, PathKind::kC2c);
  EXPECT_EQ(between(paths, gpu(topology, 0), cpu(topology, 0)).gbPerSecond, 450);
  EXPECT_EQ(between(paths, gpu(topology, 0), port(topology, 0)).kind, PathKind::kP2c);
  EXPECT_TRUE(between(paths, gpu(topology, 0), port(topology, 0)).isDirect());
  const Paths without = computePaths(topology, {.directNetOverC2c = false});
  EXPECT_FALSE(between(without, gpu(topology, 0), port(topology, 0)).isDirect());
}

TEST(Paths, BetweenHostsAreTheNetworkAtTheNarrowerSide) {
  const Topology topology = machine("unequal_8_4_2");
  const Path path = computePaths(topology).between(gpu(topology, 0), gpu(topology, 8));
  EXPECT_EQ(path.kind, PathKind::kNet);
  EXPECT_EQ(path.gbPerSecond, 25);  // the four-GPU node's 200 Gb/s
}

TEST(Paths, OfCpuRanksAreTheSockets) {
  const Topology topology = machine("cpu_8_numa");
  const Paths paths = computePaths(topology);
  EXPECT_EQ(between(paths, cpu(topology, 0), cpu(topology, 0)).kind, PathKind::kLoc);
  EXPECT_EQ(between(paths, cpu(topology, 0), cpu(topology, 7)).kind, PathKind::kSys);
  EXPECT_EQ(between(paths, cpu(topology, 0), cpu(topology, 7)).gbPerSecond, 16);
  EXPECT_EQ(between(paths, cpu(topology, 7), port(topology, 0)).kind, PathKind::kSys);
}

TEST(Trim, KeepsTheRanksOfOneHostAndNoNetwork) {
  const Topology topology = trim(machine("rails_2x8_h100"), {1, 2, 5});
  EXPECT_EQ(nodesOf(topology, NodeKind::kGpu).size(), 3u);
  EXPECT_TRUE(nodesOf(topology, NodeKind::kNet).empty());
  EXPECT_TRUE(nodesOf(topology, NodeKind::kCpu, 1).empty());
  EXPECT_EQ(computePaths(topology).between(gpu(topology, 1), gpu(topology, 5)).kind,
            PathKind::kNvl);
}

TEST(Trim, KeepsTheNetworkOfRanksOnSeveralHosts) {
  const Topology topology = trim(machine("rails_3x8_h100"), {1, 9});
  EXPECT_EQ(nodesOf(topology, NodeKind::kGpu).size(), 2u);
  EXPECT_EQ(nodesOf(topology, NodeKind::kNet, 0).size(), 8u);
  EXPECT_TRUE(nodesOf(topology, NodeKind::kNet, 2).empty());
  EXPECT_TRUE(trim(topology, {}) == topology);
}

}  // namespace
}  // namespace tutti::topology
