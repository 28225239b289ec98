#include "transport/shm/shm_transport.h"

#include <optional>
#include <utility>

#include "base/char_field.h"
#include "base/mapping.h"
#include "base/segment.h"
#include "transport/gpu_slots.h"
#include "transport/offer.h"
#include "transport/ready_end.h"
#include "transport/shm/peer_segments.h"

namespace tutti::transport::shm {
namespace {

constexpr SegmentPurpose kLinkPurpose{
    .name = "tutti-link", .what = "a shared-memory link", .instead = "NCCL_SHM_DISABLE=1"};

class ShmEnd : public LinkEnd {
 public:
  ShmEnd(UniqueMapping memory, std::unique_ptr<device::DeviceMemory> gpuSlots,
         const wire::LinkGeometry& geometry, const bootstrap::PeerInfo& peer)
      : memory_(std::move(memory)),
        gpuSlots_(std::move(gpuSlots)),
        view_(viewWithGpuSlots(memory_.get(), geometry, gpuSlots_.get())),
        segments_({.handoffName = textOf(peer.handoffName), .rank = peer.rank}) {}
  const wire::LinkView& view() const override { return view_; }
  wire::SegmentMapper* mapper() override { return &segments_; }
  Motor* motor() override { return nullptr; }

 private:
  const UniqueMapping memory_;
  const std::unique_ptr<device::DeviceMemory> gpuSlots_;  // this end's mapping of them
  const wire::LinkView view_;
  PeerSegments segments_;
};

// What is for one process to take, until it was taken or this goes.
class Offering {
 public:
  static Result<Offering> make(bootstrap::Handoff& handoff, const UniqueFd& fd) {
    TUTTI_TRY_ASSIGN(const bootstrap::HandoffToken token, handoff.offer(fd.get(), 1));
    return Offering(handoff, token);
  }
  Offering(Offering&& other) noexcept
      : handoff_(std::exchange(other.handoff_, nullptr)), token_(other.token_) {}
  Offering& operator=(Offering&&) = delete;
  ~Offering() {
    if (handoff_ != nullptr) handoff_->withdraw(token_);  // harmless when it was taken
  }
  const bootstrap::HandoffToken& token() const { return token_; }

 private:
  Offering(bootstrap::Handoff& handoff, const bootstrap::HandoffToken& token)
      : handoff_(&handoff), token_(token) {}
  bootstrap::Handoff* handoff_;
  bootstrap::HandoffToken token_;
};

struct Offerings {
  Offering link;
  std::optional<Offering> gpuSlots;
};

class ShmReceiverEnd final : public ShmEnd {
 public:
  ShmReceiverEnd(UniqueMapping memory, std::unique_ptr<device::DeviceMemory> gpuSlots,
                 const wire::LinkGeometry& geometry, const bootstrap::PeerInfo& sender,
                 Offerings offerings)
      : ShmEnd(std::move(memory), std::move(gpuSlots), geometry, sender),
        offerings_(std::move(offerings)) {}

 private:
  const Offerings offerings_;
};

// None where they cannot be handed over.
std::optional<Offering> offerGpuSlots(bootstrap::Handoff& handoff, const LinkOptions& options,
                                      const GpuSlotMemory& slots) {
  if (slots.memory == nullptr) return std::nullopt;
  Result<Offering> offering = Offering::make(handoff, slots.handle);
  if (!offering.ok()) return std::nullopt;
  if (!markGpuSlots(*options.gpu->gpu, *slots.memory, offering->token())) return std::nullopt;
  return std::move(offering).value();
}

}  // namespace

std::string ShmTransport::obstacle(const bootstrap::PeerInfo& sender,
                                   const bootstrap::PeerInfo& receiver) const {
  if (options_.disabled) return "NCCL_SHM_DISABLE=1";
  if (sender.hostHash != receiver.hostHash) {
    return fmt::format("other host (hash {:016x} and {:016x})", sender.hostHash, receiver.hostHash);
  }
  if (sender.userId != receiver.userId) {
    return fmt::format("other user ({} and {})", sender.userId, receiver.userId);
  }
  if (textOf(receiver.handoffName).empty()) return "the receiver cannot hand out memory";
  return {};
}

Result<Listening> ShmTransport::listen(const bootstrap::PeerInfo& sender,
                                       const bootstrap::PeerInfo& receiver,
                                       const LinkOptions& options) {
  const wire::LinkGeometry& geometry = options.geometry;
  TUTTI_TRY(checkGeometry(geometry));
  if (options_.handoff == nullptr) {
    return internalError("rank {}: a shared-memory link from rank {} without a hand-off service",
                         receiver.rank, sender.rank);
  }
  TUTTI_TRY_ASSIGN(Segment segment, createSegment(wire::linkBytes(geometry), kLinkPurpose));
  TUTTI_TRY_ASSIGN(Offering link, Offering::make(*options_.handoff, segment.fd));
  GpuSlotMemory slots = makeGpuSlots(sender, receiver, options);
  Offerings offerings{.link = std::move(link),
                      .gpuSlots = offerGpuSlots(*options_.handoff, options, slots)};
  OfferedMemory offered{.token = offerings.link.token()};
  if (offerings.gpuSlots) {
    offered.gpuToken = offerings.gpuSlots->token();
    offered.gpuBytes = slots.memory->bytes();
  }
  return Listening{
      .end = std::make_unique<ShmReceiverEnd>(std::move(segment.memory), std::move(slots.memory),
                                              geometry, sender, std::move(offerings)),
      .offer = encodeOffer(OfferKind::kShm, geometry, offered)};
}

// Its own texts name a socket.
Result<UniqueFd> ShmTransport::take(const bootstrap::PeerInfo& receiver, const Token& token) const {
  Result<UniqueFd> fd =
      bootstrap::Handoff::take(textOf(receiver.handoffName), token, options_.timeout);
  if (fd.status().code() == Code::kRemoteError)
    return remoteError("rank {} did not link up: {}", receiver.rank, fd.status().message());
  return fd;
}

Result<std::unique_ptr<PendingEnd>> ShmTransport::connect(const bootstrap::PeerInfo& sender,
                                                          const bootstrap::PeerInfo& receiver,
                                                          const LinkOptions& options,
                                                          const Offer& offer) {
  const wire::LinkGeometry& geometry = options.geometry;
  TUTTI_TRY(checkGeometry(geometry));
  TUTTI_TRY_ASSIGN(const OfferedMemory offered, decodeOffer(offer, OfferKind::kShm, geometry));
  TUTTI_TRY_ASSIGN(const UniqueFd fd, take(receiver, offered.token));
  TUTTI_TRY_ASSIGN(UniqueMapping memory,
                   mapSegment(fd, wire::linkBytes(geometry), SegmentAccess::kReadWrite));
  GpuSlotOffer slots{.handle = {}, .token = offered.gpuToken, .bytes = offered.gpuBytes};
  if (slots.bytes != 0) {
    TUTTI_TRY_ASSIGN(slots.handle, take(receiver, slots.token));
  }
  auto gpuSlots = mapGpuSlots(sender, receiver, options, std::move(slots));
  return makeReady(
      std::make_unique<ShmEnd>(std::move(memory), std::move(gpuSlots), geometry, receiver));
}

}  // namespace tutti::transport::shm
