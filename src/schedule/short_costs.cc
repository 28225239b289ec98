#include "schedule/short_costs.h"

#include <algorithm>
#include <bit>

#include "base/units.h"

namespace tutti::schedule {
namespace {

Cost costWith(int32_t sent, int32_t received, int32_t hops, int64_t messages) {
  return {.sentMessages = sent, .receivedMessages = received, .hops = hops, .messages = messages};
}

int32_t depth(int32_t n) { return std::bit_width(static_cast<uint32_t>(n - 1)); }

// Both ways over the edges of a tree of all ranks, a tree a chunk.
int64_t bothWays(const ShortVector& vector) {
  return int64_t{2} * vector.chunks * (vector.rankCount - 1);
}

// Ranks below one in a chunk's tree (pat.cc), so many after the chunk's owner.
int32_t childrenAt(int32_t distance, int32_t n) {
  const int32_t end = std::min(distance == 0 ? n : distance & -distance, n - distance);
  return end < 2 ? 0 : std::bit_width(static_cast<uint32_t>(end - 1));
}

}  // namespace

// A rank sends each chunk twice, but its own, and the one that its round ends before it, once.
Cost ringOfFirst(const ShortVector& vector) {
  const auto& [n, hosts, chunks] = vector;
  const int32_t most = 2 * chunks - std::max(chunks + 2 - n, 0);
  return costWith(most, most, 2 * (n - 1), bothWays(vector));
}

// An owner has all others' parts of its chunk, and its own part of the other chunks.
Cost twoShotOfFirst(const ShortVector& vector) {
  const int32_t most = vector.rankCount - 1 + vector.chunks - 1;
  return costWith(most, most, 2, bothWays(vector));
}

// The busiest is the first owner: it stands for its host where chunks have their owners in the same
// seat of another.
Cost hierarchicalOfFirst(const ShortVector& vector) {
  const auto& [n, hosts, chunks] = vector;
  if (hosts < 2 || hosts == n) return twoShotOfFirst(vector);
  const int32_t seats = n / hosts;
  const auto ownersHosts =
      static_cast<int32_t>(divideUp(static_cast<size_t>(chunks), static_cast<size_t>(seats)));
  const int32_t others = ownersHosts - 1;  // chunks of the same seat
  const int32_t most = (seats - 1) + (hosts - 1) + others * seats + (chunks - 1 - others);
  return costWith(most, most, 2 * std::min(hosts, ownersHosts + 1), bothWays(vector));
}

// Which rank is busiest changes with the chunks that there are: it stands at as many distances, one
// after the other.
Cost patOfFirst(const ShortVector& vector) {
  const auto& [n, hosts, chunks] = vector;
  const auto messagesAt = [n](int32_t distance) {
    return childrenAt(distance, n) + (distance == 0 ? 0 : 1);
  };
  int32_t sum = 0, most = 0;
  for (int32_t i = 0; i < n + chunks; ++i) {
    sum += messagesAt(i % n);
    if (i >= chunks) sum -= messagesAt((i - chunks) % n);
    most = std::max(most, sum);
  }
  return costWith(most, most, std::min(2 * (n / 2), 2 * (depth(n) + 2 * (chunks - 1))),
                  bothWays(vector));
}

// One tree of the two; the root has a single child.
Cost treeOfFirst(const ShortVector& vector) {
  const int32_t n = vector.rankCount;
  const int32_t most = std::min(n - 1, 3);
  return costWith(most, most, 2 * depth(n), bothWays(vector));
}

// The root sends each chunk to its owner, which passes it on.
Cost twoShotBroadcastOfFirst(const ShortVector& vector) {
  const auto& [n, hosts, chunks] = vector;
  return costWith(std::max(chunks, n - 2), chunks, 2, int64_t{chunks} * (n - 1));
}

Cost twoShotReduceOfFirst(const ShortVector& vector) {
  const auto& [n, hosts, chunks] = vector;
  return costWith(chunks, n - 1, 2, int64_t{chunks} * n);
}

Cost treeBroadcastOfFirst(const ShortVector& vector) {
  const int32_t n = vector.rankCount;
  return costWith(n < 4 ? 1 : 2, 1, depth(n), n - 1);
}

Cost treeReduceOfFirst(const ShortVector& vector) {
  const int32_t n = vector.rankCount;
  return costWith(1, n < 4 ? 1 : 2, depth(n), n - 1);
}

}  // namespace tutti::schedule
