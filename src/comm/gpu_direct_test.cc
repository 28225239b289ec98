#include "comm/gpu_direct.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "topology/registry.h"

namespace tutti::comm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using topology::PathKind;

net::Adapter adapter(const std::string& name, const std::string& place = "") {
  return {.name = name, .place = place, .takesGpuMemory = true, .takesDmaBuffers = true};
}

// GPU 0 of a DGX H100, whose adapters mlx5_0 ... hang below a switch with a GPU each.
class GpuDirectTest : public testing::Test {
 protected:
  GpuDirectTest()
      : machine_(topology::buildTopology(
                     topology::readDescription(std::string(TUTTI_SOURCE_DIR) +
                                               "/tests/golden/topologies/dgx_h100.xml")
                         .value())
                     .value()) {
    place_ = {.machine = &machine_,
              .gpu = topology::nodesOf(machine_, topology::NodeKind::kGpu).front()};
    for (const topology::NodeId port : topology::nodesOf(machine_, topology::NodeKind::kNet))
      adapters_.push_back(adapter(machine_[port].net.device));
  }
  GpuDirectView judge(const GpuDirectRules& rules) {
    return judgeGpuDirect(adapters_, place_, rules);
  }

  topology::Topology machine_;
  GpuPlace place_;
  std::vector<net::Adapter> adapters_;
};

TEST_F(GpuDirectTest, GoesOverTheAdaptersBesideTheGpu) {
  const GpuDirectView view = judge({});
  EXPECT_EQ(view.obstacle, "");
  ASSERT_EQ(view.slots.receiveAdapters.size(), 1u);
  const size_t near = view.slots.receiveAdapters.front();
  EXPECT_TRUE(topology::isWithin(view.distances[near], PathKind::kPxb));
  EXPECT_EQ(view.slots.sendAdapters, view.slots.receiveAdapters);
  for (size_t i = 0; i < adapters_.size(); ++i)
    EXPECT_EQ(view.slots.receiveObstacles[i].empty(), i == near) << i;
  EXPECT_THAT(view.description, HasSubstr("SYS from the GPU, farther than P2C"));
}

TEST_F(GpuDirectTest, ALevelAdmitsAdaptersThatAreFartherAway) {
  const GpuDirectView all = judge({.level = PathKind::kSys});
  for (const std::string& obstacle : all.slots.receiveObstacles) EXPECT_EQ(obstacle, "");
  EXPECT_EQ(all.slots.receiveAdapters.size(), 1u);  // the nearest carry
  EXPECT_THAT(judge({.level = PathKind::kLoc}).slots.receiveAdapters, IsEmpty());
  EXPECT_THAT(judge({.level = PathKind::kLoc}).obstacle, HasSubstr("farther than LOC"));
}

TEST_F(GpuDirectTest, SendsNeedLeaveToRead) {
  const GpuDirectView view = judge({.read = 0});
  EXPECT_EQ(view.obstacle, "");
  EXPECT_THAT(view.slots.sendAdapters, IsEmpty());
  EXPECT_THAT(view.slots.sendObstacles, testing::Contains("NCCL_NET_GDR_READ=0"));
  machine_.nodes[topology::index(place_.gpu)].gpu.smVersion = 70;
  EXPECT_THAT(judge({}).slots.sendAdapters, IsEmpty());
  EXPECT_EQ(judge({.read = 1}).slots.sendAdapters.size(), 1u);
}

TEST_F(GpuDirectTest, SaysWhatAnAdapterLacks) {
  EXPECT_THAT(judgeGpuDirect({}, place_, {}).obstacle, HasSubstr("of the host only"));
  for (net::Adapter& each : adapters_) each.takesGpuMemory = false;
  EXPECT_EQ(judge({}).obstacle, "");
  EXPECT_THAT(judge({.usesDmaBuffers = false}).obstacle, HasSubstr("NCCL_DMABUF_ENABLE=0"));
  for (net::Adapter& each : adapters_) each.takesDmaBuffers = false;
  EXPECT_THAT(judge({}).obstacle, HasSubstr("moves memory of the host only"));
}

// Behind the CPU is as near as can be hoped.
TEST_F(GpuDirectTest, AnAdapterWhosePlaceIsNotKnownCountsAsPhb) {
  adapters_ = {adapter("elsewhere0"), adapter("elsewhere1")};
  EXPECT_THAT(judge({}).obstacle, HasSubstr("elsewhere0 is PHB from the GPU"));
  EXPECT_THAT(judge({.level = PathKind::kPhb}).slots.receiveAdapters, ElementsAre(0, 1));
  EXPECT_THAT(judgeGpuDirect(adapters_, {}, {.level = PathKind::kPhb}).obstacle, "");
}

}  // namespace
}  // namespace tutti::comm
