// How a receiver says where a link between hosts begins: an offer's bytes.
#pragma once

#include "base/status.h"
#include "net/net.h"
#include "transport/offer.h"
#include "transport/transport.h"
#include "wire/link.h"

namespace tutti::transport::net {

struct NetOffer {
  uint32_t kind = static_cast<uint32_t>(OfferKind::kNet);
  uint32_t slotCount = 0;
  uint32_t slotBytes = 0;
  uint32_t zero = 0;
  uint64_t number = 0;  // of the link, in the receiver's process
  tutti::net::Provider::Contact contact{};
};
static_assert(sizeof(NetOffer) == sizeof(Offer));

// kRemoteError for what is none, or is for another geometry.
Result<NetOffer> decodeNetOffer(const Offer& offer, const wire::LinkGeometry& geometry,
                                int32_t receiver);

}  // namespace tutti::transport::net
