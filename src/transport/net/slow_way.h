// Tells, once, of a link whose wire carries far less than its interface could: a cable, a switch or
// a route that is at fault makes all ranks slow, and no call fails.
//
// Believed is what the system measures of what arrives (the delivery rate of TCP), several times in
// a row. Who is late, be it the rank that sends or the one that receives, is no wire; an interface
// that others keep busy is none, and a long way has its reasons.
//
// In a large communicator a tenth of a wire may be a sender's share of it: where many hosts send to
// one, each has as little. Of that only the receiver knows. So it tells the sender of a link over
// which little arrives, while little arrives from all others together, too.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "base/units.h"
#include "net/net.h"
#include "transport/transport.h"

namespace tutti::transport::net {

// Of so few hosts nobody has so little by sharing; what a tenth is, is judged without the receiver.
inline constexpr int32_t kFewHosts = 5;

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

  // The receiver has told: its interfaces are of this speed, and have little to do.
  void receiverIsQuiet(uint32_t mbitPerSecond, Instant now) {
    quietMbit_ = mbitPerSecond;
    quietAt_ = now;
  }

  struct Sent {
    uint64_t bytes = 0;
    Nanoseconds time{0};
    int32_t hostCount = 0;
    uint32_t quietMbit = 0;  // what the receiver has told meanwhile; 0: nothing
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
  uint32_t quietMbit_ = 0;
  Instant quietAt_{};
  bool isOver_ = false;  // has warned, or there is nothing to see
};

// The receiver's part. Under its pump's mutex.
class QuietReceiver {
 public:
  explicit QuietReceiver(int32_t hostCount) : isOver_(hostCount <= kFewHosts) {}

  // After messages have come: what has by now. What the sender is to be told, the Mbit/s of the
  // interfaces here; 0: nothing. Looks at the connection once a second at most.
  uint32_t received(const Motor::Carried& carried, Clock& clock,
                    const tutti::net::Connection& connection) {
    if (isOver_ || carried.bytes - seen_.bytes < kBytesBetweenLooks) return 0;
    return look(carried, clock.now(), connection);
  }

 private:
  static constexpr size_t kBytesBetweenLooks = 120_KiB;  // as SlowWay's

  uint32_t look(const Motor::Carried& carried, Instant now,
                const tutti::net::Connection& connection);

  Motor::Carried seen_{};  // at the last look
  Instant lookedAt_{};
  std::optional<tutti::net::Way> before_;  // as it was then
  bool isOver_;                            // there is nothing to see, or nothing to ask
};

}  // namespace tutti::transport::net
