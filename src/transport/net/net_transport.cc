#include "transport/net/net_transport.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/mapping.h"
#include "transport/net/pump.h"
#include "transport/offer.h"

namespace tutti::transport::net {
namespace {

// An offer's bytes.
struct Layout {
  uint32_t kind = static_cast<uint32_t>(OfferKind::kNet);
  uint32_t slotCount = 0;
  uint32_t slotBytes = 0;
  uint32_t zero = 0;
  uint64_t number = 0;  // of the link, in the receiver's process
  tutti::net::Provider::Contact contact{};
};
static_assert(sizeof(Layout) == sizeof(Offer));

// The ring is plain memory; the pump may be at work in the provider's thread when the end goes.
template <typename PumpKind>
class NetEnd : public LinkEnd {
 public:
  NetEnd(UniqueMapping memory, std::shared_ptr<PumpKind> pump, tutti::net::Provider& provider)
      : provider_(provider), memory_(std::move(memory)), pump_(std::move(pump)) {}
  ~NetEnd() override { pump_->close(); }
  const wire::LinkView& view() const override { return pump_->ring(); }
  Motor* motor() override { return pump_.get(); }

 protected:
  bool takesAnyMemory() const { return provider_.caps().takesAnyMemory; }

  tutti::net::Provider& provider_;
  const UniqueMapping memory_;
  const std::shared_ptr<PumpKind> pump_;  // shared with the provider while it watches the
                                          // connection
};

class NetSenderEnd final : public NetEnd<SendPump> {
 public:
  using NetEnd::NetEnd;
  bool sendsReferences() const override { return takesAnyMemory(); }
};

class NetReceiverEnd final : public NetEnd<ReceivePump> {
 public:
  NetReceiverEnd(UniqueMapping memory, std::shared_ptr<ReceivePump> pump,
                 tutti::net::Provider& provider, uint64_t number)
      : NetEnd(std::move(memory), std::move(pump), provider), number_(number) {}
  ~NetReceiverEnd() override { provider_.forget(number_); }
  wire::Landing* landing() override { return takesAnyMemory() ? &pump_->landing() : nullptr; }

 private:
  const uint64_t number_;
};

// Pages that no slot has touched cost nothing.
Result<UniqueMapping> makeRing(const wire::LinkGeometry& geometry) {
  const size_t bytes = wire::linkBytes(geometry);
  return mapPrivate(bytes, fmt::format("of a link of {} bytes", bytes));
}

}  // namespace

std::string NetTransport::obstacle(const bootstrap::PeerInfo& sender,
                                   const bootstrap::PeerInfo& receiver) const {
  return sender.rank == receiver.rank ? "the same rank" : "";
}

Pump::Options NetTransport::pumpOptions(const wire::LinkView& ring) const {
  return {.ring = ring,
          .provider = *options_.provider,
          .clock = *options_.clock,
          .patience = options_.timeout};
}

Result<Listening> NetTransport::listen(const bootstrap::PeerInfo&, const bootstrap::PeerInfo&,
                                       const wire::LinkGeometry& geometry) {
  TUTTI_TRY(checkGeometry(geometry));
  Layout layout{.slotCount = geometry.slotCount, .slotBytes = geometry.slotBytes};
  TUTTI_TRY_ASSIGN(layout.contact, options_.provider->contact());
  TUTTI_TRY_ASSIGN(UniqueMapping memory, makeRing(geometry));
  options_.rng->fill(std::as_writable_bytes(std::span(&layout.number, 1)));
  const wire::LinkView view = wire::viewLink(memory.get(), geometry);
  auto pump = std::make_shared<ReceivePump>(pumpOptions(view));
  options_.provider->expect(layout.number, pump);
  Offer offer;
  std::memcpy(offer.data(), &layout, sizeof layout);
  return Listening{.end = std::make_unique<NetReceiverEnd>(std::move(memory), std::move(pump),
                                                           *options_.provider, layout.number),
                   .offer = offer};
}

Result<std::unique_ptr<LinkEnd>> NetTransport::connect(const bootstrap::PeerInfo& sender,
                                                       const bootstrap::PeerInfo& receiver,
                                                       const wire::LinkGeometry& geometry,
                                                       const Offer& offer) {
  TUTTI_TRY(checkGeometry(geometry));
  Layout layout;
  std::memcpy(&layout, offer.data(), sizeof layout);
  if (layout.kind != static_cast<uint32_t>(OfferKind::kNet) || layout.zero != 0) {
    return remoteError("rank {}'s link offer is garbled or another transport's (kind {:#x})",
                       receiver.rank, layout.kind);
  }
  if (layout.slotCount != geometry.slotCount || layout.slotBytes != geometry.slotBytes) {
    return remoteError("rank {} offers a link of {} slots of {} bytes, wanted {} of {}",
                       receiver.rank, layout.slotCount, layout.slotBytes, geometry.slotCount,
                       geometry.slotBytes);
  }
  TUTTI_TRY_ASSIGN(UniqueMapping memory, makeRing(geometry));
  TUTTI_TRY_ASSIGN(auto connection, options_.provider->connect(layout.contact,
                                                               {.number = layout.number,
                                                                .self = Rank{sender.rank},
                                                                .peer = Rank{receiver.rank}},
                                                               options_.timeout));
  const wire::LinkView view = wire::viewLink(memory.get(), geometry);
  auto pump = std::make_shared<SendPump>(pumpOptions(view));
  pump->arrived(std::move(connection));
  std::unique_ptr<LinkEnd> end =
      std::make_unique<NetSenderEnd>(std::move(memory), std::move(pump), *options_.provider);
  return end;
}

}  // namespace tutti::transport::net
