#include "transport/offer.h"

#include <algorithm>
#include <cstring>

namespace tutti::transport {
namespace {

struct Layout {
  uint32_t kind;
  uint32_t slotCount;
  uint32_t slotBytes;
  uint32_t zero;
  OfferedMemory memory;
  std::array<std::byte, sizeof(Offer) - 56> zeros;
};
static_assert(sizeof(Layout) == sizeof(Offer));
static_assert(offsetof(Layout, memory) == 16 && sizeof(OfferedMemory) == 40);

}  // namespace

Offer encodeOffer(OfferKind kind, const wire::LinkGeometry& geometry, const OfferedMemory& memory) {
  const Layout layout{.kind = static_cast<uint32_t>(kind),
                      .slotCount = geometry.slotCount,
                      .slotBytes = geometry.slotBytes,
                      .zero = 0,
                      .memory = memory,
                      .zeros = {}};
  Offer offer;
  std::memcpy(offer.data(), &layout, sizeof layout);
  return offer;
}

Result<OfferedMemory> decodeOffer(const Offer& offer, OfferKind kind,
                                  const wire::LinkGeometry& geometry) {
  Layout layout;
  std::memcpy(&layout, offer.data(), sizeof layout);
  // Within a process they are handed over without one.
  const bool isOfGpu = layout.memory.gpuBytes != 0;
  const bool fits = isOfGpu ? kind == OfferKind::kShm : layout.memory.gpuToken == Token{};
  const bool zeros =
      layout.zero == 0 && fits &&
      std::ranges::all_of(layout.zeros, [](std::byte each) { return each == std::byte{0}; });
  if (layout.kind != static_cast<uint32_t>(kind) || !zeros) {
    return remoteError(
        "the link offer is garbled or another transport's (kind {:#x}, wanted {:#x})", layout.kind,
        static_cast<uint32_t>(kind));
  }
  if (layout.slotCount != geometry.slotCount || layout.slotBytes != geometry.slotBytes) {
    return remoteError(
        "the receiver offers a link of {} slots of {} bytes, this rank wants {} of {}: their "
        "settings differ",
        layout.slotCount, layout.slotBytes, geometry.slotCount, geometry.slotBytes);
  }
  return layout.memory;
}

Status checkGeometry(const wire::LinkGeometry& geometry) {
  if (wire::isValid(geometry)) return {};
  return internalError("no link can have {} slots of {} bytes", geometry.slotCount,
                       geometry.slotBytes);
}

}  // namespace tutti::transport
