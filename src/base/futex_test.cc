#include "base/futex.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>

namespace tutti {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Futex, DoesNotSleepOnAWordThatHasChanged) {
  std::atomic<uint64_t> word{2};
  const Instant before = steadyClock().now();
  sleepOn({.word = &word, .seen = 1}, seconds(30));
  EXPECT_LT(steadyClock().now() - before, seconds(15));
}

TEST(Futex, DoesNotSleepOnManyWordsWhenTheLastHasChanged) {
  std::array<std::atomic<uint64_t>, 5> words{};
  words[4] = 1;
  std::array<FutexPoint, 5> points;
  for (size_t i = 0; i < 5; ++i) points[i] = {.word = &words[i], .seen = 0};
  const Instant before = steadyClock().now();
  sleepOnAny(points, seconds(30));
  EXPECT_LT(steadyClock().now() - before, seconds(15));
}

TEST(Futex, EndsABoundedSleep) {
  std::atomic<uint64_t> word{7};
  const std::array<FutexPoint, 2> points{{{&word, 7}, {&word, 7}}};
  sleepOn(points[0], milliseconds(2));
  if (sleepOnAny(points, milliseconds(2)) == Sleep::kUnsupported)
    GTEST_SKIP() << "no futex_waitv here";
}

TEST(Futex, SleepsAtLeastItsBoundWhenNothingHappens) {
  std::atomic<uint64_t> word{7};
  const std::array<FutexPoint, 2> points{{{&word, 7}, {&word, 7}}};
  // A signal may end one sleep early, never twenty.
  Nanoseconds slept{0};
  for (int i = 0; i < 20; ++i) {
    const Instant before = steadyClock().now();
    if (sleepOnAny(points, milliseconds(1)) == Sleep::kUnsupported)
      GTEST_SKIP() << "no futex_waitv here";
    slept += steadyClock().now() - before;
  }
  EXPECT_GE(slept, milliseconds(15));
}

TEST(Futex, WakesASleeperOnAnyOfItsWords) {
  std::array<std::atomic<uint64_t>, 3> words{};
  std::array<std::atomic<uint32_t>, 3> sleepers{};
  for (size_t which = 0; which < 3; ++which) {
    std::thread sleeper([&] {
      while (words[which].load() == 0) {
        std::array<FutexPoint, 3> points;
        for (size_t i = 0; i < 3; ++i) {
          sleepers[i].fetch_add(1);
          points[i] = {.word = &words[i],
                       .seen = words[i].load() == 0 || i != which ? words[i].load() : 0};
        }
        if (words[which].load() == 0 && sleepOnAny(points, seconds(60)) == Sleep::kUnsupported) {
          sleepOn(points[which], seconds(60));
        }
        for (auto& count : sleepers) count.fetch_sub(1);
      }
    });
    words[which].store(1, std::memory_order_seq_cst);
    wakeIfSleeping(words[which], sleepers[which]);
    sleeper.join();
    EXPECT_EQ(sleepers[which].load(), 0u);
  }
}

TEST(Futex, ComparesOnlyTheLowHalf) {
  std::atomic<uint64_t> word{uint64_t{5} << 32 | 9};
  const Instant before = steadyClock().now();
  sleepOn({.word = &word, .seen = uint64_t{5} << 32 | 8}, seconds(30));
  EXPECT_LT(steadyClock().now() - before, seconds(15));
}

}  // namespace
}  // namespace tutti
