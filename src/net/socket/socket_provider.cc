#include "net/socket/socket_provider.h"

#include <cstring>
#include <utility>

#include "base/log.h"
#include "bootstrap/interfaces.h"
#include "bootstrap/service_thread.h"
#include "bootstrap/socket.h"
#include "net/socket/dial.h"
#include "net/socket/socket_connection.h"

namespace tutti::net::socket {
namespace {

using bootstrap::Acceptor;
using bootstrap::Interest;
using bootstrap::Key;

// A contact's bytes. The scope of a link-local address is the reader's own affair.
struct Layout {
  uint16_t family = 0;  // 4 or 6
  uint16_t port = 0;
  std::array<unsigned char, 16> address{};
  std::array<std::byte, 16> secret{};
  uint32_t zero = 0;
};
static_assert(sizeof(Layout) == sizeof(Provider::Contact));

Provider::Contact encode(const bootstrap::SocketAddress& address,
                         const std::array<std::byte, 16>& secret) {
  const bootstrap::EncodedAddress encoded = bootstrap::encodeAddress(address);
  Layout layout{.secret = secret};
  std::memcpy(&layout.family, encoded.data(), sizeof layout.family);
  std::memcpy(&layout.port, encoded.data() + 2, sizeof layout.port);
  std::memcpy(layout.address.data(), encoded.data() + 8, layout.address.size());
  Provider::Contact contact;
  std::memcpy(contact.data(), &layout, sizeof layout);
  return contact;
}

Result<bootstrap::SocketAddress> decodeAddressOf(const Layout& layout) {
  bootstrap::EncodedAddress encoded{};
  std::memcpy(encoded.data(), &layout.family, sizeof layout.family);
  std::memcpy(encoded.data() + 2, &layout.port, sizeof layout.port);
  std::memcpy(encoded.data() + 8, layout.address.data(), layout.address.size());
  TUTTI_TRY_ASSIGN(bootstrap::SocketAddress address, bootstrap::decodeAddress(encoded));
  if (address.isEmpty() || address.port() == 0 || layout.zero != 0)
    return remoteError("a link offer names no address to connect to");
  return address;
}

Key keyOf(const std::array<std::byte, 16>& secret) {
  Key key;
  bootstrap::keyedHash(Key(), "tutti data links", {secret}, std::as_writable_bytes(key.bytes()));
  return key;
}

}  // namespace

SocketProvider::SocketProvider(NetworkOptions options) : options_(std::move(options)) {}

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
  if (!acceptor_) TUTTI_TRY(listen());
  return encode(acceptor_->address(), secret_);
}

// Under mutex_.
Status SocketProvider::listen() {
  TUTTI_TRY_ASSIGN(
      const bootstrap::InterfaceChoice choice,
      bootstrap::chooseInterfaces({.names = options_.interfaces, .family = options_.family}));
  log::info(log::Subsystem::kNet, "links to other hosts over sockets: {}", choice.reason);
  TUTTI_TRY_ASSIGN(UniqueFd listener, bootstrap::listenOn(choice.interfaces.front().address));
  options_.rng->fill(secret_);
  TUTTI_TRY_ASSIGN(acceptor_, Acceptor::open(std::move(listener),
                                             {.key = keyOf(secret_),
                                              .purpose = bootstrap::Purpose::kData,
                                              .who = "the listener for links",
                                              .clock = options_.clock,
                                              .rng = options_.rng},
                                             *poller_));
  poller_->wake();  // its deadlines are new
  return {};
}

// Under mutex_.
Status SocketProvider::startService() {
  if (thread_.joinable()) return {};
  if (!poller_) {
    TUTTI_TRY_ASSIGN(poller_, bootstrap::Poller::open());
  }
  TUTTI_TRY_ASSIGN(thread_, bootstrap::startThread("tutti-net", [this] { serve(); }));
  return {};
}

void SocketProvider::serve() {
  std::unique_lock lock(mutex_);
  while (!isStopping_) {
    const auto next = acceptor_ ? acceptor_->nextTime() : std::nullopt;
    lock.unlock();
    const auto events = poller_->wait(*options_.clock, next);
    serveOnce(events);
    lock.lock();
  }
}

void SocketProvider::serveOnce(std::span<const bootstrap::Poller::Event> events) {
  std::vector<bootstrap::Accepted> accepted;
  std::vector<std::pair<uint64_t, std::shared_ptr<Worker>>> ready;
  {
    std::lock_guard lock(mutex_);
    for (const auto& event : events) {
      if (event.key < Acceptor::kFirstFreeKey) {
        acceptor_->onEvent(event.key, accepted);
        continue;
      }
      const auto found = watched_.find(event.key);
      if (found == watched_.end()) continue;
      poller_->remove(found->second.fd);
      ready.emplace_back(event.key, std::move(found->second.worker));
      watched_.erase(found);
    }
    if (acceptor_) acceptor_->onTime();
  }
  for (bootstrap::Accepted& one : accepted) deliver(std::move(one));
  for (const auto& [watch, worker] : ready) worker->work(watch);
}

void SocketProvider::deliver(bootstrap::Accepted accepted) {
  const bootstrap::Introduction& who = accepted.introduction;
  std::shared_ptr<Worker> worker;
  {
    std::lock_guard lock(mutex_);
    poller_->remove(accepted.fd.get());
    if (const auto found = expected_.find(who.epoch); found != expected_.end()) {
      worker = std::move(found->second);
      expected_.erase(found);
    }
  }
  if (worker == nullptr) {
    log::info(log::Subsystem::kNet, "rank {} at {} opens a link that rank {} does not expect",
              index(who.rank), accepted.from.text(), index(who.target));
    return;
  }
  bootstrap::setTcpOptions(accepted.fd.get(), options_.timeout);
  worker->arrived(std::make_unique<SocketConnection>(
      std::move(accepted.fd), fmt::format("rank {} at {}", index(who.rank), accepted.from.text())));
}

void SocketProvider::expect(uint64_t number, std::shared_ptr<Worker> worker) {
  std::lock_guard lock(mutex_);
  expected_[number] = std::move(worker);
}

void SocketProvider::forget(uint64_t number) {
  std::lock_guard lock(mutex_);
  expected_.erase(number);
}

Result<std::unique_ptr<Connection>> SocketProvider::connect(const Contact& contact,
                                                            const Caller& caller,
                                                            std::chrono::milliseconds timeout) {
  {
    std::lock_guard lock(mutex_);
    TUTTI_TRY(startService());
  }
  Layout layout;
  std::memcpy(&layout, contact.data(), sizeof layout);
  TUTTI_TRY_ASSIGN(const bootstrap::SocketAddress address, decodeAddressOf(layout));
  const Key key = keyOf(layout.secret);
  TUTTI_TRY_ASSIGN(UniqueFd fd, dial({.address = address,
                                      .key = &key,
                                      .introduction = {.purpose = bootstrap::Purpose::kData,
                                                       .rank = caller.self,
                                                       .target = caller.peer,
                                                       .epoch = caller.number},
                                      .timeout = timeout,
                                      .clock = options_.clock,
                                      .rng = options_.rng}));
  std::unique_ptr<Connection> connection = std::make_unique<SocketConnection>(
      std::move(fd), fmt::format("rank {} at {}", index(caller.peer), address.text()));
  return connection;
}

Result<uint64_t> SocketProvider::watch(Connection& connection, const Readiness& readiness,
                                       std::shared_ptr<Worker> worker) {
  const int fd = static_cast<SocketConnection&>(connection).fd();
  std::lock_guard lock(mutex_);
  const uint64_t key = nextKey_++;
  const Interest interest = readiness.toSend ? Interest::kReadWrite : Interest::kRead;
  TUTTI_TRY(poller_->add(fd, key, interest));
  watched_.emplace(key, Watched{.fd = fd, .worker = std::move(worker)});
  return key;
}

void SocketProvider::unwatch(uint64_t watch) {
  std::lock_guard lock(mutex_);
  const auto found = watched_.find(watch);
  if (found == watched_.end()) return;
  poller_->remove(found->second.fd);
  watched_.erase(found);
}

}  // namespace tutti::net::socket
