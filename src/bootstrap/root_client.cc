#include "bootstrap/root_client.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/units.h"
#include "bootstrap/approach.h"
#include "bootstrap/frame.h"
#include "bootstrap/handshake.h"
#include "bootstrap/outgoing.h"
#include "bootstrap/poller.h"
#include "bootstrap/socket.h"
#include "bootstrap/trouble.h"

namespace tutti::bootstrap {
namespace {

// How often a waiting rank looks at its abort flag.
constexpr std::chrono::milliseconds kAbortCheck{50};

// The root gives up on missing ranks at the same time as we do: leave it a moment to say which.
constexpr std::chrono::milliseconds kAnswerGrace{1'000};

// For the answer to a rank that is leaving: an abort returns within a second.
constexpr std::chrono::milliseconds kLeaving{300};

constexpr int32_t kUnstaggered = 256;  // ranks of one root
constexpr int64_t kConnectsPerSecond = 7000;

enum class Outcome : uint8_t {
  kDone,
  kNobody,      // no connection
  kTurnedAway,  // closed during the handshake
  kLeft,        // closed after our report
  kImpostor,    // does not know the secret
  kGarbled,     // broke the protocol after the handshake
  kTimeout,
  kAborted,
};

class RootClient {
 public:
  explicit RootClient(const RootCall& call)
      : call_(call),
        reaching_(call.isReusable ? call.report.timeout
                                  : std::min(call.timeout, call.report.timeout)),
        reachDeadline_(call.clock->now() + reaching_),
        deadline_(call.clock->now() + call.report.timeout) {}

  Result<Answer> run();

 private:
  Outcome tryOnce();
  Outcome connect();
  Outcome shakeHands();
  Outcome report();
  Outcome awaitAnswer();
  Outcome readAnswer(FrameDecoder& decoder, Instant until);
  Outcome write(std::span<const std::byte> bytes);
  Outcome take(const Frame& frame);
  bool mustStop() const;
  int fd() const { return line_ ? line_->fd.get() : -1; }
  Outcome wait(short events, Instant until) const;
  Outcome pause(Nanoseconds span) const;
  bool mayRetry(Outcome outcome);
  Status explain(Outcome outcome) const;
  std::string age() const;
  std::string keeper() const;

  const RootCall& call_;
  const std::chrono::milliseconds reaching_;  // who made an id runs its root before others have it
  const Instant reachDeadline_;
  const Instant deadline_;  // for the others
  bool isWaiting_ = false;  // has reported
  int turnedAway_ = 0;
  int lastErrno_ = 0;
  bool isLeaving_ = false;  // heeds nobody's wish to stop any more
  std::optional<Approach::Line> line_;
  SessionKeys keys_;
  std::optional<Result<Answer>> answer_;
};

Result<Answer> RootClient::run() {
  const Nanoseconds stagger = staggerOf(call_.report.rank, call_.report.rankCount);
  const Outcome begun = pause(std::min<Nanoseconds>(stagger, call_.report.timeout / 4));
  if (begun == Outcome::kAborted) return explain(begun);
  for (int attempts = 1;; ++attempts) {
    const Outcome outcome = tryOnce();
    if (outcome == Outcome::kDone) return std::move(*answer_);
    if (!mayRetry(outcome)) return explain(outcome);
    const Outcome paused = pause(backoff(attempts));
    if (paused == Outcome::kAborted) return explain(paused);
    if (call_.clock->now() >= reachDeadline_) return explain(outcome);
  }
}

bool RootClient::mayRetry(Outcome outcome) {
  switch (outcome) {
    case Outcome::kNobody: return true;
    case Outcome::kTurnedAway: return call_.isReusable || ++turnedAway_ < kMaxAttempts;
    case Outcome::kLeft: return call_.isReusable;
    case Outcome::kDone:
    case Outcome::kImpostor:
    case Outcome::kGarbled:
    case Outcome::kTimeout:
    case Outcome::kAborted: return false;
  }
  return false;
}

Outcome RootClient::tryOnce() {
  Outcome outcome = connect();
  if (outcome == Outcome::kDone) outcome = shakeHands();
  if (outcome == Outcome::kDone) outcome = report();
  if (outcome == Outcome::kDone) outcome = awaitAnswer();
  line_.reset();
  return outcome;
}

Outcome RootClient::connect() {
  SocketAddress address = call_.address;
  // An id has the scope of the host that made it; here that of the interface we listen at counts.
  // What NCCL_COMM_ID says was read on this host.
  const uint32_t own = call_.report.contact.address.scope();
  if (!call_.isReusable && address.isLinkLocal() && own != 0) address = address.withScope(own);
  Approach approach({.address = address,
                     .introduction = {Purpose::kReport, call_.report.rank},
                     .key = call_.key,
                     .clock = call_.clock,
                     .rng = call_.rng,
                     .timeout = call_.timeout});
  for (;;) {
    switch (approach.look()) {
      case Approach::State::kPending: break;
      case Approach::State::kHeard: line_.emplace(approach.take()); return Outcome::kDone;
      case Approach::State::kFailed:
        lastErrno_ = approach.failure().errnoValue;
        return approach.failure().wasConnected ? Outcome::kTurnedAway : Outcome::kNobody;
    }
    if (mustStop()) return Outcome::kAborted;
    const Instant now = call_.clock->now();
    if (now >= reachDeadline_) {
      lastErrno_ = ETIMEDOUT;
      return approach.isConnected() ? Outcome::kTimeout : Outcome::kNobody;
    }
    approach.await(std::min(reachDeadline_, now + kAbortCheck));
  }
}

Outcome RootClient::shakeHands() {
  ClientHandshake& handshake = line_->handshake;
  std::array<std::byte, kReplyBytes> buffer;
  while (!handshake.isDone()) {
    if (const Outcome ready = wait(POLLIN, reachDeadline_); ready != Outcome::kDone) return ready;
    const auto wanted = std::span(buffer).first(handshake.wantedBytes());
    const IoResult read = readSome(fd(), wanted);
    if (read.state == IoState::kClosed) return Outcome::kTurnedAway;
    if (read.state == IoState::kWouldBlock) continue;
    if (handshake.feed(wanted.first(read.count)) != Refusal::kNone) return Outcome::kImpostor;
  }
  if (isEnded(fd())) return Outcome::kTurnedAway;  // while this thread had no CPU for long
  keys_ = handshake.keys();
  return write(handshake.confirm());
}

Outcome RootClient::report() {
  Report report = call_.report;
  const Nanoseconds left = deadline_ - call_.clock->now();
  report.timeout =
      std::max(std::chrono::ceil<std::chrono::milliseconds>(left), std::chrono::milliseconds(1));
  std::vector<std::byte> bytes;
  FrameEncoder(keys_.clientToServer).append(FrameType::kReport, encode(report), {}, bytes);
  return write(bytes);
}

// A rank that is to stop says so by ending its half of the connection, and hears what the root
// makes of it: a failure, or the answer after all, where the last report had come before. Then
// others go on and wait for this rank, which knows now whom it must tell (Impl::bidFarewell);
// without, they waited until their patience ended.
Outcome RootClient::awaitAnswer() {
  isWaiting_ = true;
  FrameDecoder decoder(keys_.serverToClient);
  const Outcome outcome = readAnswer(decoder, deadline_ + kAnswerGrace);
  if (outcome != Outcome::kAborted) return outcome;
  isLeaving_ = true;
  ::shutdown(fd(), SHUT_WR);
  const Outcome last = readAnswer(decoder, call_.clock->now() + kLeaving);
  return last == Outcome::kDone && answer_->ok() ? last : Outcome::kAborted;
}

Outcome RootClient::readAnswer(FrameDecoder& decoder, Instant until) {
  std::vector<std::byte> buffer(16_KiB);
  std::vector<Frame> frames;
  while (frames.empty()) {
    const Outcome ready = wait(POLLIN, until);
    if (ready != Outcome::kDone) return ready;
    const IoResult read = readSome(fd(), buffer);
    if (read.state == IoState::kClosed) return Outcome::kLeft;
    const FrameFault fault = decoder.feed(std::span(buffer).first(read.count), frames);
    if (fault != FrameFault::kNone) return Outcome::kGarbled;
  }
  return take(frames.front());
}

Outcome RootClient::take(const Frame& frame) {
  if (frame.type == FrameType::kFailure) {
    answer_.emplace(decodeFailure(frame.payload));
    return Outcome::kDone;
  }
  if (frame.type != FrameType::kAnswer) return Outcome::kGarbled;
  std::optional<Answer> answer = decodeAnswer(frame.payload, call_.report.rankCount);
  if (!answer) return Outcome::kGarbled;
  answer_.emplace(std::move(*answer));
  return Outcome::kDone;
}

Outcome RootClient::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const IoResult sent = writeSome(fd(), bytes);
    if (sent.state == IoState::kClosed) return Outcome::kTurnedAway;
    bytes = bytes.subspan(sent.count);
    if (sent.state == IoState::kMoved) continue;
    if (const Outcome ready = wait(POLLOUT, deadline_); ready != Outcome::kDone) return ready;
  }
  return Outcome::kDone;
}

bool RootClient::mustStop() const {
  if (isLeaving_) return false;
  const bool isAborted = call_.abort != nullptr && call_.abort->load(std::memory_order_relaxed);
  return isAborted ||
         (call_.failure != nullptr && call_.failure->load(std::memory_order_relaxed) != nullptr);
}

Outcome RootClient::wait(short events, Instant until) const {
  for (;;) {
    if (mustStop()) return Outcome::kAborted;
    const Instant now = call_.clock->now();
    if (now >= until) return Outcome::kTimeout;
    pollfd entry{fd(), events, 0};
    // -1 is EINTR: look at the flag and the clock, and go on.
    const int slice = millisecondsUntil(*call_.clock, std::min(until, now + kAbortCheck));
    if (::poll(&entry, line_ ? 1 : 0, slice) > 0) return Outcome::kDone;
  }
}

Outcome RootClient::pause(Nanoseconds span) const {
  return wait(0, std::min(deadline_, call_.clock->now() + span));
}

// " (made 95 s ago)", when that says something: clocks of hosts differ a little.
std::string RootClient::age() const {
  const int64_t seconds = wallClockSeconds() - static_cast<int64_t>(call_.createdSeconds);
  if (call_.createdSeconds == 0 || seconds < 10) return "";
  return fmt::format(" (made {} s ago)", seconds);
}

// Whose root it is, as the subject of a sentence.
std::string RootClient::keeper() const {
  if (call_.isReusable) return "the process of rank 0";
  const std::string maker = describe(call_.maker);
  if (maker.empty()) return "the process that made the id" + age();
  const bool isOfUser = call_.createdSeconds != 0;  // and of no other communicator's ranks
  return maker + (isOfUser ? ", which made the id" + age() : ", which opened the meeting") + ",";
}

Status RootClient::explain(Outcome outcome) const {
  const std::string where = call_.address.text();
  const int rank = index(call_.report.rank);
  switch (outcome) {
    case Outcome::kDone: break;
    case Outcome::kNobody: {
      if (lastErrno_ == EMFILE) return systemError("connect to", where, lastErrno_);
      if (lastErrno_ == ENETUNREACH || lastErrno_ == EHOSTUNREACH || lastErrno_ == EADDRNOTAVAIL) {
        return remoteError(
            "rank {} cannot connect to {}, where job {} should meet, within {} ms: {}", rank, where,
            call_.job, reaching_.count(), connectTrouble(lastErrno_));
      }
      return remoteError(
          "rank {} reached nobody at {}, where job {} should meet, within {} ms ({}): {} has "
          "ended, or the id is stale; TUTTI_TIMEOUT_MS changes this limit",
          rank, where, call_.job, reaching_.count(), connectTrouble(lastErrno_), keeper());
    }
    case Outcome::kTurnedAway:
      return remoteError(
          "rank {0} came to {1}, where job {2} should meet, and {3} turned rank {0} away: it has "
          "ended, or the ranks differ in their id, TUTTI_SECRET_FILE or library version",
          rank, where, call_.job, keeper());
    case Outcome::kLeft:
      return remoteError(
          "rank {} came to {}, where job {} should meet, and {} closed the connection without an "
          "answer: it has ended",
          rank, where, call_.job, keeper());
    case Outcome::kImpostor:
      return remoteError(
          "rank {} came to {}, where job {} should meet, but who listens there does not know the "
          "secret of the job: {} has ended, so that the id is stale, and its port now belongs to "
          "somebody else",
          rank, where, call_.job, keeper());
    case Outcome::kGarbled:
      return remoteError("rank {} came to {}, where job {} should meet, and {} broke the protocol",
                         rank, where, call_.job, keeper());
    case Outcome::kTimeout:
      return remoteError(
          "rank {} came to {}, where job {} should meet, and {} did not answer within {} ms; {} "
          "changes this limit",
          rank, where, call_.job, keeper(), (isWaiting_ ? call_.report.timeout : reaching_).count(),
          isWaiting_ ? "TUTTI_INIT_TIMEOUT_MS" : "TUTTI_TIMEOUT_MS");
    case Outcome::kAborted:
      return remoteError("rank {} was aborted while it waited for the ranks of job {}", rank,
                         call_.job);
  }
  return internalError("rank {}: no reason for leaving the root of job {}", rank, call_.job);
}

}  // namespace

std::chrono::microseconds staggerOf(Rank rank, int32_t rankCount) {
  if (rankCount <= kUnstaggered) return std::chrono::microseconds(0);
  return std::chrono::microseconds(int64_t{index(rank)} * 1'000'000 / kConnectsPerSecond);
}

Result<Answer> askRoot(const RootCall& call) { return RootClient(call).run(); }

}  // namespace tutti::bootstrap
