#include "comm/peer_level.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "topology/registry.h"

namespace tutti::comm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using topology::PathKind;

// The first GPUs of a described machine, a rank each.
class PeerLevelTest : public testing::Test {
 protected:
  void use(const std::string& name, int32_t ranks = 8) {
    const auto machine = topology::readDescription(fmt::format("{}/tests/golden/topologies/{}.xml",
                                                               TUTTI_SOURCE_DIR, name))
                             .value();
    distances_ = GpuDistances::open(machine);
    const topology::Topology built = topology::buildTopology(machine).value();
    host_.clear();
    for (const topology::NodeId gpu : topology::nodesOf(built, topology::NodeKind::kGpu)) {
      if (std::ssize(host_) < ranks)
        host_.push_back({Rank{static_cast<int32_t>(host_.size())}, built[gpu].busId});
    }
  }
  PeerView judge(int32_t rank, PathKind level) {
    return judgePeers(host_, Rank{rank}, {.kind = level, .rank = 5}, distances_.get());
  }

  std::shared_ptr<const GpuDistances> distances_;
  std::vector<HostMember> host_;
};

TEST_F(PeerLevelTest, ASwitchOfNvLinksLeavesNobodyOut) {
  use("dgx_h100");
  EXPECT_EQ(distances_->between(host_[0].busId, host_[7].busId), PathKind::kNvl);
  for (int32_t rank = 0; rank < 8; ++rank) {
    EXPECT_THAT(judge(rank, PathKind::kNvl).farPeers, IsEmpty());
    EXPECT_EQ(judge(rank, PathKind::kNvl).obstacle, "");
  }
}

// Each GPU of a DGX-1 has four others at its NVLinks.
TEST_F(PeerLevelTest, PairsWithoutALinkOfTheirOwnAreFarFromNvl) {
  use("dgx1v");
  const PeerView view = judge(0, PathKind::kNvl);
  EXPECT_THAT(view.farPeers, ElementsAre(5, 6, 7));
  EXPECT_THAT(view.obstacle, HasSubstr("NVB, where rank 5 wants NVL or closer (NCCL_P2P_LEVEL)"));
  EXPECT_THAT(view.obstacle, HasSubstr(host_[5].busId));
  EXPECT_EQ(view.lines.size(), 3u);
  EXPECT_THAT(judge(0, PathKind::kNvb).farPeers, IsEmpty());
}

TEST_F(PeerLevelTest, WithoutNvLinkTheWayOverThePciTreeCounts) {
  use("mi300x_8gpu");
  for (const PathKind level : {PathKind::kPix, PathKind::kPxb, PathKind::kPhb, PathKind::kSys}) {
    const PeerView view = judge(0, level);
    for (const HostMember& peer : host_) {
      if (peer.rank == Rank{0}) continue;
      const auto kind = distances_->between(host_[0].busId, peer.busId);
      ASSERT_TRUE(kind);
      EXPECT_EQ(std::ranges::count(view.farPeers, index(peer.rank)),
                topology::isWithin(*kind, level) ? 0 : 1);
    }
  }
}

TEST_F(PeerLevelTest, TwoRanksFindTheSameOfEachOther) {
  use("dgx1v");
  for (int32_t a = 0; a < 8; ++a) {
    for (const int32_t b : judge(a, PathKind::kNvl).farPeers)
      EXPECT_THAT(judge(b, PathKind::kNvl).farPeers, testing::Contains(a));
  }
}

TEST_F(PeerLevelTest, RanksOfOneGpuAreNeverApart) {
  use("dgx1v", 2);
  host_[1].busId = host_[0].busId;
  EXPECT_EQ(judge(0, PathKind::kLoc).obstacle, "");
  EXPECT_THAT(judge(0, PathKind::kLoc).farPeers, IsEmpty());
}

TEST_F(PeerLevelTest, WhereTheMachineIsNotKnownOnlyNeverIsHeeded) {
  use("dgx1v", 2);
  distances_ = nullptr;
  EXPECT_THAT(judge(0, PathKind::kNvl).farPeers, IsEmpty());
  EXPECT_THAT(judge(0, PathKind::kNvl).lines, ElementsAre(HasSubstr("is not known")));
  EXPECT_THAT(judge(0, PathKind::kLoc).farPeers, ElementsAre(1));
}

TEST_F(PeerLevelTest, AGpuThatIsNotOfTheMachineIsNotKnown) {
  use("dgx1v", 2);
  host_[1].busId = "0000:aa:00.0";
  EXPECT_THAT(judge(0, PathKind::kNvl).farPeers, IsEmpty());
  EXPECT_THAT(judge(0, PathKind::kNvl).lines, ElementsAre(HasSubstr("is not known")));
}

TEST(ClosestLevel, IsOfTheRankThatAsksForIt) {
  std::vector<InitRecord> records(3);
  for (int32_t rank = 0; rank < 3; ++rank) records[static_cast<size_t>(rank)].peer.rank = rank;
  EXPECT_FALSE(closestLevel(records));
  records[0].peerLevel = static_cast<int32_t>(PathKind::kSys);
  records[2].peerLevel = static_cast<int32_t>(PathKind::kPix);
  EXPECT_EQ(closestLevel(records)->kind, PathKind::kPix);
  EXPECT_EQ(closestLevel(records)->rank, 2);
  records[1].peerLevel = 77;  // of no library of ours
  EXPECT_EQ(closestLevel(records)->rank, 2);
}

TEST(PeerLevelOfSettings, IsAskedOfGpuRanksOnly) {
  const Settings settings = Settings::parse({.environment = {"NCCL_P2P_LEVEL=phb"}, .files = {}});
  InitRecord cpu, gpu;
  notePeerLevel(cpu, settings);
  EXPECT_EQ(cpu.peerLevel, -1);
  gpu.gpuHash = 7;
  notePeerLevel(gpu, settings);
  EXPECT_EQ(gpu.peerLevel, static_cast<int32_t>(PathKind::kPhb));
  EXPECT_EQ(gpu.wantsMachine, 1);
}

}  // namespace
}  // namespace tutti::comm
