#include "base/brief_lock.h"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>
#include <vector>

namespace tutti {
namespace {

TEST(BriefLock, LetsOneThreadInAtATime) {
  BriefLock lock;
  int count = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int times = 0; times < 10'000; ++times) {
        std::lock_guard guard(lock);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 80'000);
}

// The first thread has a way of its own, which ends while it may be inside.
TEST(BriefLock, AnotherThreadComesWhileTheFirstIsInAndOut) {
  for (int round = 0; round < 200; ++round) {
    BriefLock lock;
    std::atomic<bool> hasBegun{false};
    int count = 0;
    const auto add = [&] {
      for (int times = 0; times < 500; ++times) {
        std::lock_guard guard(lock);
        ++count;
        hasBegun = true;
      }
    };
    std::thread first(add);
    while (!hasBegun) std::this_thread::yield();
    add();
    first.join();
    EXPECT_EQ(count, 1000);
  }
}

TEST(BriefLock, OutlastsALongHolder) {
  BriefLock lock;
  lock.lock();
  std::atomic<bool> isIn{false};
  std::thread waiter([&] {
    std::lock_guard guard(lock);
    isIn = true;
  });
  sleepFor(std::chrono::milliseconds(5));  // long enough for the waiter to have gone to sleep
  EXPECT_FALSE(isIn);
  lock.unlock();
  waiter.join();
  EXPECT_TRUE(isIn);
}

}  // namespace
}  // namespace tutti
