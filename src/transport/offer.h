// The bytes in which a receiver tells a sender how to reach the link it made.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "transport/transport.h"
#include "wire/link.h"

namespace tutti::transport {

using Token = std::array<std::byte, 16>;

// A transport's mark, so that an offer never reaches another transport's connect().
enum class OfferKind : uint32_t { kLocal = 0x6c6f6331, kShm = 0x73686d31, kNet = 0x6e657431 };

// What an offer says beside the link's geometry.
struct OfferedMemory {
  Token token{};          // of the link's memory
  Token gpuToken{};       // of its slots in the receiver's GPU
  uint64_t gpuBytes = 0;  // 0: there are none, and the token is zero
  bool operator==(const OfferedMemory&) const = default;
};

// On the wire, little endian: 0 kind u32, 4 slotCount u32, 8 slotBytes u32, 12 zero, 16 token, 32
// token of the GPU's, 48 its bytes u64, 56 zero.
Offer encodeOffer(OfferKind kind, const wire::LinkGeometry& geometry, const OfferedMemory& memory);

// kRemoteError when the offer is of another kind, for another geometry than the caller's, or has
// bytes set where zeros belong: the two ranks then disagree about the link.
Result<OfferedMemory> decodeOffer(const Offer& offer, OfferKind kind,
                                  const wire::LinkGeometry& geometry);

// kInternalError unless the geometry is one that links can have.
Status checkGeometry(const wire::LinkGeometry& geometry);

}  // namespace tutti::transport
