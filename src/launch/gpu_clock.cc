#include "launch/gpu_clock.h"

#include <algorithm>
#include <cstdlib>

namespace tutti::launch {

void GpuClock::learn(Instant before, uint64_t stamp, Instant after) {
  const auto at = static_cast<int64_t>(stamp);
  const int64_t least = static_cast<int64_t>(before) - at;
  const int64_t most = static_cast<int64_t>(after) - at;
  const int64_t drift = std::abs(at - learntAt_) / kDriftDivisor;
  if (isKnown_) {
    least_ = std::max(least, least_ - drift);
    most_ = std::min(most, most_ + drift);
  }
  // At first, or somebody has set a clock.
  if (!isKnown_ || least_ > most_) {
    least_ = least;
    most_ = most;
  }
  isKnown_ = true;
  learntAt_ = at;
}

Instant GpuClock::instantOf(uint64_t stamp) const {
  return Instant{static_cast<int64_t>(stamp) + least_ + (most_ - least_) / 2};
}

}  // namespace tutti::launch
