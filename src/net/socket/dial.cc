#include "net/socket/dial.h"

#include <poll.h>

#include <array>
#include <cerrno>
#include <string>

#include "bootstrap/approach.h"
#include "bootstrap/outgoing.h"
#include "bootstrap/poller.h"
#include "bootstrap/socket.h"
#include "bootstrap/trouble.h"
#include "net/socket/way.h"

namespace tutti::net::socket {
namespace {

using bootstrap::Approach;
using bootstrap::IoState;

class Dialer {
 public:
  explicit Dialer(const DialOptions& options)
      : options_(options), deadline_(options.clock->now() + options.timeout) {}

  Result<Dialed> run() {
    for (int attempt = 1;; ++attempt) {
      UniqueFd fd = tryOnce();
      if (fd) return Dialed{.fd = std::move(fd), .keys = keys_};
      const auto pause = bootstrap::backoff(attempt);
      if (isFinal_ || options_.clock->now() + pause >= deadline_) break;
      bootstrap::pauseFor(pause);
    }
    const int32_t target = index(options_.introduction.target);
    return remoteError(
        "rank {} cannot connect to rank {} at {}: {}{}; rank {} is to be reached where its "
        "NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY say",
        index(options_.introduction.rank), target, options_.address.text(),
        way_.empty() ? "no interface leads there: "
                     : fmt::format("interface {} cannot reach it: ", way_),
        trouble_, target);
  }

 private:
  UniqueFd tryOnce() {
    bootstrap::Approach approach({.address = options_.address,
                                  .introduction = options_.introduction,
                                  .key = options_.key,
                                  .clock = options_.clock,
                                  .rng = options_.rng,
                                  .timeout = options_.timeout});
    if (approach.firstFd() >= 0) way_ = ownEnd(approach.firstFd()).text;
    for (;;) {
      switch (approach.look()) {
        case Approach::State::kPending: break;
        case Approach::State::kHeard: return shakeHands(approach.take());
        case Approach::State::kFailed:
          return fail(approach.failure().wasConnected
                          ? "closed during the handshake"
                          : bootstrap::connectTrouble(approach.failure().errnoValue));
      }
      if (options_.clock->now() >= deadline_) {
        return fail(approach.isConnected() ? "silent in the handshake"
                                           : "no answer; is a firewall in between?");
      }
      approach.await(deadline_);
    }
  }

  UniqueFd shakeHands(Approach::Line line) {
    bootstrap::ClientHandshake& handshake = line.handshake;
    const int fd = line.fd.get();
    std::array<std::byte, bootstrap::kReplyBytes> buffer;
    while (!handshake.isDone()) {
      if (!isReadable(fd)) return fail("silent in the handshake");
      const auto wanted = std::span(buffer).first(handshake.wantedBytes());
      const bootstrap::IoResult read = bootstrap::readSome(fd, wanted);
      if (read.state == IoState::kClosed) return fail("turned away in the handshake");
      if (read.state == IoState::kWouldBlock) continue;
      if (handshake.feed(wanted.first(read.count)) != bootstrap::Refusal::kNone) {
        isFinal_ = true;
        return fail("whoever listens there does not know the link's secret");
      }
    }
    if (!write(fd, handshake.confirm())) return fail("closed during the handshake");
    keys_ = handshake.keys();
    return std::move(line.fd);
  }

  UniqueFd fail(std::string trouble) {
    trouble_ = std::move(trouble);
    return {};
  }

  bool isReadable(int fd) const {
    for (;;) {
      const int left = bootstrap::millisecondsUntil(*options_.clock, deadline_);
      pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
      const int count = ::poll(&entry, 1, left);
      if (count > 0) return true;
      if (count == 0 || errno != EINTR) return false;
    }
  }

  // The handshake always fits a fresh connection's buffer.
  static bool write(int fd, std::span<const std::byte> bytes) {
    const bootstrap::IoResult written = bootstrap::writeSome(fd, bytes);
    return written.state == IoState::kMoved && written.count == bytes.size();
  }

  const DialOptions& options_;
  const Instant deadline_;
  bool isFinal_ = false;
  std::string trouble_;
  std::string way_;
  bootstrap::SessionKeys keys_;
};

}  // namespace

Result<Dialed> dial(const DialOptions& options) { return Dialer(options).run(); }

}  // namespace tutti::net::socket
