#include "launch/gpu_clock.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/rng.h"

namespace tutti::launch {
namespace {

constexpr int64_t kAhead = 1'700'000'000'000'000'000;  // a GPU's timer counts since 1970
constexpr int64_t kSecond = 1'000'000'000;

uint64_t timerAt(int64_t host, double drift) {
  return static_cast<uint64_t>(kAhead + host + static_cast<int64_t>(drift * double(host)));
}
int64_t errorOf(const GpuClock& clock, int64_t host, double drift) {
  return static_cast<int64_t>(clock.instantOf(timerAt(host, drift))) - host;
}

TEST(GpuClockTest, KnowsTheHostsTimeWithinWhatItSays) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SeededRng rng(seed);
    const double drift = (static_cast<double>(rng.below(81)) - 40) * 1e-6;
    GpuClock clock;
    int64_t now = kSecond;
    for (int i = 0; i < 200; ++i) {
      now += static_cast<int64_t>(rng.below(kSecond / 5));
      const auto before = static_cast<int64_t>(rng.below(20'000));
      const auto after = static_cast<int64_t>(rng.below(5'000));
      clock.learn(Instant{now - before}, timerAt(now, drift), Instant{now + after});
      EXPECT_LE(std::abs(errorOf(clock, now, drift)), clock.uncertainty().count()) << seed;
      EXPECT_LE(clock.uncertainty().count(), 12'500);
    }
  }
}

TEST(GpuClockTest, NarrowsWithEachStampAndIsNotHarmedByALateOne) {
  GpuClock clock;
  clock.learn(Instant{1000}, timerAt(1500, 0), Instant{9000});
  EXPECT_EQ(clock.uncertainty().count(), 4000);
  clock.learn(Instant{10'000}, timerAt(17'000, 0), Instant{17'100});
  EXPECT_EQ(clock.uncertainty().count(), 300) << "from -500 on by the first, up to 100 by this";
  clock.learn(Instant{20'000}, timerAt(25'000, 0), Instant{kSecond});
  EXPECT_LE(clock.uncertainty().count(), 301);
}

TEST(GpuClockTest, BeginsAnewWhereAClockHasBeenSet) {
  GpuClock clock;
  clock.learn(Instant{1000}, timerAt(1500, 0), Instant{2000});
  const uint64_t jumped = timerAt(3000, 0) + static_cast<uint64_t>(kSecond);
  clock.learn(Instant{2500}, jumped, Instant{3500});
  EXPECT_EQ(static_cast<int64_t>(clock.instantOf(jumped)), 3000);
}

}  // namespace
}  // namespace tutti::launch
