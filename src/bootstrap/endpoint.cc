#include "bootstrap/endpoint.h"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "base/log.h"
#include "base/service_thread.h"
#include "base/units.h"
#include "bootstrap/bytes.h"
#include "bootstrap/interfaces.h"
#include "bootstrap/socket.h"

namespace tutti::bootstrap {
namespace {

constexpr size_t kReadBytes = 64_KiB;

// How often a waiting rank looks at its abort flag.
constexpr std::chrono::milliseconds kAbortCheck{50};

// How long a leaving rank's last messages may take to reach the system's buffers.
constexpr std::chrono::milliseconds kFlushTime{1'000};

// How much longer than its own patience, at most, a rank waits for the word of a peer that lives:
// the peer's patience with a third rank ends at the same time, and only the peer can name that one.
constexpr std::chrono::milliseconds kLastWordTime{1'000};

// Connections that may wait for the epoch; each belongs to somebody who knows the secret.
constexpr size_t kMaxEarly = 4096;

bool isAborted(const std::atomic<bool>* abort) {
  return abort != nullptr && abort->load(std::memory_order_relaxed);
}

// Until when a message is waited for that was due within `timeout`: longer for a peer that has
// given a sign of life within that time.
Instant endOfWait(Instant began, std::chrono::milliseconds timeout, Nanoseconds longer,
                  std::optional<Instant> sign) {
  const Instant due = began + timeout;
  return sign ? std::max(due, std::min(due + longer, *sign + timeout)) : due;
}

}  // namespace

Endpoint::Endpoint(Options options) : options_(std::move(options)) {}

Endpoint::~Endpoint() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    isStopping_ = true;
  }
  poller_->wake();
  thread_.join();
}

Result<SocketAddress> Endpoint::listen() {
  std::lock_guard lock(mutex_);
  if (acceptor_) return acceptor_->address();
  TUTTI_TRY_ASSIGN(const InterfaceChoice choice, chooseInterfaces({.names = options_.interfaces,
                                                                   .family = options_.family,
                                                                   .near = options_.rootAddress}));
  const SocketAddress& chosen = choice.interfaces.front().address;
  scope_ = chosen.scope();
  TUTTI_TRY_ASSIGN(UniqueFd listener, listenOn(chosen, *options_.clock));
  TUTTI_TRY(startService());
  TUTTI_TRY_ASSIGN(acceptor_, Acceptor::open(std::move(listener),
                                             {.key = options_.key,
                                              .purpose = Purpose::kPeer,
                                              .helloTimeout = options_.helloTimeout,
                                              .who = "endpoint of job " + options_.job,
                                              .clock = options_.clock,
                                              .rng = options_.rng},
                                             *poller_));
  return acceptor_->address();
}

SocketAddress Endpoint::address() const {
  std::lock_guard lock(mutex_);
  return acceptor_ ? acceptor_->address() : SocketAddress();
}

bool Endpoint::attach(Rank rank) {
  std::lock_guard lock(mutex_);
  return mailboxes_.try_emplace(rank, std::make_unique<Mailbox>()).second;
}

void Endpoint::detach(Rank rank, bool isHasty) noexcept {
  std::unique_lock lock(mutex_);
  flushed_.wait_for(lock, isHasty ? kHastyFlushTime : kFlushTime, [&] { return isFlushed(rank); });
  const auto sentByRank = [&](const auto& entry) { return entry.first.first == rank; };
  std::erase_if(outgoing_, sentByRank);
  std::erase_if(outgoingKeys_, [&](const auto& entry) { return entry.second.first == rank; });
  std::erase_if(incoming_,
                [&](const auto& entry) { return entry.second.introduction.target == rank; });
  mailboxes_.erase(rank);
  faultsMet_.erase(rank);
  words_.erase(rank);
  std::erase_if(signs_, [&](const auto& entry) { return entry.first.first == rank; });
  try {
    for (auto& [other, mailbox] : mailboxes_) {
      mailbox->close(rank, name(rank) + " has left");
      mailbox->changed.notify_all();
    }
  } catch (const std::bad_alloc&) {
    log::write(log::Level::kWarn, log::Subsystem::kBootstrap,
               "no memory to tell the ranks of this process that one has left");
  }
}

void Endpoint::bidFarewell(Rank rank, std::span<const Rank> peers, std::string_view why) {
  std::lock_guard lock(mutex_);
  const auto met = faultsMet_.find(rank);
  const std::string cause(met != faultsMet_.end() ? std::string_view(met->second) : why);
  ByteWriter text;
  text.putText(cause, std::min(cause.size() + 1, maxPayloadBytes(FrameType::kFarewell) / 2));
  for (const Rank peer : peers) {
    if (const auto local = mailboxes_.find(peer); local != mailboxes_.end()) {
      closeFor(*local->second, rank, cause);
      continue;
    }
    if (epoch_ == 0 || mailboxes_.at(rank)->whyClosed(peer) != nullptr) continue;
    const Result<Outgoing*> outgoing = outgoingFor({.self = rank, .peer = peer});
    // Whoever cannot be told finds our connections closed.
    if (!outgoing.ok() || !outgoing.value()->fault().empty()) continue;
    [[maybe_unused]] const bool isTaken =
        outgoing.value()->send(FrameType::kFarewell, 0, text.bytes());
  }
  if (poller_) poller_->wake();
}

void Endpoint::setEpoch(uint64_t epoch) {
  std::lock_guard lock(mutex_);
  if (epoch_ != 0) return;
  epoch_ = epoch;
  for (Accepted& accepted : std::exchange(early_, {})) {
    if (poller_->add(accepted.fd.get(), 0, Interest::kNone).ok()) admit(std::move(accepted));
  }
}

void Endpoint::learn(Rank rank, const Contact& contact) {
  std::lock_guard lock(mutex_);
  contacts_[index(rank)] = contact;
}

Status Endpoint::send(const Slot& slot, std::span<const std::byte> body) {
  std::lock_guard lock(mutex_);
  const auto mailbox = mailboxes_.find(slot.peer);
  if (mailbox != mailboxes_.end()) return sendLocally(slot, *mailbox->second, body);
  // The end of the peer's own connection may be known before that of ours.
  if (const std::string* why = whyClosed(slot)) {
    return remoteError("{}; rank {} cannot send to it", *why, index(slot.self));
  }
  TUTTI_TRY_ASSIGN(Outgoing* const outgoing, outgoingFor(slot));
  if (!outgoing->fault().empty()) {
    return remoteError("{} {}; rank {} cannot send to it", name(slot.peer), outgoing->fault(),
                       index(slot.self));
  }
  if (!outgoing->send(slot.type, slot.tag, body)) {
    return remoteError("{} does not take what rank {} sends: {} bytes wait", name(slot.peer),
                       index(slot.self), kMaxWaitingBytes);
  }
  // The connection may have found its end, or wait for a retry that the service does not know of.
  if (outgoing->nextTime() || !outgoing->fault().empty()) poller_->wake();
  return {};
}

Result<Progress> Endpoint::tryReceive(const Slot& slot, std::vector<std::byte>& message) {
  std::lock_guard lock(mutex_);
  Mailbox& mailbox = *mailboxes_.at(slot.self);
  if (auto found = mailbox.pop(slot.peer, slot.type, slot.tag)) {
    message = std::move(*found);
    return Progress::kDone;
  }
  if (const std::string* why = whyClosed(slot)) {  // not logged: who polls may ask again and again
    return Status(Code::kRemoteError, fmt::format("{}; rank {} still expected a message from it",
                                                  *why, index(slot.self)));
  }
  return Progress::kIdle;
}

Status Endpoint::receive(const Slot& slot, const Wait& wait, std::vector<std::byte>& message) {
  const Instant began = options_.clock->now();
  const Nanoseconds longer = std::max<Nanoseconds>(
      std::min<Nanoseconds>(wait.timeout / 2, kLastWordTime), options_.patience - options_.timeout);
  Instant nextAsk = began + wait.timeout / 2;  // for a sign of life
  bool isLate = false;                         // but lives, as the user has been told
  std::unique_lock lock(mutex_);
  Mailbox& mailbox = *mailboxes_.at(slot.self);
  for (;;) {
    if (auto found = mailbox.pop(slot.peer, slot.type, slot.tag)) {
      message = std::move(*found);
      return {};
    }
    if (const std::string* why = whyClosed(slot)) {
      return remoteError("{}; rank {} still waited for it in {}{}", *why, index(slot.self),
                         wait.what, unreachedBy(slot, *why));
    }
    if (isAborted(wait.abort)) {
      return remoteError("rank {} was aborted while it waited for {} in {}", index(slot.self),
                         name(slot.peer), wait.what);
    }
    const Instant now = options_.clock->now();
    if (now >= nextAsk) {
      nextAsk = now + wait.timeout / 2;
      [[maybe_unused]] const Status asked = ask(slot);
    }
    const std::optional<Sign> sign = findSign(slot);
    const std::optional<Instant> seen = sign ? std::optional(sign->last) : std::nullopt;
    const Nanoseconds left = endOfWait(began, wait.timeout, longer, seen) - now;
    if (left.count() <= 0) {
      const auto waited =
          isLate ? std::chrono::floor<std::chrono::milliseconds>(now - began) : wait.timeout;
      return remoteError("{} sent nothing to rank {} within {} ms in {}{}{}; {} changes this limit",
                         name(slot.peer), index(slot.self), waited.count(), wait.what,
                         unreachedBy(slot), wait.doubt,
                         isLate ? "TUTTI_INIT_TIMEOUT_MS" : "TUTTI_TIMEOUT_MS");
    }
    if (!isLate && options_.patience > options_.timeout && now >= began + wait.timeout) {
      isLate = true;
      log::warn(
          "{} lives, but has sent nothing to rank {} for {} ms in {}; it is waited for, {} ms "
          "in all (TUTTI_INIT_TIMEOUT_MS)",
          name(slot.peer), index(slot.self), wait.timeout.count(), wait.what,
          options_.patience.count());
    }
    mailbox.changed.wait_for(lock, std::min<Nanoseconds>(left, kAbortCheck));
  }
}

std::string Endpoint::describe(Rank rank) const {
  std::lock_guard lock(mutex_);
  return name(rank);
}

Status Endpoint::startService() {
  if (thread_.joinable()) return {};
  if (!poller_) {
    TUTTI_TRY_ASSIGN(poller_, Poller::open());
  }
  readBuffer_.resize(kReadBytes);
  TUTTI_TRY_ASSIGN(thread_, startThread("tutti-boot", [this] { serve(); }));
  return {};
}

void Endpoint::serve() {
  for (;;) {
    std::optional<Instant> until;
    {
      std::lock_guard lock(mutex_);
      if (isStopping_) return;
      until = nextTime();
    }
    const std::span<const Poller::Event> events = poller_->wait(*options_.clock, until);
    std::lock_guard lock(mutex_);
    serveOnce(events);
  }
}

void Endpoint::serveOnce(std::span<const Poller::Event> events) {
  std::vector<Accepted> accepted;
  for (const Poller::Event& event : events) {
    if (event.key < Acceptor::kFirstFreeKey) {
      if (acceptor_) acceptor_->onEvent(event.key, accepted);
    } else if (const auto pair = outgoingKeys_.find(event.key); pair != outgoingKeys_.end()) {
      outgoing_.at(pair->second)->onEvent(event);
    } else {
      onReadable(event.key);
    }
  }
  if (acceptor_) acceptor_->onTime(accepted);
  for (Accepted& peer : accepted) admit(std::move(peer));
  const Instant now = options_.clock->now();
  for (auto& [pair, outgoing] : outgoing_) {
    outgoing->onTime(now);
    if (!outgoing->fault().empty()) noteFault(pair, *outgoing);
  }
  flushed_.notify_all();
}

// Both ranks are looked up here: nothing of the introduction is used as it came.
void Endpoint::admit(Accepted accepted) {
  if (epoch_ == 0) {
    if (early_.size() >= kMaxEarly) return;
    // Out of the set, since a hang-up would be reported again and again.
    poller_->remove(accepted.fd.get());
    early_.push_back(std::move(accepted));
    return;
  }
  const Introduction& who = accepted.introduction;
  const auto mailbox = mailboxes_.find(who.target);
  if (who.epoch != epoch_ || mailbox == mailboxes_.end() || index(who.rank) < 0 ||
      index(who.rank) >= kMaxRankCount) {
    log::info(log::Subsystem::kBootstrap,
              "endpoint of job {} dropped a connection from {}: rank {} is not here, or of another "
              "session",
              options_.job, accepted.from.text(), index(who.target));
    return;
  }
  const uint64_t key = nextKey_++;
  setTcpOptions(accepted.fd.get(), options_.timeout);
  poller_->change(accepted.fd.get(), key, Interest::kRead);
  incoming_.emplace(key, Incoming{.fd = std::move(accepted.fd),
                                  .decoder = FrameDecoder(accepted.keys.clientToServer),
                                  .introduction = who});
}

void Endpoint::onReadable(uint64_t key) {
  const auto found = incoming_.find(key);
  if (found == incoming_.end()) return;
  Incoming& incoming = found->second;
  const IoResult read = readSome(incoming.fd.get(), readBuffer_);
  if (read.state == IoState::kWouldBlock) return;
  if (read.state == IoState::kClosed) {
    drop(key, incoming.decoder.isAtBoundary() ? "closed its connection"
                                              : "closed its connection in the middle of a message");
    return;
  }
  std::vector<Frame> frames;
  const FrameFault fault = incoming.decoder.feed(std::span(readBuffer_).first(read.count), frames);
  std::string why;
  for (Frame& frame : frames) deliver(incoming, std::move(frame), why);
  if (fault != FrameFault::kNone) why = fmt::format("sent {}", toText(fault));
  if (!why.empty()) drop(key, why);
}

// Sets `why` when the connection has to be dropped.
void Endpoint::deliver(const Incoming& from, Frame frame, std::string& why) {
  Sign& sign = signs_[{from.introduction.target, from.introduction.rank}];
  sign.last = options_.clock->now();
  if (frame.type == FrameType::kFarewell) return hearFarewell(from, frame.payload);
  const bool isKnown = frame.type == FrameType::kMessage || frame.type == FrameType::kCollective ||
                       frame.type == FrameType::kProbe || frame.type == FrameType::kSign;
  if (!isKnown || frame.payload.size() < sizeof(uint64_t)) {
    why = "sent a frame that no rank sends to another";
    return;
  }
  const auto tag = loadLittle<uint64_t>(frame.payload.data());
  if (frame.type == FrameType::kProbe)
    return answer(from.introduction.target, from.introduction.rank, tag);
  if (frame.type == FrameType::kSign) {
    if (frame.payload.size() == sizeof tag) return;
    sign.words.assign(frame.payload.begin() + sizeof tag, frame.payload.end());
    const auto askedAt = static_cast<Instant>(tag);
    sign.askedAt.reset();
    if (askedAt > Instant{} && askedAt <= sign.last) sign.askedAt = askedAt;
    return;
  }
  frame.payload.erase(frame.payload.begin(), frame.payload.begin() + sizeof tag);
  Mailbox& mailbox = *mailboxes_.at(from.introduction.target);
  if (!mailbox.push(from.introduction.rank, frame.type, tag, std::move(frame.payload))) {
    why = fmt::format("sent more than {} bytes that nobody received", kMaxWaitingBytes);
    return;
  }
  mailbox.changed.notify_all();
}

void Endpoint::hearFarewell(const Incoming& from, std::span<const std::byte> payload) {
  ByteReader reader(payload);
  reader.get<uint64_t>();  // the tag that every message between ranks has
  if (!reader.isGood()) return;
  closeFor(*mailboxes_.at(from.introduction.target), from.introduction.rank,
           reader.getText(payload.size() - sizeof(uint64_t)));
}

// `leaver` fails because of `cause`, which the others name in its place.
void Endpoint::closeFor(Mailbox& mailbox, Rank leaver, const std::string& cause) {
  causes_.try_emplace(index(leaver), cause);
  mailbox.close(leaver, fmt::format("{}, so {} left", cause, name(leaver)));
  mailbox.changed.notify_all();
}

// As Mailbox::whyClosed, remembered as the fault that this rank met.
const std::string* Endpoint::whyClosed(const Slot& slot) {
  const std::string* why = mailboxes_.at(slot.self)->whyClosed(slot.peer);
  if (why == nullptr) return nullptr;
  const auto cause = causes_.find(index(slot.peer));
  faultsMet_.try_emplace(slot.self, cause == causes_.end() ? *why : cause->second);
  return why;
}

void Endpoint::drop(uint64_t key, std::string_view why) {
  const Introduction who = incoming_.at(key).introduction;
  incoming_.erase(key);
  Mailbox& mailbox = *mailboxes_.at(who.target);
  mailbox.close(who.rank, fmt::format("{} {}", name(who.rank), why));
  mailbox.changed.notify_all();
}

// Both directions end when a peer leaves, and its last messages may still be on their way in the
// other one.
bool Endpoint::mayStillHear(Rank self, Rank peer) const {
  if (acceptor_ && acceptor_->isExpecting(peer, self)) return true;
  return std::any_of(incoming_.begin(), incoming_.end(), [&](const auto& entry) {
    const Introduction& who = entry.second.introduction;
    return who.rank == peer && who.target == self;
  });
}

// A peer that our messages do not reach, or another one not any more, may fail for want of them,
// and one whose connection we cannot accept does not reach us. "; rank 1 (...) could not be reached
// at ...", or "" where there is nothing beyond what is told.
std::string Endpoint::unreachedBy(const Slot& slot, std::string_view told) const {
  if (acceptor_ && !acceptor_->obstacle().empty())
    return fmt::format("; rank {} accepts no connection: it {}", index(slot.self),
                       acceptor_->obstacle());
  for (const auto& [pair, outgoing] : outgoing_) {
    if (pair.first != slot.self) continue;
    std::string why = outgoing->whyUnreached();
    if (why.empty() && pair.second != slot.peer) why = outgoing->fault();
    if (why.empty()) continue;
    why = fmt::format("{} {}", name(pair.second), why);
    if (told.find(why) == std::string_view::npos) return "; " + why;
  }
  return "";
}

// A peer that takes no more is not waited for either, unless its own connection will tell its end.
void Endpoint::noteFault(const std::pair<Rank, Rank>& pair, const Outgoing& outgoing) {
  const auto mailbox = mailboxes_.find(pair.first);
  if (mailbox == mailboxes_.end() || mailbox->second->whyClosed(pair.second) != nullptr) return;
  if (mayStillHear(pair.first, pair.second)) return;
  mailbox->second->close(pair.second, fmt::format("{} {}", name(pair.second), outgoing.fault()));
  mailbox->second->changed.notify_all();
}

std::optional<Instant> Endpoint::nextTime() const {
  std::optional<Instant> next = acceptor_ ? acceptor_->nextTime() : std::nullopt;
  for (const auto& [pair, outgoing] : outgoing_) next = earlier(next, outgoing->nextTime());
  return next;
}

Status Endpoint::sendLocally(const Slot& slot, Mailbox& mailbox, std::span<const std::byte> body) {
  if (!mailbox.push(slot.self, slot.type, slot.tag, {body.begin(), body.end()})) {
    return remoteError("{} does not receive what rank {} sends: {} bytes wait", name(slot.peer),
                       index(slot.self), kMaxWaitingBytes);
  }
  mailbox.changed.notify_all();
  return {};
}

Result<Outgoing*> Endpoint::outgoingFor(const Slot& slot) {
  const std::pair<Rank, Rank> pair(slot.self, slot.peer);
  if (const auto found = outgoing_.find(pair); found != outgoing_.end()) {
    return found->second.get();
  }
  const auto contact = contacts_.find(index(slot.peer));
  if (contact == contacts_.end() || contact->second.address.isEmpty()) {
    return remoteError("{} has left, or was never in job {}", name(slot.peer), options_.job);
  }
  TUTTI_TRY(startService());
  SocketAddress address = contact->second.address;
  // A scope is an interface index of the host that wrote it; here ours counts.
  if (address.isLinkLocal() && scope_ != 0) address = address.withScope(scope_);
  const uint64_t key = nextKey_++;
  auto outgoing = std::make_unique<Outgoing>(
      Outgoing::Options{.address = address,
                        .introduction = {Purpose::kPeer, slot.self, slot.peer, epoch_},
                        .key = &options_.key,
                        .clock = options_.clock,
                        .rng = options_.rng,
                        .poller = poller_.get(),
                        .pollerKey = key,
                        .timeout = options_.timeout});
  outgoingKeys_.emplace(key, pair);
  return outgoing_.emplace(pair, std::move(outgoing)).first->second.get();
}

bool Endpoint::isFlushed(Rank rank) const {
  return std::all_of(outgoing_.begin(), outgoing_.end(), [&](const auto& entry) {
    return entry.first.first != rank || entry.second->isFlushed();
  });
}

std::string Endpoint::name(Rank rank) const {
  const auto contact = contacts_.find(index(rank));
  if (contact == contacts_.end()) return fmt::format("rank {}", index(rank));
  return fmt::format("rank {} ({})", index(rank), contact->second.who);
}

}  // namespace tutti::bootstrap
