// Waiting without burning what others need: spin, then yield, then sleep on the words that must
// change.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/futex.h"
#include "device/task.h"

namespace tutti::device::host {

// How long a thread with nothing to do keeps its CPU before it sleeps: polls with a pause in
// between, then polls with sched_yield() in between.
struct WaitPolicy {
  uint32_t spins = 0;
  uint32_t yields = 0;
};

// Few ranks: spin, a round trip between caches costs 0.2 µs and a wake-up by futex 0.7-5.5 µs. More
// ranks than CPUs: the rank that is waited for needs this very CPU, so give it away soon. Numbers
// below 1 count as 1.
WaitPolicy makeWaitPolicy(int32_t ranksOnHost, int32_t usableCpus);

// What all waiting threads of the device share. Any thread.
class Waiting {
 public:
  // Aborts and faults are seen by slow-path checks, so a sleep that nobody ends must end by itself.
  static constexpr Nanoseconds kLongestSleep = std::chrono::milliseconds(100);

  explicit Waiting(Clock& timeSource, Nanoseconds sleepBound = kLongestSleep)
      : clock(timeSource), longestSleep(sleepBound) {
    allowFences();
  }

  WaitPolicy policy() const {
    const uint64_t packed = policy_.load(std::memory_order_relaxed);
    return {.spins = static_cast<uint32_t>(packed >> 32), .yields = static_cast<uint32_t>(packed)};
  }
  void setPolicy(const WaitPolicy& policy) {
    policy_.store(uint64_t{policy.spins} << 32 | policy.yields, std::memory_order_relaxed);
  }

  Clock& clock;
  const Nanoseconds longestSleep;
  // Turns false, for good, when the kernel refuses to sleep on several words. Relaxed: only saves
  // the next try.
  std::atomic<bool> canSleepOnMany{true};

 private:
  std::atomic<uint64_t> policy_{0};  // one word, so that no mixture is ever read; relaxed, it is a
                                     // hint
};

// Sleeps while no point has changed. Counts itself in each sleeper word first, fences all ranks'
// threads and looks at each word once more, so no wake-up is lost (base/futex.h). Ends early on any
// wake-up, and after `bound` at the latest; within 1 ms when the set is empty, overflowed, or has
// several points where the kernel takes one, or when the kernel cannot fence.
void sleepOnWaits(const WaitSet& waits, Nanoseconds bound, Waiting& waiting);

// Returns when the word differs from `seen`: spins, yields, and then sleeps without bound. The word
// must be published by the protocol of base/futex.h.
void waitForChange(const WaitPoint& point, const Waiting& waiting);

// The phases of one wait for many words. One thread.
class Waiter {
 public:
  // seen by then
  static constexpr Nanoseconds kShortSleep = std::chrono::milliseconds(1);  // when nobody will wake
                                                                            // the sleeper

  enum class Next : uint8_t {
    kPoll,           // poll again
    kCheckThenPoll,  // the slow-path checks are due, then poll again
    kCheckThenSleep  // they are due, then sleepOnWaits()
  };

  explicit Waiter(const WaitPolicy& policy) : policy_(policy) {}

  // Something advanced: begin with the first phase when next idle.
  void reset() { step_ = 0; }

  // Nothing advanced: pauses or yields as the phase wants, and says what is next. `spins`: how many
  // polls of memory the last poll was worth.
  Next next(uint32_t spins = 1);

 private:
  const WaitPolicy policy_;
  uint64_t step_ = 0;
};

}  // namespace tutti::device::host
