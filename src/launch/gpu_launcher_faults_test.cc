// What runs, and its end: how what a kernel writes and what the board says becomes an error, also
// while the driver holds a launch up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "launch/child_testing.h"
#include "launch/gpu_launcher_testing.h"

namespace tutti::launch {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

TEST(GpuLauncherTest, IsIdleWhenTheDeviceHasEndedWhatWasCalled) {
  auto rank = openRank({.limits = {.rankCount = 3}});
  EXPECT_TRUE(rank->launcher().isIdle());
  rank->gpu().hold();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(allReduces(1).launch(rank->launcher()).ok());
  for (uint64_t ended = 0; ended < 5; ++ended) {
    rank->gpu().finish(ended);
    EXPECT_FALSE(rank->launcher().isIdle()) << ended << " of 5";
    EXPECT_FALSE(rank->launcher().waitIdle(Nanoseconds(0), steadyClock()));
  }
  rank->gpu().finish(5);
  EXPECT_TRUE(rank->launcher().isIdle());
}

TEST(GpuLauncherTest, AbortIsSeenByWhatRunsAndTheFirstFailureStays) {
  auto rank = openRank({.limits = {.rankCount = 3}});
  rank->gpu().hold();
  ASSERT_TRUE(manyKinds().launch(rank->launcher()).ok());
  const auto launches = rank->gpu().launches();
  rank->launcher().fail(Status(Code::kRemoteError, "the first"));
  rank->launcher().fail(Status(Code::kInternalError, "the second"));
  for (const NotedLaunch& launch : launches) EXPECT_TRUE(isAborted(launch));
  EXPECT_EQ(rank->launcher().failure().message(), "the first");
  EXPECT_EQ(allReduces(1).launch(rank->launcher()).code(), Code::kRemoteError);
  EXPECT_EQ(rank->gpu().launches().size(), launches.size());
}

struct FaultCase {
  wire::GpuFault fault;
  int32_t peer;
  Code code;
  const char* text;
};

TEST(GpuLauncherTest, WhatAKernelWritesBecomesAnErrorThatNamesThePeer) {
  using wire::GpuFault;
  const std::string who = "rank 2 \\(node2, pid 1002, GPU 2\\)";
  const std::vector<FaultCase> faults = {
      {GpuFault::kAborted, 2, Code::kRemoteError, "aborted while waiting for WHO in AllGather"},
      {GpuFault::kTimedOut, 2, Code::kRemoteError,
       "rank 1 waited 250 ms for WHO in AllGather \\(message 77\\); TUTTI_GPU_WAIT_MS"},
      {GpuFault::kMismatch, 2, Code::kInvalidUsage,
       "rank 1 is in AllGather but WHO runs another call"},
      {GpuFault::kTimedOut, -1, Code::kRemoteError, "for a rank in AllGather"},
      {GpuFault::kTimedOut, 3, Code::kRemoteError, "for a rank in AllGather"},
  };
  for (const FaultCase& one : faults) {
    for (const bool isCaptured : {false, true}) {
      auto rank = openRank({.limits = {.rankCount = 3},
                            .timeout = std::chrono::seconds(1),
                            .waitLimit = std::chrono::milliseconds(250)});
      rank->gpu().hold();
      if (isCaptured) rank->gpu().beginCapture(kStream, 5);
      ASSERT_TRUE(Group().add(Collective::kAllGather, 100).launch(rank->launcher()).ok());
      if (isCaptured) rank->gpu().endCapture(5);
      const NotedLaunch launch = rank->gpu().launches().back();
      wire::GpuError& error = *wordsOf(launch).error;
      error.peer = one.peer;
      error.collective = static_cast<uint32_t>(Collective::kAllGather);
      error.number = 77;
      std::atomic_ref(error.fault).store(static_cast<uint32_t>(one.fault));
      ASSERT_TRUE(rank->failsWithin(kPatience)) << one.text;
      const Status failure = rank->launcher().failure();
      EXPECT_EQ(failure.code(), one.code);
      std::string wanted = one.text;
      if (const size_t at = wanted.find("WHO"); at != std::string::npos) wanted.replace(at, 3, who);
      EXPECT_THAT(std::string(failure.message()), ContainsRegex(wanted));
      EXPECT_TRUE(isAborted(launch));
      EXPECT_TRUE(rank->board().hasVerdict()) << "the others hear of it";
    }
  }
}

TEST(GpuLauncherTest, AVerdictOfAnotherRankEndsWhatWaits) {
  for (const bool isCaptured : {false, true}) {
    auto rank = openRank({.limits = {.rankCount = 3}, .timeout = std::chrono::seconds(1)});
    rank->gpu().hold();
    if (isCaptured) rank->gpu().beginCapture(kStream, 5);
    ASSERT_TRUE(allReduces(1).launch(rank->launcher()).ok());
    rank->recorderOf(0).giveVerdict(
        {.code = Code::kRemoteError, .guilty = 2, .text = "rank 2 fell into a well"});
    ASSERT_TRUE(rank->failsWithin(kPatience));
    EXPECT_THAT(std::string(rank->launcher().failure().message()), HasSubstr("into a well"));
    EXPECT_TRUE(isAborted(rank->gpu().launches().back()));
  }
}

// ---- the dead

class GpuLauncherDeathTest : public testing::Test {
 protected:
  // Rank 2 is a process of its own.
  void open(Nanoseconds timeout = std::chrono::seconds(2)) {
    rank_ =
        std::make_unique<GpuRank>(GpuRank::Options{.limits = {.rankCount = 3}, .timeout = timeout});
    observe::Page& page = rank_->board().page(2);
    page.processId = child_.identity().processId;
    page.processStart = child_.identity().start;
    ASSERT_TRUE(rank_->open().ok());
    rank_->gpu().hold();
  }
  void capture(const Group& group) {
    rank_->gpu().beginCapture(kStream, 9);
    EXPECT_TRUE(group.launch(rank_->launcher()).ok());
    rank_->gpu().endCapture(9);
  }
  void expectNamed() {
    const Instant start = steadyClock().now();
    ASSERT_TRUE(rank_->failsWithin(kPatience));
    took_ = steadyClock().now() - start;
    EXPECT_EQ(rank_->launcher().failure().code(), Code::kRemoteError);
    EXPECT_THAT(std::string(rank_->launcher().failure().message()), HasSubstr("rank 2 (node2"));
    EXPECT_TRUE(isAborted(rank_->gpu().launches().back()));
  }

  Child child_;  // first: it is to have a copy of nothing
  std::unique_ptr<GpuRank> rank_;
  Nanoseconds took_{};
};

TEST_F(GpuLauncherDeathTest, OfARankThatIsAwaitedEndsWhatWaits) {
  open();
  ASSERT_TRUE(allReduces(1).launch(rank_->launcher()).ok());
  sleepFor(std::chrono::milliseconds(300));
  EXPECT_FALSE(rank_->launcher().hasFailed()) << "late is not dead";
  child_.end();
  expectNamed();
}

TEST_F(GpuLauncherDeathTest, IsFoundWhereOnlyReplaysMayRun) {
  open();
  capture(allReduces(1));
  EXPECT_TRUE(rank_->launcher().isIdle());
  sleepFor(std::chrono::milliseconds(700));  // into the longest pauses
  EXPECT_FALSE(rank_->launcher().hasFailed());
  child_.end();
  expectNamed();
}

TEST_F(GpuLauncherDeathTest, IsNobodysBusinessWhileNothingWasCalled) {
  open();
  ASSERT_TRUE(allReduces(1).launch(rank_->launcher()).ok());
  rank_->gpu().finish();
  EXPECT_TRUE(rank_->launcher().isIdle());
  sleepFor(std::chrono::milliseconds(100));
  child_.end();
  sleepFor(std::chrono::milliseconds(300));
  EXPECT_FALSE(rank_->launcher().hasFailed());
  rank_->gpu().hold();
  ASSERT_TRUE(allReduces(1).launch(rank_->launcher()).ok());
  expectNamed();
}

TEST_F(GpuLauncherDeathTest, OfARankThatIsStoppedForLongerThanTheTimeoutIsTold) {
  open(std::chrono::seconds(1));
  ASSERT_TRUE(allReduces(1).launch(rank_->launcher()).ok());
  child_.stop();
  expectNamed();
  EXPECT_THAT(std::string(rank_->launcher().failure().message()), HasSubstr("alive, stopped"));
}

// ---- launches that the driver holds up

// One that comes back when the abort word is raised, as when a kernel has to end first.
class HeldUpLaunch {
 public:
  explicit HeldUpLaunch(GpuRank& rank) {
    rank.gpu().onLaunch = [this](const device::KernelLaunch& launch) {
      const auto& view = static_cast<const wire::GpuLaunch*>(launch.argument)->view;
      std::atomic_ref abort(const_cast<uint32_t&>(*view.abortWord));
      isHeldUp_ = true;
      const Instant deadline = steadyClock().now() + kPatience;
      while (abort.load() == 0 && steadyClock().now() < deadline)
        sleepFor(std::chrono::milliseconds(1));
      wasAborted_ = abort.load() != 0;
    };
    caller_ = std::thread([&rank] { allReduces(1).launch(rank.launcher()).ok(); });
    while (!isHeldUp_) sleepFor(std::chrono::milliseconds(1));
  }
  ~HeldUpLaunch() {
    if (caller_.joinable()) caller_.join();
  }

  // Once.
  bool wasAborted() {
    caller_.join();
    return wasAborted_;
  }

 private:
  std::atomic<bool> isHeldUp_ = false;
  std::atomic<bool> wasAborted_ = false;
  std::thread caller_;
};

// Which another communicator's kernel may be the reason for: ncclCommAbort returns all the same.
TEST(GpuLauncherTest, WhoWaitsForTheEndOfALaunchThatTheDriverHoldsUpWaitsNoLongerThanItSaid) {
  auto rank = openRank({.limits = {.rankCount = 3}});
  HeldUpLaunch launch(*rank);
  const Instant start = steadyClock().now();
  EXPECT_FALSE(rank->launcher().waitIdle(std::chrono::milliseconds(200), steadyClock()));
  EXPECT_LT(steadyClock().now() - start, kPatience / 2);
  rank->launcher().abort();
  EXPECT_TRUE(launch.wasAborted());
  EXPECT_TRUE(rank->launcher().waitIdle(kPatience, steadyClock()));
}

// While another thread allocates; the watcher ends it without the launcher's mutex.
TEST(GpuLauncherTest, ALaunchThatTheDriverHoldsUpIsEndedWhenItsPeerHasLeft) {
  auto rank = openRank({.limits = {.rankCount = 3}});
  HeldUpLaunch launch(*rank);
  rank->recorderOf(2).setLife(observe::Life::kDestroyed);
  EXPECT_TRUE(launch.wasAborted());
  ASSERT_TRUE(rank->failsWithin(kPatience));
  EXPECT_THAT(std::string(rank->launcher().failure().message()),
              AllOf(HasSubstr("rank 2 (node2"), HasSubstr("destroyed")));
}

// Far ahead of the GPU, where kernels wait for that rank for good.
TEST_F(GpuLauncherDeathTest, EndsALaunchThatTheDriverHoldsUp) {
  open();
  HeldUpLaunch launch(*rank_);
  sleepFor(std::chrono::milliseconds(300));
  EXPECT_FALSE(rank_->launcher().hasFailed()) << "late is not dead";
  child_.end();
  EXPECT_TRUE(launch.wasAborted());
  expectNamed();
}

TEST_F(GpuLauncherDeathTest, EndsALaunchThatTheDriverHoldsUpForARankThatIsStopped) {
  open(std::chrono::seconds(1));
  HeldUpLaunch launch(*rank_);
  child_.stop();
  EXPECT_TRUE(launch.wasAborted());
  expectNamed();
  EXPECT_THAT(std::string(rank_->launcher().failure().message()), HasSubstr("alive, stopped"));
}

TEST(GpuLauncherTest, ALaunchThatTheDriverHoldsUpIsEndedByAnotherRanksVerdict) {
  auto rank = openRank({.limits = {.rankCount = 3}});
  HeldUpLaunch launch(*rank);
  rank->recorderOf(0).giveVerdict(
      {.code = Code::kRemoteError, .guilty = 2, .text = "rank 2 fell into a well"});
  EXPECT_TRUE(launch.wasAborted());
  ASSERT_TRUE(rank->failsWithin(kPatience));
}

}  // namespace
}  // namespace tutti::launch
