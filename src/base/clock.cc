#include "base/clock.h"

namespace tutti {
namespace {

class SteadyClock final : public Clock {
 public:
  Instant now() override {
    return Instant{
        std::chrono::duration_cast<Nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count()};
  }
};

}  // namespace

Clock& steadyClock() {
  // Never destroyed: service threads ask it while the process ends.
  static SteadyClock& clock = *new SteadyClock;
  return clock;
}

int64_t wallClockSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

int64_t wallClockNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace tutti
