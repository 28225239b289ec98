// Tells, once, of a link whose wire carries far less than its interface could: a cable, a switch or
// a route that is at fault makes all ranks slow, and no call fails.
//
// Believed is what the system measures of what arrives (the delivery rate of TCP), several times in
// a row. Who is late, be it the rank that sends or the one that receives, is no wire; an interface
// that others keep busy is none, and a long way has its reasons.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "base/units.h"
#include "net/net.h"
#include "transport/transport.h"

namespace tutti::transport::net {

// Under its pump's mutex.
class SlowWay {
 public:
  // Of a communicator on so many hosts; 0: not known.
  explicit SlowWay(int32_t hostCount = 0) : hostCount_(hostCount) {}

  // After messages have gone out: what has by now. Looks at the connection four times a second at
  // most, and only where the messages since the last look are many bytes, or some in a second, and
  // long. Warns.
  void sent(const Motor::Carried& carried, Clock& clock, const tutti::net::Connection& connection) {
    if (carried.bytes - seen_.bytes >= kBytesBetweenLooks && !isOver_)
      look(carried, clock.now(), connection);
  }

  struct Sent {
    uint64_t bytes = 0;
    Nanoseconds time{0};
    int32_t hostCount = 0;
  };
  // What is to be said of a way that looked so before and after this was sent; empty where nothing
  // is wrong with it. Pure.
  static std::string judge(const tutti::net::Way& before, const tutti::net::Way& after,
                           const Sent& sent);

 private:
  // What a wire of 1 Mbit/s carries in a second.
  static constexpr size_t kBytesBetweenLooks = 120_KiB;

  void look(const Motor::Carried& carried, Instant now, const tutti::net::Connection& connection);

  const int32_t hostCount_;
  Motor::Carried seen_{};  // at the last look
  Instant lookedAt_{};
  std::optional<tutti::net::Way> before_;  // as it was then
  int slowLooks_ = 0;                      // in a row
  bool isOver_ = false;                    // has warned, or there is nothing to see
};

}  // namespace tutti::transport::net
