#include "plan/send_relay.h"

#include <algorithm>
#include <vector>

namespace tutti::plan {
namespace {

class Places {
 public:
  explicit Places(const Agreement& agreement) : agreement_(agreement) {}

  bool isElsewhere(Rank one, Rank other) const { return hostOf(one) != hostOf(other); }
  bool haveSameAdapters(Rank one, Rank other) const {
    return agreement_.railOf.empty() || railOf(one) == railOf(other);
  }
  // In their order; a rank's place there is its seat.
  std::vector<Rank> hostmates(Rank rank) const {
    std::vector<Rank> mates;
    for (int32_t place = 0; place < agreement_.rankCount; ++place) {
      const Rank at =
          agreement_.order.empty() ? Rank{place} : agreement_.order[static_cast<size_t>(place)];
      if (hostOf(at) == hostOf(rank)) mates.push_back(at);
    }
    return mates;
  }

 private:
  int32_t hostOf(Rank rank) const { return agreement_.hostOf[static_cast<size_t>(index(rank))]; }
  uint64_t railOf(Rank rank) const { return agreement_.railOf[static_cast<size_t>(index(rank))]; }

  const Agreement& agreement_;
};

}  // namespace

Rank carrierOf(const Agreement& agreement, Rank sender, Rank receiver) {
  if (agreement.relays == Relays::kNever || agreement.hostOf.empty()) return sender;
  const Places places(agreement);
  if (!places.isElsewhere(sender, receiver)) return sender;
  const bool isNear = places.haveSameAdapters(sender, receiver);
  if (agreement.relays == Relays::kByPrice && isNear) return sender;
  const std::vector<Rank> all = places.hostmates(sender);
  std::vector<Rank> near;
  for (const Rank mate : all) {
    if (places.haveSameAdapters(mate, receiver)) near.push_back(mate);
  }
  if (near.empty() && agreement.relays == Relays::kByPrice) return sender;
  const std::vector<Rank> there = places.hostmates(receiver);
  const auto seat = static_cast<size_t>(std::ranges::find(there, receiver) - there.begin());
  const std::vector<Rank>& candidates = near.empty() ? all : near;
  if (seat < all.size() && std::ranges::find(candidates, all[seat]) != candidates.end())
    return all[seat];
  return candidates[seat % candidates.size()];
}

}  // namespace tutti::plan
