#include "transport/net/net_offer.h"

#include <cstring>

namespace tutti::transport::net {

Result<NetOffer> decodeNetOffer(const Offer& offer, const wire::LinkGeometry& geometry,
                                int32_t receiver) {
  NetOffer decoded;
  std::memcpy(&decoded, offer.data(), sizeof decoded);
  if (decoded.kind != static_cast<uint32_t>(OfferKind::kNet) || decoded.zero != 0) {
    return remoteError("rank {}'s link offer is garbled or another transport's (kind {:#x})",
                       receiver, decoded.kind);
  }
  if (decoded.slotCount != geometry.slotCount || decoded.slotBytes != geometry.slotBytes) {
    return remoteError("rank {} offers a link of {} slots of {} bytes, wanted {} of {}", receiver,
                       decoded.slotCount, decoded.slotBytes, geometry.slotCount,
                       geometry.slotBytes);
  }
  return decoded;
}

}  // namespace tutti::transport::net
