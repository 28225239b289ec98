#include "net/socket/socket_provider.h"

#include <algorithm>
#include <deque>
#include <new>
#include <optional>
#include <utility>

#include "base/affinity.h"
#include "base/futex.h"
#include "base/log.h"
#include "base/service_thread.h"
#include "bootstrap/interfaces.h"
#include "bootstrap/socket.h"
#include "net/socket/contact.h"
#include "net/socket/dial.h"
#include "net/socket/socket_connection.h"

namespace tutti::net::socket {
namespace {

using bootstrap::Acceptor;
using bootstrap::Interest;
using bootstrap::Key;

// Until memory may be there again.
constexpr Nanoseconds kWithoutMemory = std::chrono::milliseconds(1);

// A link-local address means something together with an interface of the host that connects: ours
// that is in the same place as the peer's.
void placeHere(std::vector<bootstrap::SocketAddress>& addresses,
               const std::vector<bootstrap::Interface>& own) {
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (addresses[i].isLinkLocal())
      addresses[i] = addresses[i].withScope(own[i % own.size()].address.scope());
  }
}

Key keyOf(const std::array<std::byte, 16>& secret) {
  Key key;
  bootstrap::keyedHash(Key(), "tutti data links", {secret}, std::as_writable_bytes(key.bytes()));
  return key;
}

// A link's sockets, all on their way at once.
class PendingSockets final : public PendingConnection {
 public:
  struct Parts {
    Key key;
    Cipher cipher = Cipher::kNone;
    size_t mbitPerSocket = 0;
    std::string peer;
    StreamThreads* threads = nullptr;
    bool isChecked = false;
  };
  explicit PendingSockets(Parts parts) : parts_(std::move(parts)) {}

  void dial(DialOptions options) {
    options.key = &parts_.key;
    dialers_.emplace_back(options);
  }

  Result<std::unique_ptr<Connection>> poll() override {
    bool areThere = true;
    for (Dialer& each : dialers_) {
      TUTTI_TRY_ASSIGN(const bool isThere, each.poll());
      areThere = areThere && isThere;
    }
    if (!areThere) return std::unique_ptr<Connection>();
    std::vector<Pipe> pipes;
    for (Dialer& each : dialers_) {
      Dialed dialed = each.take();
      pipes.emplace_back(
          std::move(dialed.fd), parts_.cipher,
          PipeKeys{.send = dialed.keys.clientToServer, .receive = dialed.keys.serverToClient});
      pipes.back().boundSendBuffer(parts_.mbitPerSocket);
    }
    return std::unique_ptr<Connection>(std::make_unique<SocketConnection>(
        std::move(pipes), parts_.peer, parts_.threads, parts_.isChecked));
  }

 private:
  const Parts parts_;
  std::deque<Dialer> dialers_;  // none of which moves
};

}  // namespace

SocketProvider::SocketProvider(NetworkOptions options)
    : options_(std::move(options)), nextKey_(kMaxInterfaces * Acceptor::kFirstFreeKey) {}

SocketProvider::~SocketProvider() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    isStopping_ = true;
  }
  poller_->wake();
  thread_.join();
}

Result<Provider::Contact> SocketProvider::contact() {
  std::lock_guard lock(mutex_);
  TUTTI_TRY(startService());
  if (acceptors_.empty()) TUTTI_TRY(listen());
  Listeners listeners{.sockets = static_cast<uint32_t>(spread_.sockets),
                      .ciphers = options_.isEncrypted ? ownCiphers() : 0,
                      .secret = secret_,
                      .addresses = {}};
  for (const auto& each : acceptors_) listeners.addresses.push_back(each->address());
  return encodeContact(listeners);
}

// Under mutex_. Several interfaces are used where they are named; else one, as others may lead
// elsewhere: where the ranks have met, or the best.
Status SocketProvider::chooseWays() {
  if (!interfaces_.empty()) return {};
  TUTTI_TRY_ASSIGN(
      bootstrap::InterfaceChoice choice,
      bootstrap::chooseInterfaces(
          {.names = options_.interfaces, .family = options_.family, .near = ranksHere_.met}));
  const bool areNamed = !options_.interfaces.empty() && !options_.interfaces.starts_with('^');
  const size_t most = areNamed ? kMaxInterfaces : 1;
  if (choice.interfaces.size() > most) choice.interfaces.resize(most);
  size_t speed = 0;
  for (const bootstrap::Interface& each : choice.interfaces) speed += linkSpeed(each.name);
  interfaces_ = std::move(choice.interfaces);
  spread_ = chooseSpread({.threads = options_.socketThreads,
                          .socketsPerThread = options_.socketsPerThread,
                          .speedMbit = speed,
                          .interfaceCount = interfaces_.size(),
                          .cpuCount = affinityCpus().size(),
                          .ranksOnCpus = ranksHere_.onCpus,
                          .ranksInProcess = ranksHere_.inProcess});
  if (spread_.threads > 1) {
    threads_ = std::make_unique<StreamThreads>(
        spread_.threads, spread_.hasOwnCpus ? StreamThreads::kAlert : Nanoseconds(0));
  }
  log::info(log::Subsystem::kNet, "links to other hosts over sockets: {}; {}; {}{}", choice.reason,
            spread_.reason,
            options_.isEncrypted ? "encrypted (TUTTI_SECURE=encrypt)" : "not encrypted",
            options_.isChecked ? "; messages have checksums" : "");
  return {};
}

// Under mutex_.
Status SocketProvider::listen() {
  TUTTI_TRY(chooseWays());
  options_.rng->fill(secret_);
  std::vector<std::unique_ptr<Acceptor>> acceptors;
  for (const bootstrap::Interface& each : interfaces_) {
    TUTTI_TRY_ASSIGN(UniqueFd listener, bootstrap::listenOn(each.address, *options_.clock));
    TUTTI_TRY_ASSIGN(auto acceptor,
                     Acceptor::open(std::move(listener),
                                    {.key = keyOf(secret_),
                                     .purpose = bootstrap::Purpose::kData,
                                     .firstPollerKey = acceptors.size() * Acceptor::kFirstFreeKey,
                                     .who = "the listener for links",
                                     .clock = options_.clock,
                                     .rng = options_.rng},
                                    *poller_));
    acceptors.push_back(std::move(acceptor));
  }
  acceptors_ = std::move(acceptors);
  poller_->wake();  // its deadlines are new
  return {};
}

// Under mutex_.
Status SocketProvider::startService() {
  if (thread_.joinable()) return {};
  if (!poller_) {
    TUTTI_TRY_ASSIGN(poller_, bootstrap::Poller::open());
  }
  Result<std::thread> started = startThread("tutti-net", [this] { serve(); });
  if (!started.ok()) {
    if (acceptors_.empty()) poller_.reset();
    return started.takeStatus();
  }
  thread_ = std::move(*started);
  return {};
}

void SocketProvider::serve() {
  std::unique_lock lock(mutex_);
  while (!isStopping_) {
    std::optional<Instant> next;
    for (const auto& each : acceptors_) next = bootstrap::earlier(next, each->nextTime());
    lock.unlock();
    serveUntil(next);
    lock.lock();
  }
}

// A link that there is no memory for fails by itself; others go on.
void SocketProvider::serveUntil(std::optional<Instant> next) {
  try {
    serveOnce(poller_->wait(*options_.clock, next));
  } catch (const std::bad_alloc&) {
    sleepFor(kWithoutMemory);
  }
}

void SocketProvider::serveOnce(std::span<const bootstrap::Poller::Event> events) {
  std::vector<bootstrap::Accepted> accepted;
  std::vector<std::pair<uint64_t, std::shared_ptr<Worker>>> ready;
  {
    std::lock_guard lock(mutex_);
    ready.reserve(events.size());  // what is taken out of watched_ has its place
    for (const auto& event : events) {
      if (const size_t which = event.key / Acceptor::kFirstFreeKey; which < kMaxInterfaces) {
        if (which < acceptors_.size()) acceptors_[which]->onEvent(event.key, accepted);
        continue;
      }
      const auto found = watched_.find(event.key);
      if (found == watched_.end()) continue;
      for (const int fd : found->second.fds) poller_->remove(fd);
      ready.emplace_back(event.key, std::move(found->second.worker));
      watched_.erase(found);
    }
    for (const auto& each : acceptors_) each->onTime(accepted);
  }
  for (bootstrap::Accepted& one : accepted) deliver(std::move(one));
  for (const auto& [watch, worker] : ready) worker->work(watch);
}

void SocketProvider::deliver(bootstrap::Accepted accepted) {
  const bootstrap::Introduction& who = accepted.introduction;
  bootstrap::setTcpOptions(accepted.fd.get(), options_.timeout);
  const auto cipher = static_cast<Cipher>(who.seal);
  const bool isSealedAsMeant = isKnown(cipher) && options_.isEncrypted == (who.seal != 0);
  Expected whole;
  {
    std::lock_guard lock(mutex_);
    poller_->remove(accepted.fd.get());
    if (!isSealedAsMeant) {
      log::warn(
          "rank {} at {} opens a link to rank {} {}, which TUTTI_SECURE={} does not allow: refused",
          index(who.rank), accepted.from.text(), index(who.target),
          isKnown(cipher) ? toText(cipher) : "with a cipher that is not here",
          options_.isEncrypted ? "encrypt" : "auth");
      return;
    }
    const auto found = expected_.find(who.epoch & kLinkMask);
    Pipe pipe(std::move(accepted.fd), cipher,
              {.send = accepted.keys.serverToClient, .receive = accepted.keys.clientToServer});
    if (found == expected_.end() || !addStream(found->second, who.epoch, std::move(pipe))) {
      log::info(log::Subsystem::kNet,
                "rank {} at {} opens a link that rank {} does not expect (connection {} of {})",
                index(who.rank), accepted.from.text(), index(who.target), placeIn(who.epoch) + 1,
                countIn(who.epoch));
      return;
    }
    if (found->second.arrived != found->second.pipes.size()) return;
    whole = std::move(found->second);
    expected_.erase(found);
  }
  std::vector<Pipe> pipes;
  for (std::optional<Pipe>& each : whole.pipes) pipes.push_back(*std::move(each));
  whole.worker->arrived(std::make_unique<SocketConnection>(
      std::move(pipes), fmt::format("rank {} at {}", index(who.rank), accepted.from.text()),
      threads_.get(), options_.isChecked));
}

// Under mutex_. False: no such connection is wanted.
bool SocketProvider::addStream(Expected& link, uint64_t number, Pipe pipe) {
  const size_t count = countIn(number);
  const size_t place = placeIn(number);
  if (place >= count) return false;
  if (link.pipes.empty()) link.pipes.resize(count);
  if (link.pipes.size() != count || link.pipes[place]) return false;
  link.pipes[place] = std::move(pipe);
  ++link.arrived;
  return true;
}

void SocketProvider::expect(uint64_t number, std::shared_ptr<Worker> worker) {
  std::lock_guard lock(mutex_);
  expected_[number & kLinkMask] = {.worker = std::move(worker), .pipes = {}};
}

void SocketProvider::forget(uint64_t number) {
  std::lock_guard lock(mutex_);
  expected_.erase(number & kLinkMask);
}

// Both have the same setting, or ranks would not have agreed.
Result<Cipher> SocketProvider::chooseCipher(uint32_t peerCiphers, const Caller& caller) const {
  if (options_.isEncrypted != (peerCiphers != 0)) {
    return remoteError(
        "rank {} takes links {}, and rank {} opens them {}: set TUTTI_SECURE alike on all",
        index(caller.peer), peerCiphers != 0 ? "encrypted only" : "in the clear only",
        index(caller.self), options_.isEncrypted ? "encrypted only" : "in the clear only");
  }
  if (!options_.isEncrypted) return Cipher::kNone;
  const uint32_t both = peerCiphers & ownCiphers();
  return (both & bitOf(Cipher::kAes256Gcm)) != 0 ? Cipher::kAes256Gcm : Cipher::kChaCha20Poly1305;
}

Result<std::unique_ptr<PendingConnection>> SocketProvider::connect(
    const Contact& contact, const Caller& caller, std::chrono::milliseconds timeout) {
  TUTTI_TRY_ASSIGN(Listeners listeners, decodeContact(contact));
  TUTTI_TRY_ASSIGN(const Cipher cipher, chooseCipher(listeners.ciphers, caller));
  std::vector<bootstrap::SocketAddress>& addresses = listeners.addresses;
  size_t count = 1;
  size_t mbitPerSocket = 0;
  {
    std::lock_guard lock(mutex_);
    TUTTI_TRY(startService());
    if (std::ranges::any_of(addresses, &bootstrap::SocketAddress::isLinkLocal)) {
      TUTTI_TRY(chooseWays());
      placeHere(addresses, interfaces_);
    }
    if (!caller.isControl) {
      TUTTI_TRY(chooseWays());
      count = std::max<size_t>(listeners.sockets, spread_.sockets);
      mbitPerSocket = spread_.mbitPerSocket;
    }
  }
  // Labels and short messages go over the first: another interface for each link.
  const size_t first = turnOf(caller.number);
  auto pending = std::make_unique<PendingSockets>(
      PendingSockets::Parts{.key = keyOf(listeners.secret),
                            .cipher = cipher,
                            .mbitPerSocket = mbitPerSocket,
                            .peer = fmt::format("rank {} at {}", index(caller.peer),
                                                addresses[first % addresses.size()].text()),
                            .threads = threads_.get(),
                            .isChecked = options_.isChecked});
  for (size_t i = 0; i < count; ++i) {
    pending->dial({.address = addresses[(first + i) % addresses.size()],
                   .introduction = {.purpose = bootstrap::Purpose::kData,
                                    .rank = caller.self,
                                    .target = caller.peer,
                                    .epoch = streamNumber(caller.number, count, i),
                                    .seal = static_cast<uint32_t>(cipher)},
                   .timeout = timeout,
                   .clock = options_.clock,
                   .rng = options_.rng});
  }
  return std::unique_ptr<PendingConnection>(std::move(pending));
}

Result<uint64_t> SocketProvider::watch(Connection& connection, const Readiness& readiness,
                                       std::shared_ptr<Worker> worker) {
  const auto places = static_cast<SocketConnection&>(connection).toWatch(readiness);
  std::lock_guard lock(mutex_);
  const uint64_t key = nextKey_++;
  // All memory first: a descriptor that the poller has and no watch would wake it for ever.
  std::vector<int> fds;
  fds.reserve(places.size());
  Watched& watched = watched_[key];
  watched = {.fds = std::move(fds), .worker = std::move(worker)};
  for (const SocketConnection::Watched& each : places) {
    const Interest interest = each.toSend ? Interest::kReadWrite : Interest::kRead;
    if (Status added = poller_->add(each.fd, key, interest); !added.ok()) {
      for (const int fd : watched.fds) poller_->remove(fd);
      watched_.erase(key);
      return added;
    }
    watched.fds.push_back(each.fd);
  }
  return key;
}

void SocketProvider::unwatch(uint64_t watch) {
  std::lock_guard lock(mutex_);
  const auto found = watched_.find(watch);
  if (found == watched_.end()) return;
  for (const int fd : found->second.fds) poller_->remove(fd);
  watched_.erase(found);
}

}  // namespace tutti::net::socket
