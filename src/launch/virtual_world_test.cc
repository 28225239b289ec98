#include "launch/virtual_world.h"

#include <gmock/gmock.h>

#include "launch/virtual_launcher.h"
#include "sim/cluster_file.h"

namespace tutti::launch {
namespace {

using testing::HasSubstr;

std::shared_ptr<VirtualWorld> worldOf(int32_t ranks, int32_t here) {
  auto cluster = sim::parseCluster(
      "nodes: [{count: 2, machine: {gpus: 4, sm: 90, nvswitch_links: 18, ports: 4}}]",
      {.source = "c.yaml"}, nullptr);
  EXPECT_TRUE(cluster.ok());
  VirtualWorld::Options options{
      .name = "job",
      .cluster = std::make_shared<const sim::Cluster>(std::move(cluster).value()),
      .places = {},
      .isHere = {}};
  for (int32_t rank = 0; rank < ranks; ++rank) {
    options.places.push_back(Rank{rank});
    options.isHere.push_back(rank < here);
  }
  return std::make_shared<VirtualWorld>(std::move(options));
}

Status enter(VirtualWorld& world, int32_t self, const plan::CallShape& shape) {
  const Call call{.shape = shape};
  const StreamCall item{.call = &call, .stream = nullptr};
  return world.enter(Rank{self}, {&item, 1});
}

plan::CallShape allReduce(uint64_t count) {
  return {.collective = Collective::kAllReduce, .count = count};
}

plan::CallShape transfer(Collective collective, int32_t peer) {
  return {.collective = collective, .peer = Rank{peer}, .count = 10};
}

TEST(VirtualWorld, RanksMayRunAheadInAnyOrder) {
  const auto world = worldOf(3, 3);
  for (const int32_t rank : {1, 0, 2}) {
    for (uint64_t call = 1; call < 50; ++call)
      ASSERT_TRUE(enter(*world, rank, allReduce(call)).ok());
  }
  EXPECT_EQ(world->spentUs(Rank{0}), world->spentUs(Rank{2}));
  EXPECT_GT(world->spentUs(Rank{0}), 0);
}

TEST(VirtualWorld, ThosePresentAreComparedAndOthersNotAwaited) {
  const auto world = worldOf(8, 2);
  for (uint64_t call = 1; call < 5; ++call) ASSERT_TRUE(enter(*world, 0, allReduce(call)).ok());
  ASSERT_TRUE(enter(*world, 0, transfer(Collective::kSend, 7)).ok());
  ASSERT_TRUE(enter(*world, 1, allReduce(1)).ok());
  const Status status = enter(*world, 1, allReduce(3));
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0 AllReduce #2 (2 of float, sum), "
                                                       "rank 1 AllReduce #2 (3 of float, sum)"));
  EXPECT_TRUE(world->hasFailed());
}

TEST(VirtualWorld, RootAndOperationMustAgree) {
  const plan::CallShape shape{.collective = Collective::kReduce, .peer = Rank{1}, .count = 4};
  for (const bool isOtherRoot : {false, true}) {
    const auto world = worldOf(2, 2);
    ASSERT_TRUE(enter(*world, 0, shape).ok());
    plan::CallShape other = shape;
    if (isOtherRoot) {
      other.peer = Rank{0};
    } else {
      other.op = ReduceOp::kMax;
    }
    EXPECT_EQ(enter(*world, 1, other).code(), Code::kInvalidUsage);
  }
}

TEST(VirtualWorld, ARankOnlyLeavesForItself) {
  const auto world = worldOf(2, 2);
  VirtualLauncher first(world, Rank{0}), second(world, Rank{1});
  first.fail(Status(Code::kInvalidUsage, "destroyed"));
  first.retire(observe::Life::kDestroyed);
  EXPECT_TRUE(first.hasFailed());
  EXPECT_FALSE(second.hasFailed());
  const Call call{.shape = allReduce(5)};
  const StreamCall item{.call = &call, .stream = nullptr};
  EXPECT_TRUE(second.launch({&item, 1}, false).ok());
  EXPECT_EQ(first.launch({&item, 1}, false).code(), Code::kInvalidUsage);
}

}  // namespace
}  // namespace tutti::launch
