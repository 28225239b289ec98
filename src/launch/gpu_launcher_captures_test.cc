// Calls that become part of a graph.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/rng.h"
#include "launch/gpu_launcher_testing.h"

namespace tutti::launch {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

TEST(GpuLauncherTest, CapturedCallsNeitherRunNorHoldUpIdleness) {
  auto rank = openRank({.limits = {.rankCount = 4}});
  rank->gpu().hold();
  rank->gpu().beginCapture(kStream, 3);
  ASSERT_TRUE(allReduces(20).launch(rank->launcher()).ok());
  EXPECT_TRUE(rank->launcher().isIdle());
  for (const NotedLaunch& launch : rank->gpu().launches()) EXPECT_EQ(launch.capture, 3u);
  rank->gpu().endCapture(3);
  ASSERT_TRUE(allReduces(1).launch(rank->launcher()).ok());
  EXPECT_FALSE(rank->launcher().isIdle());
}

// Whichever comes first: work of a stream outside would become part of the graph, or be lost.
TEST(GpuLauncherTest, AGroupIsWhollyPartOfOneCaptureOrOfNone) {
  for (const uint64_t first : {0, 3, 4}) {
    for (const uint64_t second : {0, 3, 4}) {
      auto rank = openRank({.limits = {.rankCount = 4}});
      if (first != 0) rank->gpu().beginCapture(kStream, first);
      if (second != 0) rank->gpu().beginCapture(kOther, second);
      const Status status = manyKinds().launch(rank->launcher());
      EXPECT_FALSE(rank->launcher().hasFailed());
      if (first == second) {
        EXPECT_TRUE(status.ok()) << status.message();
        continue;
      }
      EXPECT_EQ(status.code(), Code::kInvalidUsage);
      EXPECT_THAT(std::string(status.message()), HasSubstr("captured"));
      EXPECT_TRUE(rank->gpu().launches().empty());
      rank->close();
      EXPECT_EQ(rank->gpu().alive(), 0u) << "no graph has anything of it";
    }
  }
}

// What a user's mistake, or another thread's, does to a capture is no failure of the communicator:
// nothing of it will ever run.
TEST(GpuLauncherTest, ABrokenCaptureIsAnErrorOfTheCallAlone) {
  for (const int32_t ranksPerDevice : {1, 2}) {
    for (void* broken : {kStream, kOther}) {
      auto rank = openRank({.limits = {.rankCount = 3, .ranksPerDevice = ranksPerDevice}});
      const size_t before = rank->gpu().launches().size();
      rank->gpu().beginCapture(broken, 3);
      rank->gpu().breakCapture(3);
      const Status status = manyKinds().launch(rank->launcher());
      EXPECT_EQ(status.code(), Code::kInvalidUsage);
      EXPECT_THAT(std::string(status.message()),
                  ContainsRegex("capture of stream 0x.* has failed"));
      EXPECT_EQ(rank->gpu().launches().size(), before);
      rank->gpu().endCapture(3);
      EXPECT_TRUE(manyKinds().launch(rank->launcher()).ok());
      rank->close();
      EXPECT_EQ(rank->gpu().alive(), 0u) << "no graph has anything of it";
    }
  }
}

// Another thread may break it at any time.
TEST(GpuLauncherTest, ACaptureThatBreaksAmidACallDoesNotEndTheCommunicator) {
  for (size_t launchesBefore = 0; launchesBefore < 4; ++launchesBefore) {
    auto rank = openRank({.limits = {.rankCount = 3}});
    device::FakeAccelerator& gpu = rank->gpu();
    gpu.beginCapture(kStream, 3);
    gpu.onLaunch = [&](const device::KernelLaunch&) {
      if (gpu.launches().size() == launchesBefore) gpu.breakCapture(3);
    };
    const Status status = allReduces(50).launch(rank->launcher());
    EXPECT_EQ(status.code(), Code::kUnhandledCudaError);
    EXPECT_EQ(gpu.launches().size(), launchesBefore);
    EXPECT_FALSE(rank->launcher().hasFailed());
    EXPECT_TRUE(observe::readBoard(rank->board())[1].history.empty()) << "the others know of none";
    gpu.endCapture(3);
    ASSERT_TRUE(allReduces(1).launch(rank->launcher()).ok());
    EXPECT_FALSE(isAborted(gpu.launches().back()));
    rank->close();
    EXPECT_EQ(gpu.alive(), 0u);
  }
}

TEST(GpuLauncherTest, AStreamThatTellsNothingOfCapturesTakesNoCall) {
  for (const int number : {1, 2}) {
    auto rank = openRank({.limits = {.rankCount = 3}});
    rank->gpu().failAt("captureOf", number);
    const Status status = manyKinds().launch(rank->launcher());
    EXPECT_THAT(std::string(status.message()), HasSubstr("captureOf: CUDA_ERROR"));
    EXPECT_TRUE(rank->gpu().launches().empty());
    EXPECT_TRUE(manyKinds().launch(rank->launcher()).ok());
  }
}

// Replays after the end find the abort word raised, and it, the error's words and the segments
// where they were.
TEST(GpuLauncherTest, WhatAGraphHoldsOutlivesTheCommunicator) {
  for (const bool isAbortedBefore : {false, true}) {
    auto rank = openRank({.limits = {.rankCount = 4}});
    rank->gpu().beginCapture(kStream, 3);
    ASSERT_TRUE(allReduces(40).launch(rank->launcher()).ok());
    rank->gpu().endCapture(3);
    const auto launches = rank->gpu().launches();
    if (isAbortedBefore) rank->launcher().abort();
    rank->close();
    EXPECT_EQ(rank->gpu().alive(), rank->rankCount() + 2)
        << "the segments, the words and the graph's event";
    for (const NotedLaunch& launch : launches) {
      EXPECT_TRUE(isAborted(launch));
      const auto view = argumentOf<wire::GpuLaunch>(launch).view;
      view.error->peer = 1;
      for (int32_t peer = 0; peer < view.rankCount; ++peer) *view.segments[peer] = std::byte{1};
    }
  }
}

// Of communicators that come and go in one process; nothing runs on another's kept memory.
TEST(GpuLauncherTest, WhatAGraphHeldGoesWithIt) {
  for (const bool isGraphFirst : {true, false}) {
    const GpuRankOptions options{.limits = {.rankCount = 2}};
    GpuProcesses processes(2);
    device::FakeAccelerator& gpu = processes.gpus[0];
    for (uint64_t cycle = 1; cycle <= 50; ++cycle) {
      GpuCommunicator communicator(processes, options);
      ASSERT_TRUE(communicator.open(0).ok());
      gpu.beginCapture(kStream, cycle);
      ASSERT_TRUE(allReduces(5).launch(*communicator.launcher(0)).ok());
      gpu.endCapture(cycle);
      gpu.replay(cycle, kOther);
      if (isGraphFirst) gpu.destroyGraph(cycle);
      communicator.launcher(0).reset();
      // The one before's has gone when this one's words were made.
      EXPECT_EQ(gpu.alive(), isGraphFirst ? 0u : 4u) << "cycle " << cycle;
      if (!isGraphFirst) gpu.destroyGraph(cycle);
    }
    ASSERT_TRUE(gpu.makeWords(1).ok());
    EXPECT_EQ(gpu.alive(), 0u);
  }
}

// Of several graphs the last; a graph that is gone holds nothing, whenever the communicator goes.
TEST(GpuLauncherTest, TheLastOfSeveralGraphsLetsGo) {
  auto rank = openRank({.limits = {.rankCount = 4}});
  for (const uint64_t id : {1, 2, 3}) {
    rank->gpu().beginCapture(kStream, id);
    ASSERT_TRUE(allReduces(5).launch(rank->launcher()).ok());
    rank->gpu().endCapture(id);
  }
  rank->gpu().destroyGraph(2);
  rank->close();
  for (const uint64_t id : {1, 3}) {
    ASSERT_TRUE(rank->gpu().makeWords(1).ok());
    EXPECT_EQ(rank->gpu().alive(), rank->rankCount() + 2);
    rank->gpu().destroyGraph(id);
  }
  ASSERT_TRUE(rank->gpu().makeWords(1).ok());
  EXPECT_EQ(rank->gpu().alive(), 0u);
}

TEST(GpuLauncherTest, WithoutACaptureNothingOutlivesTheCommunicator) {
  for (const int32_t rankCount : {1, 2, 8, 12}) {
    auto rank = openRank({.limits = {.rankCount = rankCount}, .self = 0});
    SeededRng rng(3);
    if (rankCount > 1) {
      EXPECT_TRUE(drawGroup(rng, rankCount, 0).group.launch(rank->launcher()).ok());
    }
    rank->close();
    EXPECT_EQ(rank->gpu().alive(), 0u);
  }
}

}  // namespace
}  // namespace tutti::launch
