// Waiting without burning what others need: spin, then yield, then sleep on the words that must
// change.
#pragma once

#include <algorithm>
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

// Halves what a policy allows while waits outlast it again and again, and doubles it back when they
// end in time.
//
// Two ranks may sit on one CPU although each could have its own: where sessions are the scheduler's
// groups (autogroups; newer versions of torchrun give each rank one), it balances groups and not
// threads, and keeps them there while other work keeps the other CPUs. Whoever spins then spins
// away the very time in which its partner could answer, 230 µs a message; and between sessions a
// yield yields nothing. Each rank for itself sees the same sign: waits do not end before it yields
// or sleeps, and others run on its CPU then. One such wait is no sign, as a partner may be late; so
// two in a row count. A partner that works for 100 us on a CPU of its own is none: who went to
// sleep for it took 430 us for a round trip of 64 KiB, encrypted, where 193 to 223 are enough.
// Figures: docs/results/notes.md, 2026-11-21 and -23.
class Patience {
 public:
  WaitPolicy limit(const WaitPolicy& policy) const {
    const uint32_t halvings = state_.load(std::memory_order_relaxed) >> 1;
    if (halvings == 0) return policy;
    return {.spins = policy.spins >> halvings,
            .yields = std::min(policy.yields, std::max(policy.yields >> halvings, kLeastYields))};
  }
  // After each wait: whether it ended within what was hoped for (Waiter::wasShort), or disturbed
  // nobody on this CPU.
  void learn(bool wasShort) {
    const uint32_t state = state_.load(std::memory_order_relaxed);
    if (state == 0 && wasShort) return;  // the usual case writes no shared line
    uint32_t halvings = state >> 1;
    const bool wasLongBefore = (state & 1) != 0;
    if (wasShort && halvings > 0) --halvings;
    if (!wasShort && wasLongBefore && halvings < kMostHalvings) ++halvings;
    state_.store(halvings << 1 | (wasShort ? 0u : 1u), std::memory_order_relaxed);
  }

 private:
  static constexpr uint32_t kMostHalvings = 7;
  static constexpr uint32_t kLeastYields = 8;
  // Halvings << 1 | whether the last wait was long. Relaxed, and a learned one may get lost: a
  // hint.
  std::atomic<uint32_t> state_{0};
};

// How often another thread has taken the calling thread's CPU, by its yields too: one that finds
// nobody to run does not count. 0 where the kernel does not tell. A system call.
int64_t countSwitches();

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
  int64_t (*switches)() = countSwitches;  // tests count otherwise
  Patience patience;
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
  void reset(const WaitPolicy& policy) {
    policy_ = policy;
    step_ = 0;
  }
  bool hasWaited() const { return step_ != 0; }
  // Whether next() will give the CPU away, or want a sleep.
  bool isDoneSpinning() const { return step_ >= policy_.spins; }
  // Whether it is past spinning: the last next() gave the CPU away, or wants a sleep.
  bool isYielding() const { return step_ > policy_.spins; }
  // Whether the wait ended in the phase that is to catch it: spinning where there is any, else
  // yielding.
  bool wasShort() const { return step_ <= (policy_.spins != 0 ? policy_.spins : policy_.yields); }

  // Nothing advanced: pauses or yields as the phase wants, and says what is next. `spins`: how many
  // polls of memory the last poll was worth.
  Next next(uint32_t spins = 1);

 private:
  WaitPolicy policy_;
  uint64_t step_ = 0;
};

}  // namespace tutti::device::host
