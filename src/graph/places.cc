#include "graph/places.h"

#include <algorithm>
#include <map>
#include <utility>

namespace tutti::graph {

// NUMA nodes are numbered socket by socket, so neighbours in number are near each other.
Result<MergedGraph> mergePlaces(std::span<const Place> places) {
  std::map<uint64_t, size_t> partOf;  // by host
  std::vector<NodePart> parts;
  for (size_t i = 0; i < places.size(); ++i) {
    const auto [found, isNew] = partOf.try_emplace(places[i].host, parts.size());
    if (isNew) parts.emplace_back();
    parts[found->second].ranks.push_back(Rank{static_cast<int32_t>(i)});
  }
  for (NodePart& part : parts) {
    std::vector<Rank> order = part.ranks;
    std::ranges::stable_sort(
        order, {}, [&](Rank rank) { return places[static_cast<size_t>(index(rank))].cpuNode; });
    part.chains.push_back(order);
    part.rings.push_back({.order = std::move(order)});
  }
  return merge(std::move(parts));
}

std::vector<Rank> orderOf(const MergedGraph& merged) {
  if (merged.ringCount() == 0) return {};
  const std::span<const Rank> ring = merged.ring(0);
  std::vector<Rank> order(ring.begin(), ring.end());
  std::ranges::rotate(order, std::ranges::find(order, Rank{0}));
  return std::ranges::is_sorted(order, {}, [](Rank rank) { return index(rank); })
             ? std::vector<Rank>{}
             : order;
}

}  // namespace tutti::graph
