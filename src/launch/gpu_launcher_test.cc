// One rank's launcher on a GPU that notes what it is told: what is launched.
#include "launch/gpu_launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "launch/gpu_launcher_testing.h"

namespace tutti::launch {
namespace {

std::vector<Done> collectivesOf(const std::vector<NotedLaunch>& launches) {
  std::vector<Done> done;
  for (const NotedLaunch& launch : launches) {
    if (isOfTransfers(launch)) continue;
    if (isProgram(launch)) {
      const auto call = argumentOf<wire::GpuProgramLaunch>(launch).call;
      done.push_back({call.collective, call.output});
      continue;
    }
    const auto argument = argumentOf<wire::GpuLaunch>(launch);
    for (int32_t i = 0; i < argument.callCount; ++i)
      done.push_back({argument.calls[i].collective, argument.calls[i].output});
  }
  return done;
}
std::multiset<Transfer> transfersOf(const std::vector<NotedLaunch>& launches) {
  std::multiset<Transfer> transfers;
  for (const NotedLaunch& launch : launches) {
    if (!isOfTransfers(launch)) continue;
    if (isProgram(launch)) {
      const auto argument = argumentOf<wire::GpuProgramTransfers>(launch);
      for (int32_t i = 0; i < argument.transferCount; ++i) {
        const auto& one = argument.transfers[i];
        transfers.insert({(one.peerAndKind & wire::kGpuProgramSends) != 0,
                          one.peerAndKind & ~wire::kGpuProgramSends, one.buffer});
      }
      continue;
    }
    const auto argument = argumentOf<wire::GpuTransfers>(launch);
    for (int32_t i = 0; i < argument.transferCount; ++i) {
      const auto& one = argument.transfers[i];
      transfers.insert({one.isSend, one.peer, one.buffer});
    }
  }
  return transfers;
}

class GpuLauncherOf : public testing::TestWithParam<int32_t> {};

TEST_P(GpuLauncherOf, LaunchesEveryCallOfAGroupOnceAndCollectivesInOrder) {
  const int32_t rankCount = GetParam();
  auto rank = openRank({.limits = {.rankCount = rankCount}});
  SeededRng rng(static_cast<uint64_t>(rankCount));
  size_t seen = 0;
  for (int round = 0; round < 25; ++round) {
    const Drawn drawn = drawGroup(rng, rankCount, 1);
    const Status status = drawn.group.launch(rank->launcher());
    ASSERT_TRUE(status.ok()) << status.message();
    auto launches = rank->gpu().launches();
    launches.erase(launches.begin(), launches.begin() + static_cast<ptrdiff_t>(seen));
    seen += launches.size();
    EXPECT_EQ(collectivesOf(launches), drawn.collectives) << "round " << round;
    EXPECT_EQ(transfersOf(launches), drawn.transfers) << "round " << round;
    for (const NotedLaunch& launch : launches) {
      EXPECT_GE(launch.blocks, 1u);
      EXPECT_GE(launch.threads, 32u);
      EXPECT_EQ(launch.stream, drawn.group.calls().empty() ? nullptr : launches[0].stream);
      EXPECT_FALSE(isAborted(launch));
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, GpuLauncherOf, testing::Values(3, 4, 8, 12));

TEST(GpuLauncherTest, KernelsAreToldOfAllSegmentsAndTheirRank) {
  for (const int32_t rankCount : {2, 5, 8}) {
    auto rank =
        openRank({.limits = {.rankCount = rankCount}, .waitLimit = std::chrono::milliseconds(7)});
    ASSERT_TRUE(Group().add(Collective::kAllReduce, 100).launch(rank->launcher()).ok());
    const auto view = argumentOf<wire::GpuLaunch>(rank->gpu().launches().at(0)).view;
    EXPECT_EQ(view.rank, 1);
    EXPECT_EQ(view.rankCount, rankCount);
    EXPECT_EQ(view.timeoutNs, 7'000'000u);
    EXPECT_EQ(*view.abortWord, 0u);
    EXPECT_EQ(view.error->fault, 0u);
    for (size_t peer = 0; peer < rank->rankCount(); ++peer)
      EXPECT_EQ(view.segments[peer], rank->segments()->addresses()[peer]);
  }
}

TEST(GpuLauncherTest, LongCallsTakeFewerBlocksWhileOthersHaveTheGpu) {
  for (const bool adapts : {true, false}) {
    auto rank = openRank({.limits = {.rankCount = 4, .adaptsBlocks = adapts, .hasBulk = true}});
    std::vector<uint32_t> blocks;
    for (uint64_t call = 1; call <= 100; ++call) {
      for (const int32_t other : {0, 2, 3}) rank->board().page(other).longCalls = call << 1;
      ASSERT_TRUE(Group()
                      .add(Collective::kAllReduce, 16 << 20)
                      .add(Collective::kAllReduce, 16)
                      .launch(rank->launcher())
                      .ok());
      const auto launches = rank->gpu().launches();
      const NotedLaunch& launch = launches[launches.size() - 2];
      blocks.push_back(launch.blocks);
      // Every launch was late.
      uint64_t* starts = argumentOf<wire::GpuLaunch>(launch).view.starts;
      std::atomic_ref(*starts).store(call << 32 | call);
    }
    EXPECT_GT(blocks.front(), 128u);
    EXPECT_EQ(blocks.back() <= 32, adapts) << blocks.back();
  }
}

TEST(GpuLauncherTest, FiftySmallAllReducesAreFourLaunches) {
  auto rank = openRank({.limits = {.rankCount = 4}});
  ASSERT_TRUE(allReduces(50).launch(rank->launcher()).ok());
  std::vector<int32_t> counts;
  uint64_t next = 1;
  for (const NotedLaunch& launch : rank->gpu().launches()) {
    const auto argument = argumentOf<wire::GpuLaunch>(launch);
    counts.push_back(argument.callCount);
    for (int32_t i = 0; i < argument.callCount; ++i) EXPECT_EQ(argument.calls[i].count, next++);
  }
  EXPECT_THAT(counts, testing::ElementsAre(16, 16, 16, 2));
}

// No call loads a kernel: that could wait for kernels that wait for us.
TEST(GpuLauncherTest, AllKernelsAreFoundWhenItOpens) {
  for (const int32_t rankCount : {2, 3, 8, 12}) {
    auto rank = openRank({.limits = {.rankCount = rankCount}});
    rank->gpu().failAt("findKernel");
    SeededRng rng(7);
    for (int round = 0; round < 40; ++round) {
      const Status status = drawGroup(rng, rankCount, 1).group.launch(rank->launcher());
      ASSERT_TRUE(status.ok()) << status.message();
    }
    EXPECT_FALSE(rank->gpu().hasFailed());
  }
}

TEST(GpuLauncherTest, RanksThatShareAGpuRunEveryKernelOnceOnAStreamOfTheirOwn) {
  auto rank = openRank({.limits = {.rankCount = 4, .ranksPerDevice = 2}});
  const auto tried = rank->gpu().launches();
  std::set<std::string> names;
  for (const NotedLaunch& launch : tried) {
    EXPECT_EQ(launch.blocks, 1u);
    EXPECT_EQ(launch.stream, tried[0].stream);
    names.insert(launch.kernel);
  }
  ASSERT_TRUE(
      allReduces(1).on(kOther).add(Collective::kBroadcast, 5).launch(rank->launcher()).ok());
  const auto launches = rank->gpu().launches();
  ASSERT_GT(launches.size(), tried.size());
  for (size_t i = tried.size(); i < launches.size(); ++i) {
    EXPECT_EQ(launches[i].stream, tried[0].stream);
    EXPECT_TRUE(names.contains(launches[i].kernel)) << launches[i].kernel;
  }
}

TEST(GpuLauncherTest, MoreThanEightRanksRegisterNoBuffers) {
  auto rank = openRank({.limits = {.rankCount = 12}});
  const Status status = rank->launcher().addBuffer(&status, bufferOf(0), 4096);
  EXPECT_EQ(status.code(), Code::kInvalidUsage);
}

}  // namespace
}  // namespace tutti::launch
