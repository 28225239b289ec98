// Accepts connections and admits those that pass the handshake. What strangers can cost is fixed:
// 64 half-open connections of a few hundred bytes each, no thread, no allocation. Used on one
// service thread, which owns the poller.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/rng.h"
#include "base/status.h"
#include "bootstrap/handshake.h"
#include "bootstrap/poller.h"
#include "bootstrap/socket_address.h"

namespace tutti::bootstrap {

// A connection whose other end has proved that it knows the secret. Its poller registration still
// has the acceptor's key.
struct Accepted {
  UniqueFd fd;
  SocketAddress from;
  Introduction introduction;
  SessionKeys keys;
};

class Acceptor {
 public:
  struct Options {
    Key key;
    Purpose purpose = Purpose::kReport;
    uint64_t firstPollerKey = 0;  // of kFirstFreeKey keys that are the acceptor's
    std::chrono::milliseconds helloTimeout{5'000};
    std::string who;  // "root of job 1a2b3c4d", for logs
    Clock* clock = &steadyClock();
    Rng* rng = &systemRng();
  };
  struct Counters {
    uint64_t admitted = 0;
    uint64_t refused = 0;     // broke the protocol or had another secret
    uint64_t timedOut = 0;    // said too little for helloTimeout
    uint64_t evicted = 0;     // made room for newer ones
    uint64_t left = 0;        // closed before they were through
    uint64_t fullQueues = 0;  // times that the system's queue was found full
  };

  static constexpr size_t kMaxHalfOpen = 64;
  // How many poller keys are the acceptor's; the first that is not, where it has them from 0 on.
  static constexpr uint64_t kFirstFreeKey = kMaxHalfOpen + 1;

  // Takes over a listening socket. `poller` outlives the acceptor.
  static Result<std::unique_ptr<Acceptor>> open(UniqueFd listener, Options options, Poller& poller);

  const SocketAddress& address() const { return address_; }
  const Counters& counters() const { return counters_; }
  // Why those that wait to be accepted are not, as part of a message; empty: nothing in the way.
  const std::string& obstacle() const { return obstacle_; }

  // For an event with one of its keys. Appends the connections that are through.
  void onEvent(uint64_t key, std::vector<Accepted>& accepted);

  // True when a client that has shown a good hello for this connection has yet to confirm it.
  bool isExpecting(Rank rank, Rank target) const;

  // When onTime() wants to be called next; none: not at all.
  std::optional<Instant> nextTime() const;
  // Appends the connections that are through after all. Who could not be heard in time, as this
  // thread had no CPU, has not been silent.
  void onTime(std::vector<Accepted>& accepted);

 private:
  struct HalfOpen {
    UniqueFd fd;
    std::optional<ServerHandshake> handshake;
    Instant since{};
  };

  Acceptor(UniqueFd listener, Options options, Poller& poller);
  uint64_t keyOf(uint64_t slot) const { return options_.firstPollerKey + slot; }
  void forgiveStall();
  void acceptAll(std::vector<Accepted>& accepted);
  bool acceptOne(HalfOpen& slot);
  void noteFullQueue();
  void noteObstacle(int errnoValue);
  HalfOpen* findFree(std::vector<Accepted>& accepted);
  HalfOpen* findEvictable();
  void advance(HalfOpen& slot, std::vector<Accepted>& accepted);
  bool feed(HalfOpen& slot, std::span<const std::byte> bytes);
  void refuse(HalfOpen& slot, Refusal why);
  void close(HalfOpen& slot, uint64_t& counter);
  void pauseListening(Instant until);
  void resumeListening();

  UniqueFd listener_;
  Options options_;
  Poller* poller_;
  SocketAddress address_;
  Counters counters_;
  std::string obstacle_;
  bool hasWarnedOfLimit_ = false;
  bool hasWarnedOfQueue_ = false;
  bool isFull_ = false;              // paused because no slot is free
  std::optional<Instant> resumeAt_;  // set while paused
  std::array<HalfOpen, kMaxHalfOpen> slots_;
};

}  // namespace tutti::bootstrap
