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
//
// An interface that tells no speed has at least what it has been seen to carry over a second. And
// where the communicator is on few hosts, a link over it is slow that carries far less than most of
// the other links of this process do: that also names one that was slow from its first message on.
// Counted is no more of that than it is supposed to have: between machines of one host far more may
// go through than over any wire.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/units.h"
#include "net/net.h"
#include "transport/transport.h"

namespace tutti::transport::net {

// Of so few hosts nobody has so little by sharing; what a tenth is, is judged without the receiver.
inline constexpr int32_t kFewHosts = 5;

// What a receiver tells: its interfaces' speed.
struct QuietSpeed {
  uint32_t mbit = 0;     // 0: nothing was told
  bool isLeast = false;  // what they have carried; they may have more

  static constexpr uint32_t kLeast = 1u << 31;
  constexpr uint32_t encode() const { return mbit | (isLeast ? kLeast : 0); }
  static constexpr QuietSpeed decode(uint32_t word) {
    return {.mbit = word & ~kLeast, .isLeast = (word & kLeast) != 0};
  }
};

// The most that an interface was seen to carry, in bytes a second, over a second or longer.
class SeenRate {
 public:
  // It has carried so many bytes by now; 0: not known.
  void note(uint64_t bytes, Instant now);
  double most() const { return most_; }

 private:
  std::optional<Instant> since_;
  uint64_t bytes_ = 0;  // then
  double most_ = 0;
};

// What is measured of the links of a process that send, for each to be compared with the others.
// Thread-safe.
class MeasuredLinks {
 public:
  // `link` is any address of its own.
  void note(const void* link, double perSecond, Instant now);
  void forget(const void* link);
  // Of those that were measured lately, without this one; 0: there are none.
  double medianOfOthers(const void* link, Instant now) const;

 private:
  struct Measured {
    const void* link = nullptr;
    double perSecond = 0;
    Instant at{};
  };
  mutable std::mutex mutex_;  // guards the one below
  std::vector<Measured> measured_;
};

// Under its pump's mutex.
class SlowWay {
 public:
  // Of a communicator on so many hosts; 0: not known. `others` is shared by the process's links;
  // null: there are none.
  explicit SlowWay(int32_t hostCount = 0, std::shared_ptr<MeasuredLinks> others = nullptr)
      : hostCount_(hostCount), others_(std::move(others)) {}
  ~SlowWay() {
    if (others_ != nullptr) others_->forget(this);
  }
  SlowWay(const SlowWay&) = delete;
  SlowWay& operator=(const SlowWay&) = delete;

  // After messages have gone out: what has by now. Looks at the connection four times a second at
  // most, and only where the messages since the last look are many bytes, or some in a second, and
  // long. Warns.
  void sent(const Motor::Carried& carried, Clock& clock, const tutti::net::Connection& connection) {
    if (carried.bytes - seen_.bytes >= kBytesBetweenLooks && !isOver_)
      look(carried, clock.now(), connection);
  }

  // The receiver has told: its interfaces are of this speed (QuietSpeed), and have little to do.
  void receiverIsQuiet(uint32_t word, Instant now) {
    quiet_ = QuietSpeed::decode(word);
    quietAt_ = now;
  }

  struct Sent {
    uint64_t bytes = 0;
    Nanoseconds time{0};
    int32_t hostCount = 0;
    QuietSpeed quiet{};  // what the receiver has told meanwhile
    double carried = 0;  // bytes a second that the interface was seen to send; 0: not known
    double others = 0;   // that the process's other links have in the median; 0: there are none
  };
  // What is to be said of a way that looked so before and after this was sent; empty where nothing
  // is wrong with it. Pure.
  static std::string judge(const tutti::net::Way& before, const tutti::net::Way& after,
                           const Sent& sent);

 private:
  // What a wire of 1 Mbit/s carries in a second.
  static constexpr size_t kBytesBetweenLooks = 120_KiB;

  void look(const Motor::Carried& carried, Instant now, const tutti::net::Connection& connection);
  double compare(const std::optional<tutti::net::Way>& way, Instant now) const;

  const int32_t hostCount_;
  const std::shared_ptr<MeasuredLinks> others_;
  Motor::Carried seen_{};  // at the last look
  Instant lookedAt_{};
  std::optional<tutti::net::Way> before_;  // as it was then
  int slowLooks_ = 0;                      // in a row
  SeenRate seenRate_;
  QuietSpeed quiet_;
  Instant quietAt_{};
  bool isOver_ = false;  // has warned, or there is nothing to see
};

// The receiver's part. Under its pump's mutex.
class QuietReceiver {
 public:
  explicit QuietReceiver(int32_t hostCount) : isOver_(hostCount <= kFewHosts) {}

  // After messages have come: what has by now. What the sender is to be told, the speed of the
  // interfaces here (QuietSpeed); 0: nothing. Looks at the connection once a second at most.
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
  SeenRate seenRate_;
  bool isOver_;  // there is nothing to see, or nothing to ask
};

}  // namespace tutti::transport::net
