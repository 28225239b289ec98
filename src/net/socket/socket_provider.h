// Connections over TCP. One listener and one service thread ("tutti-net") a process, both from the
// first use on; every connection opens with the bootstrap's handshake under this process's own key.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "bootstrap/acceptor.h"
#include "bootstrap/key.h"
#include "bootstrap/poller.h"
#include "bootstrap/socket_address.h"
#include "net/net.h"
#include "net/registry.h"

namespace tutti::net::socket {

class SocketProvider final : public Provider {
 public:
  explicit SocketProvider(NetworkOptions options);
  ~SocketProvider() override;

  const Caps& caps() const override { return caps_; }
  Result<Contact> contact() override;
  void expect(uint64_t number, std::shared_ptr<Worker> worker) override;
  void forget(uint64_t number) override;
  Result<std::unique_ptr<Connection>> connect(const Contact& contact, const Caller& caller,
                                              std::chrono::milliseconds timeout) override;
  Result<uint64_t> watch(Connection& connection, const Readiness& readiness,
                         std::shared_ptr<Worker> worker) override;
  void unwatch(uint64_t watch) override;

 private:
  struct Watched {
    int fd = -1;
    std::shared_ptr<Worker> worker;  // shared with the connection's owner
  };

  Status listen();
  Status startService();
  void serve();
  void serveOnce(std::span<const bootstrap::Poller::Event> events);
  void deliver(bootstrap::Accepted accepted);

  const Caps caps_{.name = "socket", .takesAnyMemory = true};
  const NetworkOptions options_;

  std::mutex mutex_;  // guards all below; the service thread waits on poller_ without it
  std::array<std::byte, 16> secret_{};
  std::unique_ptr<bootstrap::Poller> poller_;  // before the acceptor, which uses it
  std::unique_ptr<bootstrap::Acceptor> acceptor_;
  std::map<uint64_t, std::shared_ptr<Worker>> expected_;  // shared with the links' ends
  std::unordered_map<uint64_t, Watched> watched_;
  uint64_t nextKey_ = bootstrap::Acceptor::kFirstFreeKey;
  bool isStopping_ = false;
  std::thread thread_;
};

}  // namespace tutti::net::socket
