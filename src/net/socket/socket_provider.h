// Connections over TCP. One listener an interface and one service thread ("tutti-net") a process,
// both from the first use on; every connection opens with the bootstrap's handshake under this
// process's own key.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "bootstrap/acceptor.h"
#include "bootstrap/interfaces.h"
#include "bootstrap/key.h"
#include "bootstrap/poller.h"
#include "bootstrap/socket_address.h"
#include "net/net.h"
#include "net/registry.h"
#include "net/socket/pipe.h"
#include "net/socket/spread.h"
#include "net/socket/stream_threads.h"

namespace tutti::net::socket {

class SocketProvider final : public Provider {
 public:
  explicit SocketProvider(NetworkOptions options);
  ~SocketProvider() override;

  const Caps& caps() const override { return caps_; }
  void noteRanks(const RanksHere& ranks) override {
    std::lock_guard lock(mutex_);
    ranksHere_ = ranks;
  }
  Result<Contact> contact() override;
  void expect(uint64_t number, std::shared_ptr<Worker> worker) override;
  void forget(uint64_t number) override;
  Result<std::unique_ptr<PendingConnection>> connect(const Contact& contact, const Caller& caller,
                                                     std::chrono::milliseconds timeout) override;
  Result<uint64_t> watch(Connection& connection, const Readiness& readiness,
                         std::shared_ptr<Worker> worker) override;
  void unwatch(uint64_t watch) override;

 private:
  struct Watched {
    std::vector<int> fds;
    std::shared_ptr<Worker> worker;  // shared with the connection's owner
  };
  // A link, of which some connections may be here.
  struct Expected {
    std::shared_ptr<Worker> worker;          // shared with the link's end
    std::vector<std::optional<Pipe>> pipes;  // empty until the first says how many there are
    size_t arrived = 0;
  };

  Status chooseWays();
  Status listen();
  Status startService();
  void serve();
  void serveUntil(std::optional<Instant> next);
  void serveOnce(std::span<const bootstrap::Poller::Event> events);
  void deliver(bootstrap::Accepted accepted);
  static bool addStream(Expected& link, uint64_t number, Pipe pipe);
  Result<Cipher> chooseCipher(uint32_t peerCiphers, const Caller& caller) const;

  const Caps caps_{.name = "socket", .reach = wire::CarrierReach::kAnything, .isRouted = true};
  const NetworkOptions options_;

  std::mutex mutex_;  // guards all below; the service thread waits on poller_ without it
  RanksHere ranksHere_;
  // Chosen once, at the first use, and not changed after: read without the lock behind it.
  std::vector<bootstrap::Interface> interfaces_;
  Spread spread_;
  // Null: none. Used by connections, whose owners go first.
  std::unique_ptr<StreamThreads> threads_;

  std::array<std::byte, 16> secret_{};
  std::unique_ptr<bootstrap::Poller> poller_;  // before the acceptors, which use it
  std::vector<std::unique_ptr<bootstrap::Acceptor>> acceptors_;  // one an interface
  std::map<uint64_t, Expected> expected_;
  std::unordered_map<uint64_t, Watched> watched_;
  uint64_t nextKey_;
  bool isStopping_ = false;
  std::thread thread_;
};

}  // namespace tutti::net::socket
