// What a thread does between looks at a network that has nothing to sleep on: it spins, then lets
// others have the CPU, then sleeps ever longer.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "base/relax_cpu.h"

namespace tutti::net {

class Pauses {
 public:
  // So many looks it spins after.
  explicit Pauses(uint32_t spins = 64) : spins_(spins) {}

  void moved() { idle_ = 0; }
  // Spins or yields; else gives how long to sleep.
  std::optional<std::chrono::microseconds> next() {
    if (++idle_ <= spins_) {
      relaxCpu();
      return std::nullopt;
    }
    if (idle_ <= kYields) [[likely]] {
      sched_yield();
      sleep_ = kShortest;
      return std::nullopt;
    }
    const auto sleep = sleep_;
    sleep_ = std::min(2 * sleep_, kLongest);
    return sleep;
  }

 private:
  static constexpr uint32_t kYields = 2000;
  static constexpr std::chrono::microseconds kShortest{20};
  static constexpr std::chrono::microseconds kLongest{1000};
  const uint32_t spins_;
  uint32_t idle_ = 0;
  std::chrono::microseconds sleep_{kShortest};
};

}  // namespace tutti::net
