#include "bootstrap/approach.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/log.h"
#include "bootstrap/socket.h"

namespace tutti::bootstrap {
namespace {

// From when on the user hears that nobody answers.
constexpr std::chrono::milliseconds kUntold{1'000};

short readiness(int fd, short events) {
  pollfd entry{.fd = fd, .events = events, .revents = 0};
  return ::poll(&entry, 1, 0) > 0 ? entry.revents : short{0};
}

// The other side's system has acknowledged all that was written. Before its listener has a place
// for the connection it takes no bytes, though the connection looks complete from here.
bool isTaken(int fd) {
  int unacknowledged = 0;
  return ::ioctl(fd, SIOCOUTQ, &unacknowledged) == 0 && unacknowledged == 0;
}

}  // namespace

Approach::Approach(const Options& options)
    : options_(options), begun_(options.clock->now()), freshAt_(begun_ + patience_) {
  if (const int error = start(first_); error != 0) fail(error, false);
}

// Why it could not be started; 0: it has been.
int Approach::start(Try& attempt) {
  attempt = Try{};
  Connecting connecting = startConnect(options_.address);
  if (!connecting.fd) return connecting.errnoValue;
  setTcpOptions(connecting.fd.get(), options_.timeout);
  const bool isWatched =
      options_.poller == nullptr ||
      options_.poller->add(connecting.fd.get(), options_.pollerKey, Interest::kReadWrite).ok();
  if (!isWatched) return ENOMEM;
  attempt.fd = std::move(connecting.fd);
  attempt.handshake.emplace(*options_.key, options_.introduction, *options_.rng);
  return 0;
}

Approach::State Approach::look() {
  if (!first_.fd || !advance(first_) || !advance(fresh_)) return State::kFailed;
  const Instant now = options_.clock->now();
  if (heard_ == nullptr && now >= freshAt_ && !findHeard()) {
    // Where it cannot be started (descriptors, ports) the first one goes on alone.
    start(fresh_);
    patience_ = std::min(2 * patience_, kLongestPatience);
    freshAt_ = now + patience_;
    tellDelay(now);
  }
  return heard_ != nullptr ? State::kHeard : State::kPending;
}

// False: it has failed, and with it the approach, as the other one would.
bool Approach::advance(Try& attempt) {
  if (!attempt.fd) return true;
  if (!attempt.hasGreeted) return readiness(attempt.fd.get(), POLLOUT) == 0 || greet(attempt);
  if (heard_ == nullptr && readiness(attempt.fd.get(), POLLIN) != 0) heard_ = &attempt;
  return true;
}

bool Approach::greet(Try& attempt) {
  const int fd = attempt.fd.get();
  if (const int error = connectError(fd); error != 0) return fail(error, false);
  const IoResult sent = writeSome(fd, attempt.handshake->hello());
  if (sent.state == IoState::kClosed) return fail(sent.errnoValue, true);
  // The first bytes of a connection always fit its send buffer.
  if (sent.count != kHelloBytes) return fail(ENOBUFS, true);
  attempt.hasGreeted = true;
  if (options_.poller != nullptr) options_.poller->change(fd, options_.pollerKey, Interest::kRead);
  return true;
}

bool Approach::fail(int errnoValue, bool wasConnected) {
  failure_ = {.errnoValue = errnoValue, .wasConnected = wasConnected};
  first_ = Try{};
  fresh_ = Try{};
  return false;
}

bool Approach::findHeard() {
  for (Try* each : {&first_, &fresh_}) {
    if (each->hasGreeted && isTaken(each->fd.get())) heard_ = each;
  }
  return heard_ != nullptr;
}

void Approach::tellDelay(Instant now) {
  if (now - begun_ < kUntold || std::exchange(hasToldDelay_, true)) return;
  log::warn(
      "rank {} has not been heard at {} for {} ms: the queue of those who connect there is full, "
      "the host is gone, or something between drops packets; it tries again, for {} ms in all "
      "(TUTTI_TIMEOUT_MS)",
      index(options_.introduction.rank), options_.address.text(),
      std::chrono::floor<std::chrono::milliseconds>(now - begun_).count(),
      options_.timeout.count());
}

Approach::Line Approach::take() {
  Line line{.fd = std::move(heard_->fd), .handshake = std::move(*heard_->handshake)};
  first_ = Try{};
  fresh_ = Try{};
  return line;
}

void Approach::await(Instant until) const {
  std::array<pollfd, 2> entries;
  nfds_t count = 0;
  for (const Try* each : {&first_, &fresh_}) {
    if (!each->fd) continue;
    const short events = each->hasGreeted ? POLLIN : POLLOUT;
    entries[count++] = {.fd = each->fd.get(), .events = events, .revents = 0};
  }
  // A signal may cut it short: the caller looks, and comes again.
  ::poll(entries.data(), count, millisecondsUntil(*options_.clock, std::min(until, freshAt_)));
}

}  // namespace tutti::bootstrap
