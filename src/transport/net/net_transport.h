// Links between ranks of different hosts, or that share no memory: a ring on each side and a
// connection between them.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "bootstrap/handoff.h"
#include "net/net.h"
#include "transport/net/pump.h"
#include "transport/net/relay_service.h"
#include "transport/net/relayed_end.h"
#include "transport/transport.h"

namespace tutti::transport::net {

struct NetTransportOptions {
  std::unique_ptr<tutti::net::Provider> provider;
  std::chrono::milliseconds timeout{10'000};
  // Hands rings to processes that carry links for this one, and is asked for channels by those for
  // which this one does; null: neither. Outlives the transport and its ends, and ends no later than
  // the last request.
  bootstrap::Handoff* handoff = nullptr;
  bootstrap::HandoffToken relayToken{};  // of those who ask
  Rng* rng = &systemRng();
  Clock* clock = &steadyClock();
};

class NetTransport final : public Transport {
 public:
  explicit NetTransport(NetTransportOptions options);

  const Caps& caps() const override { return caps_; }
  Result<Progress> prepare() override;
  std::string obstacle(const bootstrap::PeerInfo& sender,
                       const bootstrap::PeerInfo& receiver) const override;
  Result<Listening> listen(const bootstrap::PeerInfo& sender, const bootstrap::PeerInfo& receiver,
                           const LinkOptions& options) override;
  Result<std::unique_ptr<PendingEnd>> connect(const bootstrap::PeerInfo& sender,
                                              const bootstrap::PeerInfo& receiver,
                                              const LinkOptions& options,
                                              const Offer& offer) override;
  Result<std::unique_ptr<PendingEnd>> connectOver(const Detour& detour,
                                                  const bootstrap::PeerInfo& sender,
                                                  const bootstrap::PeerInfo& receiver,
                                                  const LinkOptions& options,
                                                  const Offer& offer) override;
  void awaitOwners(Nanoseconds bound) override;
  void noteRanks(const tutti::net::RanksHere& ranks) override;
  Result<std::vector<tutti::net::Adapter>> adapters() override {
    return options_.provider->adapters();
  }

 private:
  class Pending;
  class PendingOver;
  bool isNeeded(const Detour& detour);
  uint32_t place();
  void keepChannel(const RelayChannel& channel);
  Pump::Options pumpOptions(const wire::LinkView& ring) const;

  const Caps caps_{.name = "net", .mapped = false, .needsOneProcess = false, .needsOneHost = false};
  const NetTransportOptions options_;
  const std::shared_ptr<MeasuredLinks> measured_ = std::make_shared<MeasuredLinks>();  // by pumps
  std::shared_ptr<RelayService> relays_;  // shared with the hand-off service; null: carries none
  std::mutex mutex_;                      // guards all below
  std::optional<uint32_t> place_;         // tutti::net::RanksHere's, as first noted
  std::vector<std::weak_ptr<UniqueFd>> channels_;  // of links that others carry
};

}  // namespace tutti::transport::net
