#include "transport/shm/shm_transport.h"

#include <cstring>

#include "base/char_field.h"
#include "base/mapping.h"
#include "base/segment.h"
#include "transport/offer.h"
#include "transport/shm/sender_segments.h"

namespace tutti::transport::shm {
namespace {

constexpr SegmentPurpose kLinkPurpose{
    .name = "tutti-link", .what = "a shared-memory link", .instead = "NCCL_SHM_DISABLE=1"};

class ShmEnd : public LinkEnd {
 public:
  ShmEnd(UniqueMapping memory, const wire::LinkGeometry& geometry)
      : memory_(std::move(memory)), view_(wire::viewLink(memory_.get(), geometry)) {}
  const wire::LinkView& view() const override { return view_; }
  Motor* motor() override { return nullptr; }

 private:
  const UniqueMapping memory_;
  const wire::LinkView view_;
};

class ShmReceiverEnd final : public ShmEnd {
 public:
  ShmReceiverEnd(UniqueMapping memory, const wire::LinkGeometry& geometry,
                 bootstrap::Handoff& handoff, const bootstrap::HandoffToken& token,
                 const SegmentOwner& sender)
      : ShmEnd(std::move(memory), geometry), handoff_(handoff), token_(token), segments_(sender) {}
  ~ShmReceiverEnd() override { handoff_.withdraw(token_); }  // harmless when it was taken
  wire::SegmentMapper* mapper() override { return &segments_; }

 private:
  bootstrap::Handoff& handoff_;
  const bootstrap::HandoffToken token_;
  SenderSegments segments_;
};

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
  TUTTI_TRY_ASSIGN(const bootstrap::HandoffToken token,
                   options_.handoff->offer(segment.fd.get(), 1));
  const SegmentOwner owner{.handoffName = textOf(sender.handoffName), .rank = sender.rank};
  return Listening{.end = std::make_unique<ShmReceiverEnd>(std::move(segment.memory), geometry,
                                                           *options_.handoff, token, owner),
                   .offer = encodeOffer(OfferKind::kShm, geometry, token)};
}

Result<std::unique_ptr<LinkEnd>> ShmTransport::connect(const bootstrap::PeerInfo&,
                                                       const bootstrap::PeerInfo& receiver,
                                                       const LinkOptions& options,
                                                       const Offer& offer) {
  const wire::LinkGeometry& geometry = options.geometry;
  TUTTI_TRY(checkGeometry(geometry));
  TUTTI_TRY_ASSIGN(const Token token, decodeOffer(offer, OfferKind::kShm, geometry));
  Result<UniqueFd> fd =
      bootstrap::Handoff::take(textOf(receiver.handoffName), token, options_.timeout);
  // Its own texts name a socket.
  if (fd.status().code() == Code::kRemoteError)
    return remoteError("rank {} did not link up: {}", receiver.rank, fd.status().message());
  TUTTI_TRY(fd.takeStatus());
  TUTTI_TRY_ASSIGN(UniqueMapping memory,
                   mapSegment(fd.value(), wire::linkBytes(geometry), SegmentAccess::kReadWrite));
  std::unique_ptr<LinkEnd> end = std::make_unique<ShmEnd>(std::move(memory), geometry);
  return end;
}

}  // namespace tutti::transport::shm
