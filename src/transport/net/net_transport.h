// Links between ranks of different hosts, or that share no memory: a ring on each side and a
// connection between them.
#pragma once

#include <chrono>
#include <memory>

#include "base/clock.h"
#include "base/rng.h"
#include "net/net.h"
#include "transport/net/pump.h"
#include "transport/transport.h"

namespace tutti::transport::net {

struct NetTransportOptions {
  std::unique_ptr<tutti::net::Provider> provider;
  std::chrono::milliseconds timeout{10'000};
  Rng* rng = &systemRng();
  Clock* clock = &steadyClock();
};

class NetTransport final : public Transport {
 public:
  explicit NetTransport(NetTransportOptions options) : options_(std::move(options)) {}

  const Caps& caps() const override { return caps_; }
  std::string obstacle(const bootstrap::PeerInfo& sender,
                       const bootstrap::PeerInfo& receiver) const override;
  Result<Listening> listen(const bootstrap::PeerInfo& sender, const bootstrap::PeerInfo& receiver,
                           const wire::LinkGeometry& geometry) override;
  Result<std::unique_ptr<LinkEnd>> connect(const bootstrap::PeerInfo& sender,
                                           const bootstrap::PeerInfo& receiver,
                                           const wire::LinkGeometry& geometry,
                                           const Offer& offer) override;

 private:
  Pump::Options pumpOptions(const wire::LinkView& ring) const;

  const Caps caps_{.name = "net", .mapped = false, .needsOneProcess = false, .needsOneHost = false};
  const NetTransportOptions options_;
};

}  // namespace tutti::transport::net
