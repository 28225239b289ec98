#include "transport/net/net_transport.h"

#include <sys/mman.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/mapping.h"
#include "transport/net/net_offer.h"
#include "transport/net/pump.h"
#include "transport/offer.h"

namespace tutti::transport::net {
namespace {

const std::vector<size_t> kNoAdapters;

// Where a ring lies: plain memory, pages of which cost nothing until a slot there is touched, and
// perhaps slots in a GPU's.
struct RingMemory {
  UniqueMapping pages;
  std::unique_ptr<device::DeviceMemory> gpu;
  UniqueFd dmaBuffer;  // of gpu, where its driver gives one

  tutti::net::GpuRegion region(const std::vector<std::string>& obstacles) const {
    return {.bytes = {static_cast<std::byte*>(gpu->address()), gpu->bytes()},
            .dmaBuffer = dmaBuffer.get(),
            .obstacles = obstacles};
  }
};

// The ring is plain memory, and the pump's, which may be at work in the provider's thread when the
// end goes.
template <typename PumpKind>
class NetEnd : public LinkEnd {
 public:
  NetEnd(std::shared_ptr<PumpKind> pump, tutti::net::Provider& provider)
      : provider_(provider), pump_(std::move(pump)) {}
  ~NetEnd() override { pump_->close(); }
  const wire::LinkView& view() const override { return pump_->ring(); }
  Motor* motor() override { return pump_.get(); }
  wire::CarrierReach carrierReach() const override { return provider_.caps().reach; }

 protected:
  tutti::net::Provider& provider_;
  const std::shared_ptr<PumpKind> pump_;  // shared with the provider while it watches the
                                          // connection
};

class NetReceiverEnd final : public NetEnd<ReceivePump> {
 public:
  NetReceiverEnd(std::shared_ptr<ReceivePump> pump, tutti::net::Provider& provider, uint64_t number)
      : NetEnd(std::move(pump), provider), number_(number) {}
  ~NetReceiverEnd() override { provider_.forget(number_); }
  wire::Landing* landing() override {
    return carrierReach() == wire::CarrierReach::kLinkOnly ? nullptr : &pump_->landing();
  }

 private:
  const uint64_t number_;
};

// `adapters`: those that may reach the GPU's memory, where the link is to have some.
Result<std::shared_ptr<RingMemory>> makeRing(const LinkOptions& options,
                                             const std::vector<size_t>& adapters) {
  const wire::LinkGeometry& geometry = options.geometry;
  const size_t bytes = wire::linkBytes(geometry);
  auto memory = std::make_shared<RingMemory>();
  TUTTI_TRY_ASSIGN(memory->pages, mapPrivate(bytes, fmt::format("of a link of {} bytes", bytes)));
  if (adapters.empty() || geometry.shortCount == 0) return memory;
  TUTTI_TRY_ASSIGN(memory->gpu,
                   options.gpu->gpu->makeMemory(size_t{geometry.slotCount} * geometry.slotBytes));
  if (!options.gpu->usesDmaBuffers) return memory;
  Result<UniqueFd> buffer = options.gpu->gpu->exportForDevices(*memory->gpu);
  if (buffer.ok()) memory->dmaBuffer = std::move(buffer).value();
  return memory;
}

std::string linkName(const bootstrap::PeerInfo& sender, const bootstrap::PeerInfo& receiver) {
  return fmt::format("a link of GPU ranks {} -> {}", sender.rank, receiver.rank);
}

// Once known, of each end.
void tellGpuSlots(const std::string& link, const Status& taken) {
  if (taken.ok()) {
    log::info(log::Subsystem::kNet, "{}: GPUDirect: the network reaches the GPU's memory", link);
  } else {
    log::warn("{} goes through pinned host memory: {}", link, taken.message());
  }
}

}  // namespace

NetTransport::NetTransport(NetTransportOptions options) : options_(std::move(options)) {
  if (options_.handoff == nullptr) return;
  relays_ = std::make_shared<RelayService>(RelayService::Options{.provider = *options_.provider,
                                                                 .token = options_.relayToken,
                                                                 .timeout = options_.timeout,
                                                                 .clock = *options_.clock,
                                                                 .others = measured_});
  options_.handoff->addSource([relays = std::weak_ptr(relays_)](const auto& token) {
    const std::shared_ptr<RelayService> here = relays.lock();
    return here != nullptr ? here->open(token) : UniqueFd();
  });
}

// With the listener for links, so that an interface that cannot be used is told here already.
Result<Progress> NetTransport::prepare() {
  TUTTI_TRY_ASSIGN(const Progress progress, options_.provider->prepare());
  if (progress == Progress::kDone) TUTTI_TRY(options_.provider->contact().takeStatus());
  return progress;
}

std::string NetTransport::obstacle(const bootstrap::PeerInfo& sender,
                                   const bootstrap::PeerInfo& receiver) const {
  return sender.rank == receiver.rank ? "the same rank" : "";
}

// The first communicator tells the place of this process on its host: processes that each count
// their own would all begin with the same adapter.
void NetTransport::noteRanks(const tutti::net::RanksHere& ranks) {
  {
    const std::lock_guard lock(mutex_);
    if (!place_) place_ = static_cast<uint32_t>(ranks.place);
  }
  options_.provider->noteRanks(ranks);
}

uint32_t NetTransport::place() {
  const std::lock_guard lock(mutex_);
  return place_.value_or(0);
}

Pump::Options NetTransport::pumpOptions(const wire::LinkView& ring) const {
  return {.ring = ring,
          .provider = *options_.provider,
          .clock = *options_.clock,
          .patience = options_.timeout,
          .others = measured_};
}

Result<Listening> NetTransport::listen(const bootstrap::PeerInfo& sender,
                                       const bootstrap::PeerInfo& receiver,
                                       const LinkOptions& options) {
  const wire::LinkGeometry& geometry = options.geometry;
  TUTTI_TRY(checkGeometry(geometry));
  NetOffer layout{.slotCount = geometry.slotCount, .slotBytes = geometry.slotBytes};
  TUTTI_TRY_ASSIGN(layout.contact, options_.provider->contact());
  TUTTI_TRY_ASSIGN(
      std::shared_ptr<RingMemory> memory,
      makeRing(options, options.gpu != nullptr ? options.gpu->receiveAdapters : kNoAdapters));
  options_.rng->fill(std::as_writable_bytes(std::span(&layout.number, 1)));
  layout.number = tutti::net::withTurn(layout.number, place() + options.turn);
  wire::LinkView view = wire::viewLink(memory->pages.get(), geometry);
  Pump::Options ofPump = pumpOptions(view);
  ofPump.memory = memory;
  ofPump.hostCount = options.hostCount;
  if (memory->gpu) {
    ofPump.adapters = options.gpu->receiveAdapters;
    ofPump.ring.gpuSlots = static_cast<std::byte*>(memory->gpu->address());
    ofPump.takeGpuSlots = [region = memory->region(options.gpu->receiveObstacles),
                           link = linkName(sender, receiver)](tutti::net::Connection& connection) {
      const Status taken = connection.takeGpuMemory(region);
      tellGpuSlots(link, taken);
      return taken.ok();
    };
  }
  auto pump = std::make_shared<ReceivePump>(ofPump);
  options_.provider->expect(layout.number, pump);
  Offer offer;
  std::memcpy(offer.data(), &layout, sizeof layout);
  return Listening{
      .end = std::make_unique<NetReceiverEnd>(std::move(pump), *options_.provider, layout.number),
      .offer = offer};
}

class NetTransport::Pending final : public PendingEnd {
 public:
  struct Parts {
    std::shared_ptr<RingMemory> memory;
    wire::LinkGeometry geometry;
    const GpuSlots* gpu = nullptr;  // null: no slots in a GPU's memory
    int32_t hostCount = 0;
    std::string name;
    std::unique_ptr<tutti::net::PendingConnection> connection;
  };
  Pending(NetTransport& transport, Parts parts) : transport_(transport), parts_(std::move(parts)) {}

  Result<std::unique_ptr<LinkEnd>> poll() override {
    TUTTI_TRY_ASSIGN(auto connection, parts_.connection->poll());
    if (connection == nullptr) return std::unique_ptr<LinkEnd>();
    const std::shared_ptr<RingMemory>& memory = parts_.memory;
    wire::LinkView view = wire::viewLink(memory->pages.get(), parts_.geometry);
    if (memory->gpu) {
      const Status taken = connection->takeGpuMemory(memory->region(parts_.gpu->sendObstacles));
      tellGpuSlots(parts_.name, taken);
      if (taken.ok()) view.gpuSlots = static_cast<std::byte*>(memory->gpu->address());
    }
    Pump::Options ofPump = transport_.pumpOptions(view);
    ofPump.memory = memory;
    ofPump.hostCount = parts_.hostCount;
    auto pump = std::make_shared<SendPump>(ofPump);
    pump->arrived(std::move(connection));
    return std::unique_ptr<LinkEnd>(
        std::make_unique<NetEnd<SendPump>>(std::move(pump), *transport_.options_.provider));
  }

 private:
  NetTransport& transport_;
  Parts parts_;
};

Result<std::unique_ptr<PendingEnd>> NetTransport::connect(const bootstrap::PeerInfo& sender,
                                                          const bootstrap::PeerInfo& receiver,
                                                          const LinkOptions& options,
                                                          const Offer& offer) {
  const wire::LinkGeometry& geometry = options.geometry;
  TUTTI_TRY(checkGeometry(geometry));
  TUTTI_TRY_ASSIGN(const NetOffer layout, decodeNetOffer(offer, geometry, receiver.rank));
  TUTTI_TRY_ASSIGN(
      std::shared_ptr<RingMemory> memory,
      makeRing(options, options.gpu != nullptr ? options.gpu->sendAdapters : kNoAdapters));
  tutti::net::Caller caller{
      .number = layout.number, .self = Rank{sender.rank}, .peer = Rank{receiver.rank}};
  if (memory->gpu) caller.adapters = options.gpu->sendAdapters;
  TUTTI_TRY_ASSIGN(auto connection,
                   options_.provider->connect(layout.contact, caller, options_.timeout));
  return std::unique_ptr<PendingEnd>(
      std::make_unique<Pending>(*this, Pending::Parts{.memory = std::move(memory),
                                                      .geometry = geometry,
                                                      .gpu = options.gpu,
                                                      .hostCount = options.hostCount,
                                                      .name = linkName(sender, receiver),
                                                      .connection = std::move(connection)}));
}

// The carrier's answer first; where it declines, a connection of this process's own.
class NetTransport::PendingOver final : public PendingEnd {
 public:
  struct Parts {
    bootstrap::PeerInfo sender;
    bootstrap::PeerInfo receiver;
    LinkOptions options;
    Offer offer;
    std::unique_ptr<CarrierRequest> request;
  };
  PendingOver(NetTransport& transport, Parts parts)
      : transport_(transport), parts_(std::move(parts)) {}

  Result<std::unique_ptr<LinkEnd>> poll() override {
    if (direct_ != nullptr) return direct_->poll();
    TUTTI_TRY_ASSIGN(const Progress progress, parts_.request->poll());
    if (progress == Progress::kIdle) return std::unique_ptr<LinkEnd>();
    if (std::unique_ptr<RelayedEnd> end = parts_.request->take(); end != nullptr) {
      transport_.keepChannel(end->channel());
      return std::unique_ptr<LinkEnd>(std::move(end));
    }
    TUTTI_TRY_ASSIGN(
        direct_, transport_.connect(parts_.sender, parts_.receiver, parts_.options, parts_.offer));
    return direct_->poll();
  }

 private:
  NetTransport& transport_;
  const Parts parts_;
  std::unique_ptr<PendingEnd> direct_;
};

// What the provider is, is known once it has been used.
bool NetTransport::isNeeded(const Detour& detour) {
  if (options_.handoff == nullptr) return false;
  return detour.isForced ||
         (options_.provider->contact().ok() && !options_.provider->caps().isRouted);
}

Result<std::unique_ptr<PendingEnd>> NetTransport::connectOver(const Detour& detour,
                                                              const bootstrap::PeerInfo& sender,
                                                              const bootstrap::PeerInfo& receiver,
                                                              const LinkOptions& options,
                                                              const Offer& offer) {
  if (!isNeeded(detour)) return connect(sender, receiver, options, offer);
  TUTTI_TRY(checkGeometry(options.geometry));
  const RelayOptions ofRelay{.handoff = options_.handoff,
                             .carrier = detour.carrier,
                             .sender = sender,
                             .receiver = receiver,
                             .timeout = options_.timeout,
                             .clock = *options_.clock};
  auto request = std::make_unique<CarrierRequest>(ofRelay, options, offer);
  return std::unique_ptr<PendingEnd>(
      std::make_unique<PendingOver>(*this, PendingOver::Parts{.sender = sender,
                                                              .receiver = receiver,
                                                              .options = options,
                                                              .offer = offer,
                                                              .request = std::move(request)}));
}

void NetTransport::keepChannel(const RelayChannel& channel) {
  const std::lock_guard lock(mutex_);
  std::erase_if(channels_, [](const std::weak_ptr<UniqueFd>& each) { return each.expired(); });
  channels_.push_back(channel);
}

// Own links first: two processes that both end must not wait for each other.
void NetTransport::awaitOwners(Nanoseconds bound) {
  {
    const std::lock_guard lock(mutex_);
    for (const std::weak_ptr<UniqueFd>& each : channels_) {
      if (const RelayChannel channel = each.lock()) ::shutdown(channel->get(), SHUT_RDWR);
    }
  }
  if (relays_ != nullptr) relays_->awaitOwners(bound);
}

}  // namespace tutti::transport::net
