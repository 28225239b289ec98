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

// First the link's memory comes from the receiver's process, then its slots on a GPU, if it has
// any.
class ShmTransport::Pending final : public PendingEnd {
 public:
  struct Parts {
    bootstrap::PeerInfo sender;
    bootstrap::PeerInfo receiver;
    LinkOptions options;
    OfferedMemory offered;
    std::chrono::milliseconds timeout;
  };
  explicit Pending(Parts parts)
      : parts_(std::move(parts)), taking_(takingOf(parts_.offered.token)) {}

  Result<std::unique_ptr<LinkEnd>> poll() override {
    const wire::LinkGeometry& geometry = parts_.options.geometry;
    TUTTI_TRY_ASSIGN(UniqueFd fd, take());
    if (!fd) return std::unique_ptr<LinkEnd>();
    GpuSlotOffer slots{
        .handle = {}, .token = parts_.offered.gpuToken, .bytes = parts_.offered.gpuBytes};
    if (!memory_.get()) {
      TUTTI_TRY_ASSIGN(memory_,
                       mapSegment(fd, wire::linkBytes(geometry), SegmentAccess::kReadWrite));
      if (slots.bytes != 0) {
        taking_ = takingOf(slots.token);
        return poll();
      }
    } else {
      slots.handle = std::move(fd);
    }
    auto gpuSlots = mapGpuSlots(parts_.sender, parts_.receiver, parts_.options, std::move(slots));
    return std::unique_ptr<LinkEnd>(std::make_unique<ShmEnd>(
        std::move(memory_), std::move(gpuSlots), geometry, parts_.receiver));
  }

 private:
  bootstrap::Handoff::Taking takingOf(const Token& token) const {
    return {textOf(parts_.receiver.handoffName), token, parts_.timeout};
  }
  // Its own texts name a socket.
  Result<UniqueFd> take() {
    Result<UniqueFd> fd = taking_.poll();
    if (fd.status().code() == Code::kRemoteError)
      return remoteError("rank {} did not link up: {}", parts_.receiver.rank,
                         fd.status().message());
    return fd;
  }

  const Parts parts_;
  bootstrap::Handoff::Taking taking_;
  UniqueMapping memory_;
};

Result<std::unique_ptr<PendingEnd>> ShmTransport::connect(const bootstrap::PeerInfo& sender,
                                                          const bootstrap::PeerInfo& receiver,
                                                          const LinkOptions& options,
                                                          const Offer& offer) {
  TUTTI_TRY(checkGeometry(options.geometry));
  TUTTI_TRY_ASSIGN(const OfferedMemory offered,
                   decodeOffer(offer, OfferKind::kShm, options.geometry));
  return std::unique_ptr<PendingEnd>(
      std::make_unique<Pending>(Pending::Parts{.sender = sender,
                                               .receiver = receiver,
                                               .options = options,
                                               .offered = offered,
                                               .timeout = options_.timeout}));
}

}  // namespace tutti::transport::shm
