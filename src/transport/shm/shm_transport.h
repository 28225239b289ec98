// Links between processes of one user on one host: a memfd of the receiver's, handed to the sender
// over a Unix socket.
#pragma once

#include <chrono>

#include "bootstrap/handoff.h"
#include "transport/transport.h"

namespace tutti::transport::shm {

struct ShmOptions {
  bootstrap::Handoff* handoff = nullptr;  // null: this process cannot hand out segments. Outlives
                                          // the transport and its ends
  bool disabled = false;                  // NCCL_SHM_DISABLE
  std::chrono::milliseconds timeout{10'000};
};

class ShmTransport final : public Transport {
 public:
  explicit ShmTransport(const ShmOptions& options) : options_(options) {}

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
  class Pending;
  const Caps caps_{.name = "shm",
                   .mapped = true,
                   .mapsSegments = true,
                   .needsOneProcess = false,
                   .needsOneHost = true};
  const ShmOptions options_;
};

}  // namespace tutti::transport::shm
