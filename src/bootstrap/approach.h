// The way to a listener until it has heard us: a connection and, as long as the other side's system
// has not taken our hello, a fresh one now and then. A listener whose queue is full drops what
// begins a connection, or its last step, and our system repeats that after 1, 2, 4 and 8 s (newer
// ones each second at first), a hello after 0.2, 0.4 and so on: a queue that has room again after
// 7.1 s would be found after 15. The first connection stays, so that a slow way is found, too.
// Never blocks but in await(). One thread at a time.
#pragma once

#include <poll.h>

#include <array>
#include <chrono>
#include <optional>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/rng.h"
#include "bootstrap/handshake.h"
#include "bootstrap/poller.h"
#include "bootstrap/socket_address.h"

namespace tutti::bootstrap {

class Approach {
 public:
  struct Options {
    SocketAddress address;
    Introduction introduction;
    const Key* key = nullptr;  // outlives the approach, as the next three
    Clock* clock = &steadyClock();
    Rng* rng = &systemRng();
    Poller* poller = nullptr;  // may be null: hears what look() has to be called for
    uint64_t pollerKey = 0;
    std::chrono::milliseconds timeout{0};  // of the whole approach: TCP's, and for messages
  };
  enum class State : uint8_t { kPending, kHeard, kFailed };
  struct Line {
    UniqueFd fd;
    ClientHandshake handshake;  // its hello is sent
  };
  struct Failure {
    int errnoValue = 0;
    bool wasConnected = false;  // somebody was there, and ended it at once
  };

  // A fresh connection after so long, then after twice as long, and so on up to the second.
  static constexpr std::chrono::milliseconds kFirstPatience{250};
  static constexpr std::chrono::milliseconds kLongestPatience{1'000};

  explicit Approach(const Options& options);
  Approach(const Approach&) = delete;
  Approach& operator=(const Approach&) = delete;

  // Looks at what has happened and does what is due. kHeard: there is an answer, or the other
  // side's system has taken the hello, and take() may be called, once.
  State look();
  Line take();
  // Of kFailed.
  const Failure& failure() const { return failure_; }

  // When look() wants to be called without an event.
  Instant nextLook() const { return freshAt_; }
  // Sleeps until look() may find something, at most until then.
  void await(Instant until) const;

  // There was an answer to a connection, if not to its hello.
  bool isConnected() const { return first_.hasGreeted || fresh_.hasGreeted; }
  int firstFd() const { return first_.fd.get(); }
  size_t connectionCount() const { return size_t{bool(first_.fd)} + size_t{bool(fresh_.fd)}; }

 private:
  struct Try {
    UniqueFd fd;
    bool hasGreeted = false;
    std::optional<ClientHandshake> handshake;
  };

  int start(Try& attempt);
  bool advance(Try& attempt);
  bool greet(Try& attempt);
  bool fail(int errnoValue, bool wasConnected);
  bool findHeard();
  void tellDelay(Instant now);

  const Options options_;
  const Instant begun_;
  bool hasToldDelay_ = false;
  std::chrono::milliseconds patience_ = kFirstPatience;
  Instant freshAt_;
  Try first_;
  Try fresh_;
  Try* heard_ = nullptr;
  Failure failure_;
};

}  // namespace tutti::bootstrap
