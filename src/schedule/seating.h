// Ranks on hosts that hold as many each, for the algorithms that follow them. Included by their
// files only.
#pragma once

#include <cstdint>

#include "schedule/algorithms.h"

namespace tutti::schedule {

// One rank's view: hosts one after the other, each with its ranks in seats.
class Seating {
 public:
  Seating(const ScheduleOptions& options, Rank rank)
      : hostCount_(options.hostCount),
        seatCount_(options.rankCount / options.hostCount),
        host_(index(rank) / seatCount_),
        seat_(index(rank) % seatCount_) {}

  int32_t hostCount() const { return hostCount_; }
  int32_t seatCount() const { return seatCount_; }
  int32_t host() const { return host_; }
  int32_t hostAfter(int32_t distance) const { return (host_ + distance) % hostCount_; }
  int32_t hostBefore(int32_t distance) const { return hostAfter(hostCount_ - distance); }

  Rank at(int32_t host, int32_t seat) const { return Rank{host * seatCount_ + seat}; }
  // In this rank's seat on another host.
  Rank counterpart(int32_t host) const { return at(host, seat_); }
  int32_t seatAfter(int32_t distance) const { return (seat_ + distance) % seatCount_; }
  int32_t seatBefore(int32_t distance) const { return seatAfter(seatCount_ - distance); }
  Rank neighbour(int32_t distance) const { return at(host_, seatAfter(distance)); }

 private:
  int32_t hostCount_, seatCount_, host_, seat_;
};

}  // namespace tutti::schedule
