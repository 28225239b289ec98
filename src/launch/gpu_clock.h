// GpuClock: what the host's clock says when a GPU's global timer has a value.
//
// A stamp that the GPU takes between two looks at the host's clock gives the least and the most
// that the clocks differ by. Each stamp narrows what is known, and what is known widens as the
// clocks drift, so that a stamp that came late does no harm. A fit of a line through stamps was the
// alternative: one late stamp bends it, and nothing says how far it is off.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace tutti::launch {

class GpuClock {
 public:
  // 50 ppm: crystals differ by some 10 ppm, and the host's clock is slewed to the network's time.
  static constexpr int64_t kDriftDivisor = 20'000;

  // The GPU's timer had the value `stamp` between the two.
  void learn(Instant before, uint64_t stamp, Instant after);

  // REQUIRES, as the next: a stamp has been learnt.
  Instant instantOf(uint64_t stamp) const;
  // How far that may be off either way, for stamps near the last one learnt.
  Nanoseconds uncertainty() const { return Nanoseconds((most_ - least_) / 2); }

 private:
  bool isKnown_ = false;
  int64_t learntAt_ = 0;  // by the GPU's timer
  int64_t least_ = 0;     // that the host's clock is ahead
  int64_t most_ = 0;
};

}  // namespace tutti::launch
