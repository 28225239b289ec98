// Over which rank of its own host a rank sends to another host (PXN): the one beside the adapter
// that leads to the receiver. Pure; ranks need not agree, since who sends is the only one to ask.
#pragma once

#include "base/ids.h"
#include "plan/plan.h"

namespace tutti::plan {

// The rank whose process carries it; `sender` itself: its own. With Relays::kByPrice one only where
// the sender's adapters are others than the receiver's and another rank of its host has the
// receiver's; with kAlways the rank in the receiver's seat, of those with its adapters if any has.
Rank carrierOf(const Agreement& agreement, Rank sender, Rank receiver);

}  // namespace tutti::plan
