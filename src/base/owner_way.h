// One thread's way in that costs no locked instruction: its owner, the first thread to come, says
// by plain stores that it is inside. Another that must know makes it fence first (base/futex.h),
// which takes some microseconds and happens rarely.
//
//   owner:  enter(); if (gate.load() is open) go on; else leave();
//   other:  gate.store(closed, seq_cst); awaitOutside() or fence(), then isInside()
// The fence lies before the owner's enter(), between that and its look at the gate, or after both.
// In the first two cases it sees the gate closed, in the last the other sees it inside.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/futex.h"

namespace tutti {

// Of the threads alive; a later thread may have the same again. One instruction where a
// thread_local of a shared library takes a call.
inline uintptr_t thisThread() { return reinterpret_cast<uintptr_t>(__builtin_thread_pointer()); }

class OwnerWay {
 public:
  bool isMine() const { return owner_.load(std::memory_order_relaxed) == thisThread(); }
  // Makes the calling thread the owner, for good, where there is none yet and others can fence it.
  bool tryOwn() {
    if (owner_.load(std::memory_order_relaxed) != 0 || !canFenceOthers()) return false;
    uintptr_t none = 0;
    return owner_.compare_exchange_strong(none, thisThread(), std::memory_order_seq_cst);
  }

  // The owner's. May be nested.
  void enter() {
    inside_.store(inside_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // the compiler keeps the order, too
  }
  void leave() {
    inside_.store(inside_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
  }

  // The others'.
  void fence() const {
    if (owner_.load(std::memory_order_seq_cst) != 0) fenceOthers();
  }
  bool isInside() const { return inside_.load(std::memory_order_acquire) != 0; }

 private:
  // Written once, by a sequentially consistent compare-and-exchange, before its owner's first
  // enter(); who has closed the gate looks here so, too: one of the two sees the other.
  std::atomic<uintptr_t> owner_{0};
  // Written by the owner alone: leave() with release, read by the others with acquire, so that they
  // see what it did inside. Any order between enter() and others' looks comes of their fence.
  std::atomic<uint32_t> inside_{0};
};

}  // namespace tutti
