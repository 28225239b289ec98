#include "device/host/waiter.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>

#include "base/futex.h"
#include "base/relax_cpu.h"

namespace tutti::device::host {
namespace {

// Slow-path checks read the clock (25 ns) and cold lines: rarely beside polls of some 20 ns, always
// beside a sleep.
constexpr uint64_t kSpinsPerCheck = 256;
constexpr uint64_t kYieldsPerCheck = 32;

bool hasChanged(const WaitPoint& point) {
  // Sequentially consistent: this load follows the announcement in the sleeper word (base/futex.h).
  return point.word->load(std::memory_order_seq_cst) != point.seen;
}

void announce(const WaitPoint& point) {
  if (point.sleeper != nullptr) point.sleeper->fetch_add(1, std::memory_order_seq_cst);
}

void withdraw(const WaitPoint& point) {
  if (point.sleeper != nullptr) point.sleeper->fetch_sub(1, std::memory_order_seq_cst);
}

void sleepAnnounced(const WaitSet& waits, Nanoseconds bound, Waiting& waiting) {
  std::array<FutexPoint, WaitSet::kCapacity> points;
  static_assert(WaitSet::kCapacity <= kMaxFutexPoints);
  for (size_t i = 0; i < waits.count; ++i) {
    if (hasChanged(waits.points[i])) return;
    points[i] = {.word = waits.points[i].word, .seen = waits.points[i].seen};
  }
  if (waits.count == 1 || waiting.canSleepOnMany.load(std::memory_order_relaxed)) {
    if (sleepOnAny(std::span(points.data(), waits.count), bound) == Sleep::kEnded) return;
    waiting.canSleepOnMany.store(false, std::memory_order_relaxed);
  }
  sleepOn(points[0], std::min(bound, Waiter::kShortSleep));
}

}  // namespace

WaitPolicy makeWaitPolicy(int32_t ranksOnHost, int32_t usableCpus) {
  const int32_t ranks = std::max(ranksOnHost, 1);
  const int32_t cpus = std::max(usableCpus, 1);
  // A spin covers the 0.2-5 µs in which a partner on a CPU of its own answers. Beyond that it may
  // wait for our CPU: then yielding is the best that can be done, and costs little otherwise.
  // Ping-pong of pairs on 2 cores, 2026-11, µs a round trip: 4 ranks with 0/32/256 spins before
  // 256 yields 5.8/20/82, sleeping at once 41; 64 ranks with 0 spins and 0/32/256 yields
  // 540-810/135-254/260-270. The machine was busy with other work, which hurts spinning most.
  // With a CPU for each rank a longer spin costs nobody, and a yield hands the CPU to whatever else
  // runs for a whole time slice: with a compiler beside 2 ranks, 256 spins gave 2,000 µs an 8-byte
  // all-reduce where 0.5 is right (2026-11-20).
  if (ranks <= cpus) return {.spins = 8192, .yields = 1024};
  if (ranks <= 8 * cpus) return {.spins = 0, .yields = 256};
  return {.spins = 0, .yields = 32};
}

int64_t countSwitches() {
  rusage usage{};
  return ::getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

void sleepOnWaits(const WaitSet& waits, Nanoseconds bound, Waiting& waiting) {
  if (waits.overflowed) bound = std::min(bound, Waiter::kShortSleep);
  if (waits.count == 0) {
    sleepFor(std::min(bound, Waiter::kShortSleep));
    return;
  }
  for (size_t i = 0; i < waits.count; ++i) announce(waits.points[i]);
  if (!fenceOthers()) bound = std::min(bound, Waiter::kShortSleep);
  sleepAnnounced(waits, bound, waiting);
  for (size_t i = 0; i < waits.count; ++i) withdraw(waits.points[i]);
}

void waitForChange(const WaitPoint& point, const Waiting& waiting) {
  Waiter waiter(waiting.policy());
  while (!hasChanged(point)) {
    if (waiter.next() != Waiter::Next::kCheckThenSleep) continue;
    announce(point);
    if (!hasChanged(point)) sleepOn({.word = point.word, .seen = point.seen}, kUnbounded);
    withdraw(point);
  }
}

Waiter::Next Waiter::next(uint32_t spins) {
  const uint64_t step = step_;
  if (step < policy_.spins) {
    relaxCpu();
    step_ = std::min<uint64_t>(step + spins, policy_.spins);
    const bool isDue = step_ / kSpinsPerCheck != step / kSpinsPerCheck;
    return isDue ? Next::kCheckThenPoll : Next::kPoll;
  }
  ++step_;
  if (step < uint64_t{policy_.spins} + policy_.yields) {
    ::sched_yield();
    return step % kYieldsPerCheck == kYieldsPerCheck - 1 ? Next::kCheckThenPoll : Next::kPoll;
  }
  return Next::kCheckThenSleep;
}

}  // namespace tutti::device::host
