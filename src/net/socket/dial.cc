#include "net/socket/dial.h"

#include <array>
#include <cerrno>
#include <utility>

#include "bootstrap/outgoing.h"
#include "bootstrap/socket.h"
#include "bootstrap/trouble.h"
#include "net/socket/way.h"

namespace tutti::net::socket {
namespace {

using bootstrap::Approach;
using bootstrap::IoState;

// The handshake always fits a fresh connection's buffer.
bool write(int fd, std::span<const std::byte> bytes) {
  const bootstrap::IoResult written = bootstrap::writeSome(fd, bytes);
  return written.state == IoState::kMoved && written.count == bytes.size();
}

}  // namespace

Dialer::Dialer(const DialOptions& options)
    : options_(options),
      deadline_(options.clock->now() + options.timeout),
      retryAt_(options.clock->now()) {}

Result<bool> Dialer::poll() {
  if (stage_ == Stage::kPausing && options_.clock->now() >= retryAt_) begin();
  if (stage_ == Stage::kApproaching) approach();
  if (stage_ == Stage::kShakingHands) shakeHands();
  if (stage_ == Stage::kFailed) return failure();
  return stage_ == Stage::kDone;
}

void Dialer::begin() {
  approach_.emplace(Approach::Options{.address = options_.address,
                                      .introduction = options_.introduction,
                                      .key = options_.key,
                                      .clock = options_.clock,
                                      .rng = options_.rng,
                                      .timeout = options_.timeout});
  if (approach_->firstFd() >= 0) way_ = ownEnd(approach_->firstFd()).text;
  stage_ = Stage::kApproaching;
}

void Dialer::approach() {
  switch (approach_->look()) {
    case Approach::State::kPending:
      if (!isTooLate()) return;
      return fail(approach_->isConnected() ? "silent in the handshake"
                                           : "no answer; is a firewall in between?");
    case Approach::State::kHeard: {
      Approach::Line line = approach_->take();
      approach_.reset();
      fd_ = std::move(line.fd);
      handshake_.emplace(std::move(line.handshake));
      stage_ = Stage::kShakingHands;
      return;
    }
    case Approach::State::kFailed: {
      const Approach::Failure failure = approach_->failure();
      return fail(failure.wasConnected ? "closed during the handshake"
                                       : bootstrap::connectTrouble(failure.errnoValue),
                  failure.errnoValue);
    }
  }
}

void Dialer::shakeHands() {
  std::array<std::byte, bootstrap::kReplyBytes> buffer;
  while (!handshake_->isDone()) {
    const auto wanted = std::span(buffer).first(handshake_->wantedBytes());
    const bootstrap::IoResult read = bootstrap::readSome(fd_.get(), wanted);
    if (read.state == IoState::kClosed) return fail("turned away in the handshake");
    if (read.state == IoState::kWouldBlock) {
      if (isTooLate()) fail("silent in the handshake");
      return;
    }
    if (handshake_->feed(wanted.first(read.count)) != bootstrap::Refusal::kNone) {
      fail("whoever listens there does not know the link's secret");
      stage_ = Stage::kFailed;  // nor will it later
      return;
    }
  }
  if (!write(fd_.get(), handshake_->confirm())) return fail("closed during the handshake");
  keys_ = handshake_->keys();
  handshake_.reset();
  stage_ = Stage::kDone;
}

void Dialer::fail(std::string trouble, int errnoValue) {
  trouble_ = std::move(trouble);
  errno_ = errnoValue;
  approach_.reset();
  handshake_.reset();
  fd_.reset();
  retryAt_ = options_.clock->now() + bootstrap::backoff(++attempts_);
  stage_ = retryAt_ >= deadline_ ? Stage::kFailed : Stage::kPausing;
}

Status Dialer::failure() const {
  const int32_t target = index(options_.introduction.target);
  if (errno_ == EMFILE || errno_ == ENFILE)  // this process's trouble, and no interface's
    return systemError("connect to", fmt::format("rank {}", target), errno_);
  return remoteError(
      "rank {} cannot connect to rank {} at {}: {}{}; rank {} is to be reached where its "
      "NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY say",
      index(options_.introduction.rank), target, options_.address.text(),
      way_.empty() ? "no interface leads there: "
                   : fmt::format("interface {} cannot reach it: ", way_),
      trouble_, target);
}

}  // namespace tutti::net::socket
