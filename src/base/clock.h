// Time through a seam, so that protocol tests can run it by hand. Monotonic: wall-clock jumps
// cannot reach a deadline.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tutti {

using Nanoseconds = std::chrono::nanoseconds;

// A point on the monotonic clock, in nanoseconds since an unspecified start.
enum class Instant : int64_t {};

constexpr Instant operator+(Instant at, Nanoseconds span) {
  return Instant{static_cast<int64_t>(at) + span.count()};
}
constexpr Nanoseconds operator-(Instant later, Instant earlier) {
  return Nanoseconds(static_cast<int64_t>(later) - static_cast<int64_t>(earlier));
}

class Clock {
 public:
  virtual Instant now() = 0;  // any thread
  virtual ~Clock() = default;
};

// CLOCK_MONOTONIC.
Clock& steadyClock();

// Since 1970 by the machine's wall clock, for what people or other machines read: it jumps, so
// never for deadlines.
int64_t wallClockSeconds();
int64_t wallClockNanoseconds();

// Stands still until told; for tests.
class ManualClock final : public Clock {
 public:
  Instant now() override { return Instant{nanoseconds_.load(std::memory_order_relaxed)}; }
  void advance(Nanoseconds span) {
    nanoseconds_.fetch_add(span.count(), std::memory_order_relaxed);
  }

 private:
  std::atomic<int64_t> nanoseconds_{1};
};

}  // namespace tutti
