// A lock for sections of some nanoseconds that threads hardly ever meet in. The first thread that
// takes it has it for a few plain stores, until another comes; from then on it takes one locked
// instruction, and none to let go. A std::mutex takes two, and two calls: 14 ns more (2026-11-21).
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>

#include "base/owner_way.h"

namespace tutti {

// For std::lock_guard. Not recursive.
class BriefLock {
 public:
  [[gnu::always_inline]] void lock() {
    if (way_.isMine()) {
      way_.enter();
      if (!isContended_.load(std::memory_order_relaxed)) return;
      way_.leave();
    }
    lockWithOthers();
  }
  [[gnu::always_inline]] void unlock() {
    if (way_.isMine() && way_.isInside()) {
      way_.leave();
    } else {
      taken_.store(false, std::memory_order_release);
    }
  }

 private:
  void lockWithOthers() {
    if (taken_.exchange(true, std::memory_order_acquire)) [[unlikely]]
      lockSlowly();
    if (isContended_.load(std::memory_order_relaxed) || way_.isMine() || way_.tryOwn()) return;
    isContended_.store(true, std::memory_order_seq_cst);
    way_.fence();
    while (way_.isInside()) ::sched_yield();
  }
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

  OwnerWay way_;
  // Another thread has come: the owner's way is closed for good. Set under taken_, once, before the
  // owner is fenced (base/owner_way.h); read by the owner once it is inside.
  std::atomic<bool> isContended_{false};
  // Taken with acquire, let go with release: what one holder did, the next sees.
  std::atomic<bool> taken_{false};
};

}  // namespace tutti
