// The sender's end of a link that another process of its host carries (relay_service.h).
#pragma once

#include <chrono>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "base/fd.h"
#include "base/mapping.h"
#include "transport/net/relay_wire.h"
#include "transport/net/transfer_log.h"
#include "transport/transport.h"

namespace tutti::transport::net {

// Shared by the end and whoever ends all channels of the process.
using RelayChannel = std::shared_ptr<UniqueFd>;

class RelayedEnd final : public LinkEnd, public Motor {
 public:
  struct Parts {
    UniqueMapping memory;
    wire::LinkGeometry geometry;
    RelayChannel channel;
    bootstrap::PeerInfo carrier;
    int32_t sender = -1;
    int32_t receiver = -1;
    Clock& clock;
  };
  explicit RelayedEnd(Parts parts)
      : parts_(std::move(parts)), view_(wire::viewLink(parts_.memory.get(), parts_.geometry)) {}

  const wire::LinkView& view() const override { return view_; }
  Motor* motor() override { return this; }
  int32_t carrier() const override { return parts_.carrier.rank; }
  const RelayChannel& channel() const { return parts_.channel; }

  // Moves nothing: looks at times whether the carrier is there.
  bool run() override;
  bool sends() const override { return true; }
  void attend() override {}
  void settle() override { endTransfer(0); }
  void leave(const Parting& parting) override;
  Parting parting() override;
  Carried carried() const override;
  // Messages are told of when this rank looks, with the times at which the carrier took them.
  void profile(observe::Profiler& profiler) override;
  void beginTransfer(const observe::EventTag& call, const observe::TransferNote& note) override;
  void endTransfer(uint64_t endMessage) override;

 private:
  void follow();
  RelayPage& page() const { return relayPage(parts_.memory.get(), parts_.geometry); }

  const Parts parts_;
  const wire::LinkView view_;
  std::mutex mutex_;  // guards all below
  Instant nextLook_{};
  Parting ownParting_;                // what this side has found out
  std::unique_ptr<TransferLog> log_;  // where the rank is profiled
  uint64_t toldTaken_ = 0;            // messages that it was told of as taken
  Instant lastTaken_{};               // the last of them
};

struct RelayOptions {
  bootstrap::Handoff* handoff = nullptr;  // outlives the request
  bootstrap::PeerInfo carrier;
  bootstrap::PeerInfo sender;
  bootstrap::PeerInfo receiver;
  std::chrono::milliseconds timeout;
  Clock& clock;
};

// Asks the carrier's process, which first hands over a channel; to let go of it takes the request
// back.
class CarrierRequest {
 public:
  CarrierRequest(const RelayOptions& options, const LinkOptions& ofLink, const Offer& offer);
  ~CarrierRequest() { options_.handoff->withdraw(token_); }
  CarrierRequest(const CarrierRequest&) = delete;
  CarrierRequest& operator=(const CarrierRequest&) = delete;

  // kDone: there is an answer, at the latest after three times the timeout: that process waits for
  // this one and for the receiver's. kRemoteError: it cannot reach the receiver. Does not block.
  Result<Progress> poll();
  // Once. Null, with a warning: it carries nothing for this one. REQUIRES: poll() was kDone.
  std::unique_ptr<RelayedEnd> take() { return std::move(end_); }

 private:
  Result<bool> ask();
  void carry();

  const RelayOptions options_;
  const LinkOptions ofLink_;
  const Offer offer_;
  bootstrap::Handoff::Taking taking_;  // of the channel
  UniqueFd channel_;
  UniqueMapping memory_;
  bootstrap::HandoffToken token_{};  // of the ring, once it was asked
  Instant deadline_{};
  std::unique_ptr<RelayedEnd> end_;
};

}  // namespace tutti::transport::net
