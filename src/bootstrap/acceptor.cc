#include "bootstrap/acceptor.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/descriptor_limit.h"
#include "base/log.h"
#include "bootstrap/socket.h"

namespace tutti::bootstrap {
namespace {

constexpr uint64_t kListenerSlot = Acceptor::kMaxHalfOpen;

// How long to leave the queue alone when the process has no descriptor left: long enough not to
// spin.
constexpr std::chrono::milliseconds kDescriptorPause{50};

// A client that has shown a good hello is evicted only when it has been silent for this part of
// helloTimeout.
constexpr int kGoodHelloShare = 5;

// Refusals that point at a wrong set-up are shown to everybody, up to this many a listener; all
// others at INFO.
constexpr uint64_t kMaxWarnings = 10;

bool isTransientAcceptError(int error) {
  return error == ECONNABORTED || error == EPROTO || error == ENETDOWN || error == EHOSTUNREACH ||
         error == ENETUNREACH || error == EPERM;
}

}  // namespace

Acceptor::Acceptor(UniqueFd listener, Options options, Poller& poller)
    : listener_(std::move(listener)),
      options_(std::move(options)),
      poller_(&poller),
      address_(localAddress(listener_.get())) {}

Result<std::unique_ptr<Acceptor>> Acceptor::open(UniqueFd listener, Options options,
                                                 Poller& poller) {
  std::unique_ptr<Acceptor> acceptor(new Acceptor(std::move(listener), std::move(options), poller));
  TUTTI_TRY(poller.add(acceptor->listener_.get(), acceptor->keyOf(kListenerSlot), Interest::kRead));
  return acceptor;
}

void Acceptor::onEvent(uint64_t key, std::vector<Accepted>& accepted) {
  forgiveStall();
  const uint64_t own = key - options_.firstPollerKey;
  if (own == kListenerSlot) {
    acceptAll(accepted);
    return;
  }
  HalfOpen& slot = slots_[own];
  if (slot.fd) advance(slot, accepted);
}

bool Acceptor::isExpecting(Rank rank, Rank target) const {
  return std::any_of(slots_.begin(), slots_.end(), [&](const HalfOpen& slot) {
    return slot.fd && slot.handshake->isHelloGood() &&
           slot.handshake->introduction().rank == rank &&
           slot.handshake->introduction().target == target;
  });
}

std::optional<Instant> Acceptor::nextTime() const {
  std::optional<Instant> next = resumeAt_;
  for (const HalfOpen& slot : slots_) {
    if (slot.fd) next = earlier(next, slot.since + options_.helloTimeout);
  }
  return next;
}

// Who comes much later than it wanted to had no CPU, or was stopped, and so may the clients have
// been that are of this host: that time was nobody's silence, and they get a moment after it.
// Without, a client confirmed, sent its first messages and found the connection given up: what it
// had sent was lost, and the job with it.
void Acceptor::forgiveStall() {
  const std::optional<Instant> wanted = nextTime();
  const Nanoseconds moment = options_.helloTimeout / kGoodHelloShare;
  const Nanoseconds late = wanted ? options_.clock->now() - *wanted : Nanoseconds(0);
  if (late <= moment) return;
  for (HalfOpen& slot : slots_) slot.since = slot.since + (late + moment);
}

void Acceptor::onTime(std::vector<Accepted>& accepted) {
  forgiveStall();
  const Instant now = options_.clock->now();
  for (HalfOpen& slot : slots_) {
    if (!slot.fd || slot.since + options_.helloTimeout > now) continue;
    advance(slot, accepted);
    if (slot.fd) close(slot, counters_.timedOut);
  }
  if (resumeAt_ && *resumeAt_ <= now) resumeListening();
}

void Acceptor::acceptAll(std::vector<Accepted>& accepted) {
  noteFullQueue();
  while (HalfOpen* slot = findFree(accepted)) {
    if (!acceptOne(*slot)) return;
  }
  // All slots hold good hellos: go on when one of them is through, or has been silent for long
  // enough.
  const auto oldest =
      std::min_element(slots_.begin(), slots_.end(),
                       [](const HalfOpen& a, const HalfOpen& b) { return a.since < b.since; });
  isFull_ = true;
  pauseListening(oldest->since + options_.helloTimeout / kGoodHelloShare);
}

// False when nobody is waiting any more.
bool Acceptor::acceptOne(HalfOpen& slot) {
  UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd) {
    if (errno == EINTR || isTransientAcceptError(errno)) return true;
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      noteObstacle(errno);
      pauseListening(options_.clock->now() + kDescriptorPause);
    }
    return false;
  }
  obstacle_.clear();
  const uint64_t key = keyOf(static_cast<uint64_t>(&slot - slots_.data()));
  if (!poller_->add(fd.get(), key, Interest::kRead).ok()) return true;
  slot.fd = std::move(fd);
  slot.handshake.emplace(options_.key, options_.purpose);
  slot.since = options_.clock->now();
  return true;
}

// Who came meanwhile has not been heard (Approach), and may say so in its own log.
void Acceptor::noteFullQueue() {
  const AcceptQueue queue = acceptQueue(listener_.get());
  if (!queue.isFull()) return;
  ++counters_.fullQueues;
  if (std::exchange(hasWarnedOfQueue_, true)) return;
  log::warn(
      "{}: {} connections waited at {}, more than the system's queue holds (net.core.somaxconn); "
      "who came meanwhile was not heard, and tries again",
      options_.who, queue.waiting, address_.text());
}

// Names the process: the message may be read in another.
void Acceptor::noteObstacle(int errnoValue) {
  char text[128] = "";
  obstacle_ =
      errnoValue == EMFILE
          ? fmt::format(
                "needs one more file descriptor, but the limit of process {} is "
                "{} (ulimit -n)",
                ::getpid(), descriptorLimit())
          : fmt::format("process {}: {}", ::getpid(), ::strerror_r(errnoValue, text, sizeof text));
  if (std::exchange(hasWarnedOfLimit_, true)) return;
  log::warn("{} cannot accept a connection: {}; trying again", options_.who, obstacle_);
}

// Before somebody is evicted what it has sent is read: a good client's bytes are most likely there.
// Only that one's: to read all of them for each newcomer made a queue of 1,000 strangers take 99 ms
// in place of 29 (2 CPUs of an Intel Xeon VM, busy, 2026-11-26).
Acceptor::HalfOpen* Acceptor::findFree(std::vector<Accepted>& accepted) {
  const auto isFree = [](const HalfOpen& slot) { return !slot.fd; };
  const auto found = std::find_if(slots_.begin(), slots_.end(), isFree);
  if (found != slots_.end()) return &*found;
  while (HalfOpen* oldest = findEvictable()) {
    const bool wasGood = oldest->handshake->isHelloGood();
    advance(*oldest, accepted);
    if (!oldest->fd) return oldest;
    if (!wasGood && oldest->handshake->isHelloGood()) continue;
    close(*oldest, counters_.evicted);
    return oldest;
  }
  return nullptr;
}

// The oldest that has not shown a good hello; else the oldest that has been silent since, for a
// while. None: nullptr.
Acceptor::HalfOpen* Acceptor::findEvictable() {
  HalfOpen* oldest = nullptr;
  for (HalfOpen& slot : slots_) {
    const bool isStranger = !slot.handshake->isHelloGood();
    const bool isOldestStranger = oldest != nullptr && !oldest->handshake->isHelloGood();
    const bool isOlder = oldest == nullptr || slot.since < oldest->since;
    if (isStranger == isOldestStranger ? isOlder : isStranger) oldest = &slot;
  }
  if (!oldest->handshake->isHelloGood()) return oldest;
  const Nanoseconds silent = options_.clock->now() - oldest->since;
  return silent < options_.helloTimeout / kGoodHelloShare ? nullptr : oldest;
}

void Acceptor::advance(HalfOpen& slot, std::vector<Accepted>& accepted) {
  std::array<std::byte, kHelloBytes> buffer;
  while (slot.fd && !slot.handshake->isDone()) {
    const auto wanted = std::span(buffer).first(slot.handshake->wantedBytes());
    const IoResult read = readSome(slot.fd.get(), wanted);
    if (read.state == IoState::kWouldBlock) return;
    if (read.state == IoState::kClosed) {
      close(slot, counters_.left);
      return;
    }
    if (!feed(slot, wanted.first(read.count))) return;
  }
  if (!slot.fd) return;
  ++counters_.admitted;
  accepted.push_back({.fd = std::move(slot.fd),
                      .from = {},
                      .introduction = slot.handshake->introduction(),
                      .keys = slot.handshake->keys()});
  accepted.back().from = peerAddress(accepted.back().fd.get());
  slot.fd = UniqueFd();
  slot.handshake.reset();
  if (isFull_) resumeListening();
}

// False when the connection was closed.
bool Acceptor::feed(HalfOpen& slot, std::span<const std::byte> bytes) {
  const Refusal refusal = slot.handshake->feed(bytes, *options_.rng);
  if (refusal != Refusal::kNone) {
    refuse(slot, refusal);
    return false;
  }
  const std::span<const std::byte> reply = slot.handshake->takeReply();
  if (reply.empty()) return true;
  // The first bytes on a fresh connection always fit its send buffer; where they do not, somebody
  // plays games.
  const IoResult written = writeSome(slot.fd.get(), reply);
  if (written.state == IoState::kMoved && written.count == reply.size()) return true;
  close(slot, counters_.left);
  return false;
}

void Acceptor::refuse(HalfOpen& slot, Refusal why) {
  const SocketAddress from = peerAddress(slot.fd.get());
  close(slot, counters_.refused);
  const bool isLikelySetup = why == Refusal::kSecret || why == Refusal::kVersion;
  if (isLikelySetup && counters_.refused <= kMaxWarnings) {
    log::warn("{} refused a connection from {}: {}", options_.who, from.text(), toText(why));
  } else {
    log::info(log::Subsystem::kBootstrap, "{} refused a connection from {}: {} ({} so far)",
              options_.who, from.text(), toText(why), counters_.refused);
  }
}

void Acceptor::close(HalfOpen& slot, uint64_t& counter) {
  ++counter;
  slot.fd.reset();
  slot.handshake.reset();
  if (isFull_) resumeListening();
}

void Acceptor::pauseListening(Instant until) {
  resumeAt_ = until;
  poller_->change(listener_.get(), keyOf(kListenerSlot), Interest::kNone);
}

void Acceptor::resumeListening() {
  isFull_ = false;
  resumeAt_.reset();
  poller_->change(listener_.get(), keyOf(kListenerSlot), Interest::kRead);
}

}  // namespace tutti::bootstrap
