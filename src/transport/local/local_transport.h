// Links between ranks of one process: plain memory that both address.
#pragma once

#include <memory>

#include "base/rng.h"
#include "transport/transport.h"

namespace tutti::transport::local {

class Exchange;

// Memory waits in an exchange, under a random token, until the sender takes it: an offer that is
// forged, repeated or meant for another process finds nothing.
class LocalTransport final : public Transport {
 public:
  explicit LocalTransport(Rng& rng);

  const Caps& caps() const override { return caps_; }
  std::string obstacle(const bootstrap::PeerInfo& sender,
                       const bootstrap::PeerInfo& receiver) const override;
  Result<Listening> listen(const bootstrap::PeerInfo& sender, const bootstrap::PeerInfo& receiver,
                           const LinkOptions& options) override;
  Result<std::unique_ptr<PendingEnd>> connect(const bootstrap::PeerInfo& sender,
                                              const bootstrap::PeerInfo& receiver,
                                              const LinkOptions& options,
                                              const Offer& offer) override;

 private:
  const Caps caps_{.name = "local", .mapped = true, .needsOneProcess = true, .needsOneHost = true};
  Rng& rng_;
  // Shared by the transport and its receivers' ends, which withdraw their offer and may outlive it.
  const std::shared_ptr<Exchange> exchange_;
};

}  // namespace tutti::transport::local
