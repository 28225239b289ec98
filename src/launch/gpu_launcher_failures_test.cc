// How calls fail: of a group all is launched or nothing, and what was launched is ended.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <string_view>

#include "launch/gpu_launcher_testing.h"

namespace tutti::launch {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(GpuLauncherTest, AGroupThatIsRefusedLaunchesNothingAndHarmsNothing) {
  auto rank = openRank({.limits = {.rankCount = 3}});
  Group unpaired;
  unpaired.add(Collective::kAllReduce, 10).add(Collective::kSend, 10, DataType::kInt8, 1);
  EXPECT_FALSE(unpaired.launch(rank->launcher()).ok()) << "a send to oneself without a receive";
  EXPECT_TRUE(rank->gpu().launches().empty());
  EXPECT_FALSE(rank->launcher().hasFailed());
  EXPECT_TRUE(allReduces(3).launch(rank->launcher()).ok());
}

struct FailedCall {
  const char* call;
  bool isSticky;
};
class GpuLauncherFailing : public testing::TestWithParam<FailedCall> {};

// Of a group all is launched or nothing, or what was is ended, and the communicator says why. In
// either case it goes away as it should.
TEST_P(GpuLauncherFailing, InAnyPlaceOfAGroupLeavesNoPartOfItWaiting) {
  const auto [call, isSticky] = GetParam();
  size_t whole = 0;
  bool hasAborted = false;
  for (int number = 1;; ++number) {
    SCOPED_TRACE(testing::Message() << call << " " << number);
    ASSERT_LT(number, 100);
    for (const int32_t ranksPerDevice : {1, 2}) {
      auto rank = openRank({.limits = {.rankCount = 4, .ranksPerDevice = ranksPerDevice}});
      device::FakeAccelerator& gpu = rank->gpu();
      ASSERT_TRUE(allReduces(1).on(kOther).launch(rank->launcher()).ok());
      gpu.hold();
      ASSERT_TRUE(Group().on(kOther).add(Collective::kAllReduce, 1).launch(rank->launcher()).ok());
      const size_t before = gpu.launches().size();
      gpu.failAt(call, number, isSticky);
      const Status status = manyKinds().launch(rank->launcher());
      const size_t launched = gpu.launches().size() - before;
      if (!gpu.hasFailed()) {
        EXPECT_TRUE(status.ok()) << status.message();
        EXPECT_TRUE(hasAborted || std::string_view(call) == "wait");
        return;
      }
      if (whole == 0) {
        auto healthy = openRank({.limits = {.rankCount = 4}});
        ASSERT_TRUE(manyKinds().launch(healthy->launcher()).ok());
        whole = healthy->gpu().launches().size();
        ASSERT_GT(whole, 4u);
      }
      EXPECT_EQ(status.code(), Code::kUnhandledCudaError);
      EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(call) + ": CUDA_ERROR"));
      const auto launches = gpu.launches();
      EXPECT_EQ(rank->launcher().hasFailed(), isAborted(launches.back()));
      if (rank->launcher().hasFailed()) {
        hasAborted = true;
        gpu.mend();
        EXPECT_EQ(rank->launcher().failure().message(), status.message());
        EXPECT_EQ(allReduces(3).launch(rank->launcher()).message(), status.message());
        EXPECT_EQ(gpu.launches().size(), launches.size()) << "nothing after a failure";
      } else {
        EXPECT_TRUE(launched == 0 || launched == whole) << launched << " of " << whole;
        gpu.mend();
        EXPECT_TRUE(allReduces(3).launch(rank->launcher()).ok()) << "nothing has happened";
      }
      // Where nothing tells when what was launched ends, what it uses stays.
      const bool isKept = rank->launcher().hasFailed() && isSticky;
      gpu.finish(before);
      const bool isOver = rank->launcher().hasFailed() && (launched == 0 || isSticky);
      EXPECT_EQ(rank->launcher().isIdle(), isOver) << launched << " launches run yet";
      gpu.finish();
      EXPECT_TRUE(rank->launcher().isIdle());
      rank->close();
      EXPECT_EQ(gpu.alive(), isKept ? rank->rankCount() + 1 : 0);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Calls, GpuLauncherFailing,
                         testing::Values(FailedCall{"launch", false}, FailedCall{"record", false},
                                         FailedCall{"wait", false}, FailedCall{"launch", true},
                                         FailedCall{"record", true}, FailedCall{"wait", true}));

TEST(GpuLauncherTest, WhatFailsWhileItOpensLeavesNothing) {
  for (const char* call :
       {"makeWords", "createEvent", "createStream", "findKernel", "launch", "record", "isDone"}) {
    bool hasFailed = true;
    for (int number = 1; hasFailed; ++number) {
      SCOPED_TRACE(testing::Message() << call << " " << number);
      GpuRank rank({.limits = {.rankCount = 3, .ranksPerDevice = 2}});
      rank.gpu().failAt(call, number);
      const Status status = rank.open();
      hasFailed = rank.gpu().hasFailed();
      const bool isAsked = std::string_view(call) == "isDone";  // only waits for the trial's end
      EXPECT_EQ(status.ok(), !hasFailed || isAsked) << status.message();
      if (hasFailed && !isAsked) {
        EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(call) + ": CUDA_ERROR"));
      }
      EXPECT_TRUE(hasFailed || number > 1) << "nobody calls it";
      rank.close();
      EXPECT_EQ(rank.gpu().alive(), 0u);
    }
  }
}

TEST(GpuLauncherTest, KernelsThatDoNotEndWhileItOpensAreAnErrorInTime) {
  GpuRank rank(
      {.limits = {.rankCount = 2, .ranksPerDevice = 2}, .timeout = std::chrono::milliseconds(50)});
  rank.gpu().hold();
  const Status status = rank.open();
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("have not ended within 50 ms"), HasSubstr("GPU 0000:01:00.0")));
  EXPECT_EQ(rank.gpu().alive(), 0u);
}

TEST(GpuLauncherTest, ADestroyedStreamIsAnErrorOfTheCall) {
  for (void* last : {kStream, kOther}) {
    for (const int32_t ranksPerDevice : {1, 2}) {
      auto rank = openRank({.limits = {.rankCount = 3, .ranksPerDevice = ranksPerDevice}});
      ASSERT_TRUE(Group().on(last).add(Collective::kAllReduce, 1).launch(rank->launcher()).ok());
      rank->gpu().loseStream(kOther);
      const auto launches = rank->gpu().launches();
      const Status status =
          Group().on(kOther).add(Collective::kAllReduce, 1).launch(rank->launcher());
      EXPECT_EQ(status.code(), Code::kUnhandledCudaError);
      EXPECT_THAT(std::string(status.message()), HasSubstr("CUDA_ERROR_INVALID_HANDLE"));
      EXPECT_EQ(rank->gpu().launches().size(), launches.size());
      EXPECT_FALSE(rank->launcher().hasFailed());
      EXPECT_TRUE(Group().add(Collective::kAllReduce, 1).launch(rank->launcher()).ok());
      rank->close();
      EXPECT_EQ(rank->gpu().alive(), 0u);
    }
  }
}

TEST(GpuLauncherTest, AGpuThatDoesNotTellWhatItHoldsRunsNoKernel) {
  auto rank = openRank({.limits = {.rankCount = 3}});
  rank->gpu().failAt("blocksPerMultiprocessor");
  const Status status = allReduces(1).launch(rank->launcher());
  EXPECT_THAT(std::string(status.message()), HasSubstr("blocksPerMultiprocessor: CUDA_ERROR"));
  EXPECT_TRUE(rank->gpu().launches().empty());
  EXPECT_TRUE(rank->launcher().hasFailed());
  rank->close();
  EXPECT_EQ(rank->gpu().alive(), 0u);
}

TEST(GpuLauncherTest, ALostDeviceHoldsUpNobody) {
  auto rank = openRank({.limits = {.rankCount = 3}});
  rank->gpu().hold();
  ASSERT_TRUE(allReduces(1).launch(rank->launcher()).ok());
  EXPECT_FALSE(rank->launcher().isIdle());
  rank->gpu().failAt("isDone", 1, true);
  EXPECT_TRUE(rank->launcher().waitIdle(kPatience, steadyClock()));
  EXPECT_FALSE(allReduces(1).launch(rank->launcher()).ok());
  rank->launcher().abort();
  rank->close();
}

}  // namespace
}  // namespace tutti::launch
