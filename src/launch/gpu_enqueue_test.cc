// What the library itself takes of a call's time on the host: on a device whose calls do nothing. A
// launch takes some 2.6 µs of the driver's besides (H200, driver 580); a call is to take 3 µs, a
// group of 50 small ones 100 µs up to its end.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "launch/gpu_rank_testing.h"

namespace tutti::launch {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kSlowdown = 20;
#else
constexpr double kSlowdown = 1;
#endif

class GpuEnqueueTest : public testing::Test {
 protected:
  static constexpr int kRounds = 200;
  static constexpr int kCalls = 50;

  void SetUp() override {
    const Status status = rank_.open();
    ASSERT_TRUE(status.ok()) << status.message();
    rank_.gpu().doesNothing = true;
  }
  // The best round's, short enough that nobody has the CPU in its middle.
  double microsecondsOf(int callCount) {
    std::vector<Call> calls(static_cast<size_t>(callCount));
    std::vector<StreamCall> items;
    for (Call& call : calls) {
      call.shape.count = 256;
      items.push_back({.call = &call, .stream = &rank_});
    }
    double best = 1e9;
    for (int round = 0; round < kRounds; ++round) {
      const Instant start = steadyClock().now();
      for (int i = 0; i < kCalls; ++i) isFine_ &= rank_.launcher().launch(items, false).ok();
      best = std::min(best, static_cast<double>((steadyClock().now() - start).count()) / kCalls);
    }
    EXPECT_TRUE(isFine_);
    return best / 1e3;
  }

  GpuRank rank_{{.limits = {.rankCount = 4}}};
  bool isFine_ = true;
};

TEST_F(GpuEnqueueTest, ACallTakesAFractionOfTheDriversTime) {
  const double each = microsecondsOf(1);
  fmt::print("enqueue: {:.3f} µs a call\n", each);
  EXPECT_LT(each, 1 * kSlowdown);
}

TEST_F(GpuEnqueueTest, AGroupOfFiftyTakesAFractionOfItsTime) {
  const double all = microsecondsOf(50);
  fmt::print("enqueue: {:.2f} µs a group of 50\n", all);
  EXPECT_LT(all, 20 * kSlowdown);
}

}  // namespace
}  // namespace tutti::launch
