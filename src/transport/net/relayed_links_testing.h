// For tests of links that another process of the sender's host carries: three processes' parts in
// one.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "net/registry.h"
#include "transport/connect_testing.h"
#include "transport/net/net_transport.h"

namespace tutti::transport::net {

using bootstrap::PeerInfo;
using std::chrono::milliseconds;
using std::chrono::seconds;

inline constexpr wire::LinkGeometry kGeometry{.slotCount = 4, .slotBytes = 64u << 10};

// What a process has.
class Process {
 public:
  explicit Process(int32_t rank, milliseconds timeout = milliseconds(1000),
                   std::unique_ptr<tutti::net::Provider> provider = tutti::net::openNetwork(
                       {.interfaces = "lo", .family = AF_INET, .timeout = milliseconds(2000)})) {
    token_.fill(static_cast<std::byte>(rank + 1));
    transport_.emplace(NetTransportOptions{.provider = std::move(provider),
                                           .timeout = timeout,
                                           .handoff = &handoff_,
                                           .relayToken = token_});
    info_.rank = rank;
    info_.userId = ::geteuid();
    info_.relayToken = token_;
    const std::string name = handoff_.name();
    std::memcpy(info_.handoffName.data(), name.data(), name.size());
  }
  NetTransport& transport() { return *transport_; }
  const PeerInfo& info() const { return info_; }
  void end() { transport_.reset(); }

 private:
  bootstrap::Handoff handoff_;
  bootstrap::HandoffToken token_{};
  std::optional<NetTransport> transport_;
  PeerInfo info_;
};

class RelayedLinks : public testing::Test {
 protected:
  Listening listen(Process& receiver, const Process& sender) {
    return receiver.transport().listen(sender.info(), receiver.info(), kGeometry).value();
  }
  Result<std::unique_ptr<LinkEnd>> connect(Process& sender, const Process& receiver,
                                           const Offer& offer, bool isForced = true) {
    return awaitEnd(
        sender.transport().connectOver({.carrier = carrier_.info(), .isForced = isForced},
                                       sender.info(), receiver.info(), kGeometry, offer));
  }

  Process sender_{0};
  Process carrier_{1};
  Process receiver_{2};
  Listening listening_ = listen(receiver_, sender_);
};

}  // namespace tutti::transport::net
