#include "transport/local/local_transport.h"

#include <errno.h>
#include <sys/mman.h>

#include <map>
#include <mutex>

#include "base/mapping.h"
#include "transport/gpu_slots.h"
#include "transport/offer.h"
#include "transport/ready_end.h"

namespace tutti::transport::local {

// Link memory on its way from receiver to sender. Any thread.
class Exchange {
 public:
  struct Place {
    std::shared_ptr<UniqueMapping> memory;  // null: there is none
    GpuSlotOffer gpuSlots;
  };

  void put(const Token& token, Place place) {
    std::lock_guard lock(mutex_);
    waiting_.emplace(token, std::move(place));
  }

  Place take(const Token& token) {
    std::lock_guard lock(mutex_);
    const auto found = waiting_.find(token);
    if (found == waiting_.end()) return {};
    Place place = std::move(found->second);
    waiting_.erase(found);
    return place;
  }

 private:
  std::mutex mutex_;
  std::map<Token, Place> waiting_;  // guarded by mutex_
};

namespace {

class LocalEnd : public LinkEnd {
 public:
  LocalEnd(std::shared_ptr<UniqueMapping> memory, std::unique_ptr<device::DeviceMemory> gpuSlots,
           const wire::LinkGeometry& geometry)
      : memory_(std::move(memory)),
        gpuSlots_(std::move(gpuSlots)),
        view_(viewWithGpuSlots(memory_->get(), geometry, gpuSlots_.get())) {}
  const wire::LinkView& view() const override { return view_; }
  Motor* motor() override { return nullptr; }

 private:
  const std::shared_ptr<UniqueMapping> memory_;  // shared by the two ends, and the exchange in
                                                 // between
  const std::unique_ptr<device::DeviceMemory> gpuSlots_;  // this end's mapping of them
  const wire::LinkView view_;
};

class LocalReceiverEnd final : public LocalEnd {
 public:
  LocalReceiverEnd(std::shared_ptr<UniqueMapping> memory,
                   std::unique_ptr<device::DeviceMemory> gpuSlots,
                   const wire::LinkGeometry& geometry, std::shared_ptr<Exchange> exchange,
                   const Token& token)
      : LocalEnd(std::move(memory), std::move(gpuSlots), geometry),
        exchange_(std::move(exchange)),
        token_(token) {}
  ~LocalReceiverEnd() override { exchange_->take(token_); }

 private:
  const std::shared_ptr<Exchange> exchange_;  // see LocalTransport
  const Token token_;
};

}  // namespace

LocalTransport::LocalTransport(Rng& rng) : rng_(rng), exchange_(std::make_shared<Exchange>()) {}

std::string LocalTransport::obstacle(const bootstrap::PeerInfo& sender,
                                     const bootstrap::PeerInfo& receiver) const {
  return sender.processHash == receiver.processHash ? "" : "other process";
}

Result<Listening> LocalTransport::listen(const bootstrap::PeerInfo& sender,
                                         const bootstrap::PeerInfo& receiver,
                                         const LinkOptions& options) {
  const wire::LinkGeometry& geometry = options.geometry;
  TUTTI_TRY(checkGeometry(geometry));
  // Anonymous pages are zero, and cost nothing before a slot is used.
  const size_t bytes = wire::linkBytes(geometry);
  TUTTI_TRY_ASSIGN(UniqueMapping pages,
                   mapPrivate(bytes, fmt::format("of a link of {} bytes", bytes)));
  auto memory = std::make_shared<UniqueMapping>(std::move(pages));
  Token token;
  rng_.fill(token);
  GpuSlotMemory slots = makeGpuSlots(sender, receiver, options);
  Exchange::Place place{.memory = memory, .gpuSlots = {}};
  if (slots.memory != nullptr && markGpuSlots(*options.gpu->gpu, *slots.memory, token)) {
    place.gpuSlots = {
        .handle = std::move(slots.handle), .token = token, .bytes = slots.memory->bytes()};
  }
  exchange_->put(token, std::move(place));
  return Listening{.end = std::make_unique<LocalReceiverEnd>(
                       std::move(memory), std::move(slots.memory), geometry, exchange_, token),
                   .offer = encodeOffer(OfferKind::kLocal, geometry, {.token = token})};
}

Result<std::unique_ptr<PendingEnd>> LocalTransport::connect(const bootstrap::PeerInfo& sender,
                                                            const bootstrap::PeerInfo& receiver,
                                                            const LinkOptions& options,
                                                            const Offer& offer) {
  const wire::LinkGeometry& geometry = options.geometry;
  TUTTI_TRY(checkGeometry(geometry));
  TUTTI_TRY_ASSIGN(const OfferedMemory offered, decodeOffer(offer, OfferKind::kLocal, geometry));
  Exchange::Place place = exchange_->take(offered.token);
  if (place.memory == nullptr || place.memory->bytes() != wire::linkBytes(geometry)) {
    return remoteError(
        "rank {}: rank {} has no link under the token it offered (withdrawn, or taken before)",
        sender.rank, receiver.rank);
  }
  auto gpuSlots = mapGpuSlots(sender, receiver, options, std::move(place.gpuSlots));
  return makeReady(
      std::make_unique<LocalEnd>(std::move(place.memory), std::move(gpuSlots), geometry));
}

}  // namespace tutti::transport::local
