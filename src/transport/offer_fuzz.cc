// libFuzzer entry: the 64 bytes in which a peer says how to reach its link.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "transport/offer.h"

namespace tutti::transport {
namespace {

void read(const Offer& offer) {
  const wire::LinkGeometry geometry{.slotCount = 8, .slotBytes = 4096};
  for (const auto kind : {OfferKind::kLocal, OfferKind::kShm, OfferKind::kNet}) {
    const auto memory = decodeOffer(offer, kind, geometry);
    // What is accepted is what we would have written, byte by byte.
    if (memory.ok() && encodeOffer(kind, geometry, memory.value()) != offer) std::abort();
  }
}

}  // namespace
}  // namespace tutti::transport

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tutti::transport::Offer offer{};
  if (size > 0) std::memcpy(offer.data(), data, std::min(size, offer.size()));
  tutti::transport::read(offer);
  return 0;
}
