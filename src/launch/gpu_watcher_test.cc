#include "launch/gpu_watcher.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>

#include "base/futex.h"

namespace tutti::launch {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Nanoseconds kInterval = milliseconds(2);
constexpr Nanoseconds kPatience = seconds(30);  // of a busy machine's; what is awaited takes
                                                // milliseconds

// Says what a test wants, and counts the looks.
class FakeWatched final : public GpuWatcher::Watched {
 public:
  std::atomic<int64_t> answer{kUntilWoken.count()};
  std::atomic<uint64_t> looks{0};

  void say(Nanoseconds pause) { answer.store(pause.count()); }
  std::function<void()> afterLook;  // before the watcher goes on

  Nanoseconds look() override {
    const Nanoseconds said(answer.load());
    looks.fetch_add(1);
    if (afterLook) std::exchange(afterLook, nullptr)();
    return said;
  }
  // From now on; where nothing keeps the watcher awake its looks may be over.
  bool isLookedAt(uint64_t more) { return hasBeenLookedAt(looks.load() + more); }
  bool hasBeenLookedAt(uint64_t wanted = 1) {
    const Instant deadline = steadyClock().now() + kPatience;
    while (looks.load() < wanted && steadyClock().now() < deadline) sleepFor(microseconds(100));
    return looks.load() >= wanted;
  }
  // How many more there are after a span, and how long it really was.
  struct Seen {
    uint64_t looks;
    Nanoseconds span;
  };
  Seen watchFor(Nanoseconds span) {
    const Instant start = steadyClock().now();
    const uint64_t before = looks.load();
    sleepFor(span);
    return {.looks = looks.load() - before, .span = steadyClock().now() - start};
  }
};

// As many as there can be, one of which was under way, with such pauses from the first to the
// longest.
uint64_t most(Nanoseconds span, Nanoseconds first, Nanoseconds longest) {
  uint64_t looks = 1;
  Nanoseconds pause = first;
  for (Nanoseconds at = pause; at <= span; at += pause, ++looks)
    pause = std::min(2 * pause, longest);
  return looks;
}

constexpr Nanoseconds kSoon = GpuWatcher::Watched::kSoon;
constexpr Nanoseconds kUntilWoken = GpuWatcher::Watched::kUntilWoken;

// Of this process, the watchers'.
size_t watcherThreads() {
  size_t count = 0;
  ::DIR* folder = ::opendir("/proc/self/task");
  while (const ::dirent* entry = ::readdir(folder)) {
    std::FILE* file =
        std::fopen((std::string("/proc/self/task/") + entry->d_name + "/comm").c_str(), "r");
    if (file == nullptr) continue;
    std::array<char, 32> name{};
    if (std::fgets(name.data(), name.size(), file) != nullptr)
      count += std::string(name.data()) == "tutti-gpu-watch\n" ? 1 : 0;
    std::fclose(file);
  }
  ::closedir(folder);
  return count;
}

// A thread that has been joined may be listed for a moment yet.
bool areWatchersGone() {
  for (int look = 0; look < 1000 && watcherThreads() != 0; ++look) sleepFor(milliseconds(1));
  return watcherThreads() == 0;
}

class GpuWatcherTest : public testing::Test {
 protected:
  // The look that it has just begun, and the one ahead of the sleep, are over.
  void settle() { sleepFor(10 * kInterval); }

  FakeWatched first_, second_;
  GpuWatcher watcher_{kInterval};
};

TEST_F(GpuWatcherTest, HasNoThreadBeforeThereIsSomethingToWatchAndNoneAfterItsEnd) {
  {
    GpuWatcher watcher(kInterval);
    EXPECT_EQ(watcherThreads(), 0u);
    for (const Nanoseconds pause : {kUntilWoken, kSoon, Nanoseconds(hours(1))}) {
      FakeWatched watched;
      watched.say(pause);
      watcher.add(watched);
      watcher.wake();
      EXPECT_TRUE(watched.hasBeenLookedAt());
      EXPECT_EQ(watcherThreads(), 1u);
      watcher.remove(watched);
    }
  }
  EXPECT_TRUE(areWatchersGone());
  // Whatever it is at when it ends.
  for (const Nanoseconds pause : {kUntilWoken, kSoon, Nanoseconds(hours(1))}) {
    FakeWatched watched;
    watched.say(pause);
    GpuWatcher watcher(kInterval);
    watcher.add(watched);
    EXPECT_TRUE(watched.hasBeenLookedAt());
  }
  EXPECT_TRUE(areWatchersGone());
}

TEST_F(GpuWatcherTest, LooksAtIntervalsWhileSomethingRuns) {
  first_.say(kSoon);
  watcher_.add(first_);
  watcher_.add(second_);
  EXPECT_TRUE(first_.isLookedAt(20));
  EXPECT_TRUE(second_.isLookedAt(5)) << "all of them";
  const auto seen = first_.watchFor(50 * kInterval);
  EXPECT_LE(seen.looks, most(seen.span, kInterval, kInterval)) << "no more often";
  watcher_.remove(first_);
  watcher_.remove(second_);
}

TEST_F(GpuWatcherTest, SleepsWhileNothingRunsUntilItIsWoken) {
  watcher_.add(first_);
  ASSERT_TRUE(first_.hasBeenLookedAt());
  settle();
  EXPECT_EQ(first_.watchFor(100 * kInterval).looks, 0u);
  for (int round = 0; round < 20; ++round) {
    const uint64_t before = first_.looks.load();
    first_.say(round % 2 == 0 ? kSoon : kUntilWoken);
    watcher_.wake();
    EXPECT_TRUE(first_.isLookedAt(1)) << "round " << round;
    EXPECT_GT(first_.looks.load(), before);
    first_.say(kUntilWoken);
    settle();
  }
  EXPECT_EQ(first_.watchFor(100 * kInterval).looks, 0u);
  watcher_.remove(first_);
}

TEST_F(GpuWatcherTest, WorkThatComesBetweenALookAndTheSleepIsSeen) {
  for (const Nanoseconds pause : {kUntilWoken, Nanoseconds(hours(1))}) {
    FakeWatched watched;
    GpuWatcher watcher(kInterval);
    watched.say(pause);
    watched.afterLook = [&] {
      watched.say(kSoon);
      watcher.wake();
    };
    watcher.add(watched);
    EXPECT_TRUE(watched.hasBeenLookedAt(10));
  }
}

// Two threads at once: no wake is lost, whatever the watcher is about to do.
TEST_F(GpuWatcherTest, NoWakeIsLost) {
  for (const Nanoseconds pause : {kUntilWoken, Nanoseconds(hours(1))}) {
    FakeWatched watched;
    watched.say(pause);
    watcher_.add(watched);
    for (int round = 0; round < 120; ++round) {
      watched.say(kSoon);
      watcher_.wake();
      const uint64_t seen = watched.looks.load();
      // While it is said that something runs, it is looked at again and again.
      ASSERT_TRUE(watched.isLookedAt(2)) << "round " << round << " after " << seen;
      watched.say(pause);
      if (round % 3 == 0) sleepFor(2 * kInterval);
    }
    watcher_.remove(watched);
  }
}

// Of replays nobody tells: 2, 4, 8 … intervals, up to what is asked for.
TEST_F(GpuWatcherTest, PausesGrowWhereOnlyReplaysMayRun) {
  first_.say(32 * kInterval);
  watcher_.add(first_);
  ASSERT_TRUE(first_.hasBeenLookedAt());
  for (int span = 0; span < 3; ++span) {
    const auto seen = first_.watchFor(100 * kInterval);
    const Nanoseconds next = span == 0 ? 2 * kInterval : 32 * kInterval;
    EXPECT_LE(seen.looks, most(seen.span, next, 32 * kInterval) + 1) << "span " << span;
  }
  EXPECT_TRUE(first_.isLookedAt(3)) << "but it does look";
  // From short ones on, each time.
  first_.say(hours(1));
  watcher_.wake();
  EXPECT_TRUE(first_.isLookedAt(8)) << "2, 4 … 256 intervals apart";
  watcher_.remove(first_);
}

TEST_F(GpuWatcherTest, TheMostUrgentOfThoseWatchedSaysHowLongAPauseIs) {
  first_.say(hours(1));
  second_.say(4 * kInterval);
  watcher_.add(first_);
  watcher_.add(second_);
  EXPECT_TRUE(first_.isLookedAt(20));
  second_.say(kUntilWoken);
  ASSERT_TRUE(second_.isLookedAt(1));
  const auto seen = first_.watchFor(200 * kInterval);
  EXPECT_LE(seen.looks, most(seen.span, 4 * kInterval, hours(1)) + 1)
      << "8, 16, 32 … intervals apart";
  second_.say(kSoon);
  watcher_.wake();
  EXPECT_TRUE(first_.isLookedAt(20)) << "woken out of a pause";
  watcher_.remove(first_);
  watcher_.remove(second_);
}

TEST_F(GpuWatcherTest, WhoIsRemovedIsNotLookedAtAgain) {
  first_.say(kSoon);
  second_.say(kSoon);
  watcher_.add(first_);
  watcher_.add(second_);
  ASSERT_TRUE(first_.isLookedAt(3));
  watcher_.remove(first_);
  const uint64_t looks = first_.looks.load();
  EXPECT_TRUE(second_.isLookedAt(10));
  EXPECT_EQ(first_.looks.load(), looks);
  watcher_.remove(second_);
}

TEST_F(GpuWatcherTest, AnIdleProcessUsesNoProcessorTimeForIt) {
  first_.say(Nanoseconds(seconds(10)) / 8);
  GpuWatcher watcher;  // with the interval of the library
  watcher.add(first_);
  ASSERT_TRUE(first_.hasBeenLookedAt());
  sleepFor(milliseconds(20));
  const auto used = [] {
    ::rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return seconds(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           microseconds(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  const Nanoseconds before = used();
  const auto seen = first_.watchFor(milliseconds(1500));
  EXPECT_LE(seen.looks, most(seen.span, milliseconds(200), Nanoseconds(seconds(10)) / 8));
  EXPECT_LE(used() - before, milliseconds(20));
  watcher.remove(first_);
}

}  // namespace
}  // namespace tutti::launch
