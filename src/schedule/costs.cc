#include "schedule/costs.h"

#include <algorithm>
#include <bit>

namespace tutti::schedule {
namespace {

// Each rank's to each other.
int64_t everyPair(int32_t n) { return int64_t{n} * (n - 1); }

bool isPowerOfTwo(int32_t n) { return std::has_single_bit(static_cast<uint32_t>(n)); }

// The root's one child is the highest power of two below n, and below that each level halves it.
int32_t treeDepth(int32_t n) { return std::bit_width(static_cast<uint32_t>(n - 1)); }

// A rank has a link to, or from, each that is a power of two away.
int64_t patLinks(int32_t n) { return int64_t{n} * treeDepth(n); }

}  // namespace

int32_t treeCount(int32_t n) { return n < 3 ? 1 : 2; }

Cost ringAllReduceCost(int32_t n) {
  return {.steps = 2 * n - 1,
          .sentMessages = 2 * (n - 1),
          .receivedMessages = 2 * (n - 1),
          .hops = 2 * (n - 1),
          .messages = 2 * everyPair(n),
          .links = n == 1 ? 0 : n};
}

Cost ringHalfCost(int32_t n) {
  return {.steps = n,
          .sentMessages = n - 1,
          .receivedMessages = n - 1,
          .hops = n - 1,
          .messages = everyPair(n),
          .links = n == 1 ? 0 : n};
}

Cost chainCost(int32_t n) {
  const int32_t link = std::min(n - 1, 1);
  return {
      .steps = 1, .sentMessages = link, .receivedMessages = link, .hops = n - 1, .messages = n - 1};
}

Cost oneShotCost(int32_t n) {
  return {.steps = std::min(n, 2),
          .sentMessages = n - 1,
          .receivedMessages = n - 1,
          .hops = std::min(n - 1, 1),
          .messages = everyPair(n)};
}

// From three ranks on, a pair exchanges in each of the n rounds, and the longest path takes a
// message of every round; two ranks exchange in one of their two.
Cost pairwiseCost(int32_t n) {
  return {.steps = 2 * n - 1,
          .sentMessages = n - 1,
          .receivedMessages = n - 1,
          .hops = n < 3 ? n - 1 : n,
          .messages = everyPair(n)};
}

Cost directAllToAllCost(int32_t n) {
  return {.steps = 2 * n - 1,
          .sentMessages = n - 1,
          .receivedMessages = n - 1,
          .hops = std::min(n - 1, 1),
          .messages = everyPair(n)};
}

Cost gatherCost(int32_t n) {
  const int32_t link = std::min(n - 1, 1);
  return {
      .steps = n, .sentMessages = link, .receivedMessages = n - 1, .hops = link, .messages = n - 1};
}

Cost scatterCost(int32_t n) {
  const int32_t link = std::min(n - 1, 1);
  return {
      .steps = n, .sentMessages = n - 1, .receivedMessages = link, .hops = link, .messages = n - 1};
}

// Between two ranks; a rank that sends to itself only copies.
Cost transferCost(int32_t n) {
  const int32_t link = std::min(n - 1, 1);
  return {
      .steps = 1, .sentMessages = link, .receivedMessages = link, .hops = link, .messages = link};
}

// From four ranks on there is a rank with a parent and two children in one tree, a parent in the
// other.
Cost treeAllReduceCost(int32_t n) {
  const int32_t messages = std::min(n < 3 ? n - 1 : n, 4);
  return {.steps = std::min(n < 3 ? n : 4, 4),
          .sentMessages = messages,
          .receivedMessages = messages,
          .hops = 2 * treeDepth(n),
          .messages = 2 * treeCount(n) * int64_t{n - 1}};
}

Cost treeHalfCost(int32_t n) {
  const int32_t messages = std::min(n - 1, 2);
  return {.steps = n < 3 ? 1 : 2,
          .sentMessages = messages,
          .receivedMessages = messages,
          .hops = treeDepth(n),
          .messages = treeCount(n) * int64_t{n - 1}};
}

Cost directAllGatherCost(int32_t n) {
  return {.steps = n,
          .sentMessages = n - 1,
          .receivedMessages = n - 1,
          .hops = std::min(n - 1, 1),
          .messages = everyPair(n)};
}

Cost directBroadcastCost(int32_t n) {
  const int32_t link = std::min(n - 1, 1);
  return {
      .steps = 1, .sentMessages = n - 1, .receivedMessages = link, .hops = link, .messages = n - 1};
}

Cost directReduceCost(int32_t n) {
  const int32_t link = std::min(n - 1, 1);
  return {
      .steps = 1, .sentMessages = link, .receivedMessages = n - 1, .hops = link, .messages = n - 1};
}

Cost twoShotAllReduceCost(int32_t n) {
  return {.steps = 2 * n - 1,
          .sentMessages = 2 * (n - 1),
          .receivedMessages = 2 * (n - 1),
          .hops = std::min(2 * (n - 1), 2),
          .messages = 2 * everyPair(n),
          .links = everyPair(n)};
}

Cost twoShotBroadcastCost(int32_t n) {
  return {.steps = std::max(n - 1, 1),
          .sentMessages = n - 1,
          .receivedMessages = n - 1,
          .hops = std::min(n - 1, 2),
          .messages = int64_t{n - 1} * (n - 1)};
}

// A rank that is not the root sends to the other owners and the finished chunk to the root, which
// sends its contributions and receives as many results.
Cost twoShotReduceCost(int32_t n) {
  return {.steps = std::max(2 * (n - 1), 1),
          .sentMessages = n - 1,
          .receivedMessages = n - 1,
          .hops = std::min(2 * (n - 1), 2),
          .messages = everyPair(n)};
}

// Above a power of two the ranks over hand in their vectors first and get the result back last; the
// way back waits for the way in of the other half only if there are such ranks in both.
Cost doublingCost(int32_t n) {
  const auto doubled = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(n)));
  const int32_t rounds = std::bit_width(static_cast<uint32_t>(n)) - 1;
  const int32_t over = n - doubled;
  const int32_t messages = rounds + std::min(over, 1);
  return {.steps = 1 + rounds,
          .sentMessages = messages,
          .receivedMessages = messages,
          .hops = messages + (over > doubled / 2 ? 1 : 0),
          .messages = int64_t{doubled} * rounds + 2 * over};
}

// Every second distance passes on what the one before it brought.
Cost patHalfCost(int32_t n) {
  return {.steps = n,
          .sentMessages = n - 1,
          .receivedMessages = n - 1,
          .hops = n / 2,
          .messages = everyPair(n),
          .links = patLinks(n)};
}

Cost patAllReduceCost(int32_t n) {
  return {.steps = 2 * n - 1,
          .sentMessages = 2 * (n - 1),
          .receivedMessages = 2 * (n - 1),
          .hops = 2 * (n / 2),
          .messages = 2 * everyPair(n),
          .links = 2 * patLinks(n)};
}

// Two-shot's messages. A rank hands in host by host, each time after it has folded what the host
// before is to get, so that one message a link is under way; then two hops between hosts, one back
// inside and, for each other host, one that waits for the host before.
Cost hierarchicalCost(const Spread& spread) {
  const int32_t n = spread.rankCount;
  const int32_t hosts = spread.hostCount;
  Cost cost = twoShotAllReduceCost(n);
  if (hosts < 2 || hosts == n) return cost;
  cost.hops = 2 * hosts;
  cost.links = int64_t{n} * (n / hosts - 1 + hosts - 1);
  return cost;
}

namespace {

// Rounds of pairs, of hosts here, as in pairwise.
int32_t hostRounds(int32_t hosts) { return hosts < 3 ? hosts - 1 : hosts; }
// Trips of a round: four messages are under way.
int32_t railTrips(int32_t seats) { return (seats + 3) / 4; }

}  // namespace

// In a round a rank hands in to each other seat of its host, and sends its counterpart a message a
// seat. Hops are at most so many where there are more than four seats, and as many where not.
Cost railCost(const Spread& spread) {
  const int32_t n = spread.rankCount;
  const int32_t hosts = spread.hostCount;
  const int32_t seats = n / hosts;
  const int32_t messages = 2 * n - hosts - seats;
  const int32_t inside = std::min(seats - 1, 1);
  return {.steps = 2 * seats - 1 + (hosts - 1) * (3 * seats - 1),
          .sentMessages = messages,
          .receivedMessages = messages,
          .hops = inside + hostRounds(hosts) * (inside + railTrips(seats)),
          .messages = int64_t{n} * messages,
          .links = int64_t{n} * (seats - 1 + hosts - 1)};
}

int32_t railHostHops(int32_t n, int32_t hosts) { return hostRounds(hosts) * railTrips(n / hosts); }

// A rank between two others passes a message of each chunk on both ways; a head has the network in
// place of one of them. The network's messages count, too.
Cost collnetChainCost(const Spread& spread) {
  const int32_t n = spread.rankCount, hosts = spread.hostCount, most = spread.mostRanks;
  const int32_t chunks = collnetChunkCount(n);
  const int32_t ends = hosts > 1 ? most : most - 1;  // hops up
  const int32_t messages = chunks * std::min(ends, 2);
  return {.steps = n == 1 ? 1 : 2 * chunks,
          .sentMessages = messages,
          .receivedMessages = messages,
          .hops = 2 * ends,
          .messages = int64_t{chunks} * 2 * (hosts > 1 ? n : n - 1),
          .links = int64_t{2} * (hosts > 1 ? n : n - 1)};
}

// A head sends each other head a part of its input, the network its own, and its host's other ranks
// the result.
Cost collnetDirectCost(const Spread& spread) {
  const int32_t n = spread.rankCount, heads = spread.headCount, most = spread.mostRanks;
  const int32_t chunks = collnetChunkCount(n);
  const int32_t network = spread.hostCount > 1 ? 1 : 0;
  const int32_t messages = chunks * (heads - 1 + network + most - 1);
  const bool isResultAtOnce = most == 1 && network == 0;
  return {.steps = isResultAtOnce ? 1 : 2 * chunks * heads,
          .sentMessages = messages,
          .receivedMessages = messages,
          .hops = 2 * (network + std::min(most - 1, 1)),
          .messages = int64_t{chunks} * heads * 2 * (n - 1 + network),
          .links = int64_t{heads} * 2 * (n - 1 + network)};
}

namespace {

// Hops at most: a round waits for those of a head before it, and where there are several heads
// their results, a host's after the other's, wait for each other's.
int32_t gatherHops(int32_t seats, int32_t hosts, int32_t heads) {
  constexpr int32_t kChunks = 4;
  if (hosts == 1) return kChunks * heads;
  if (seats == 1) return kChunks;
  if (heads == 1) return kChunks * (seats + 2) - seats % 2 * 2;
  return std::max(6, 4 * hosts - 4) * seats + 4 * heads + 2;
}
int32_t scatterHops(int32_t seats, int32_t hosts, int32_t heads) {
  constexpr int32_t kChunks = 4;
  if (hosts == 1) return 2 * kChunks * (seats - (heads > 1 ? 0 : 1));
  if (seats == 1) return kChunks;
  return heads == 1 ? 2 * kChunks * seats : kChunks * (hosts + 1) * seats + 1;
}

}  // namespace

// A rank hands each neighbour its own chunks; a head the network its host's, and its neighbours
// those of all other hosts.
Cost collnetGatherCost(const Spread& spread) {
  const int32_t n = spread.rankCount, hosts = spread.hostCount, heads = spread.headCount;
  if (n == 1) return {.steps = 1};
  const int32_t seats = n / hosts;
  const int32_t chunks = collnetBlockChunkCount(n) / n;
  const int32_t network = hosts > 1 ? 1 : 0;
  const int32_t received = chunks * heads * (n - 1);
  const int32_t passedOn = chunks * seats * (network + (hosts - 1) * (seats - 1));
  return {.steps = chunks * heads * n + network * chunks * seats,
          .sentMessages = chunks * heads * (seats - 1) + passedOn,
          .receivedMessages = received,
          .hops = gatherHops(seats, hosts, heads),
          .messages = int64_t{n} * received + int64_t{network} * chunks * heads * n,
          .links = int64_t{n} * (seats - 1) + int64_t{network} * heads * hosts};
}

// A head gets all of its neighbours' parts of its sets, and hands the network their folds.
Cost collnetScatterCost(const Spread& spread) {
  const int32_t n = spread.rankCount, hosts = spread.hostCount, heads = spread.headCount;
  if (n == 1) return {.steps = 1};
  const int32_t seats = n / hosts;
  const int32_t chunks = collnetBlockChunkCount(n) / n;
  const bool hasNetwork = hosts > 1;
  const bool isBusiestHead = hasNetwork || heads == seats;
  const int32_t parts = chunks * n;  // of a head's sets
  const int32_t results = chunks * heads * (seats - 1) * hosts;
  const int64_t crossing = hasNetwork ? int64_t{parts} * heads * (hosts + 1) : 0;
  const int32_t own = isBusiestHead ? heads - 1 : heads;  // sets that others head for its block
  return {.steps = parts * heads + (hasNetwork ? chunks * seats : 0) + chunks * own,
          .sentMessages = isBusiestHead
                              ? parts * (heads - (hasNetwork ? 0 : 1)) + chunks * (seats - 1)
                              : parts * heads,
          .receivedMessages =
              parts * (seats - 1) + (hasNetwork ? chunks * seats : 0) + chunks * (heads - 1),
          .hops = scatterHops(seats, hosts, heads),
          .messages = int64_t{parts} * heads * hosts * (seats - 1) + crossing + results,
          .links = int64_t{hosts} * heads * (2 * seats - heads - 1 + (hasNetwork ? 1 : 0))};
}

// On its way round each message meets every host's border, all but those on the last links that it
// does not take.
int32_t ringHalfHostHops(int32_t n, int32_t hosts) { return n == hosts ? n - 1 : hosts; }
int32_t ringAllReduceHostHops(int32_t n, int32_t hosts) {
  if (n == hosts) return 2 * (n - 1);
  return 2 * hosts - (n == 2 * hosts ? 1 : 0);
}
// From the root on; a reduction starts behind it and goes the whole way round.
int32_t chainHostHops(int32_t, int32_t hosts) { return hosts - 1; }

// To the network and back.
int32_t collnetHostHops(int32_t, int32_t hosts) { return hosts > 1 ? 2 : 0; }

// Two rounds are there and back together.
int32_t collnetBlockHostHops(int32_t n, int32_t hosts) {
  return hosts > 1 ? collnetBlockChunkCount(n) / hosts : 0;
}

// Where a host's ranks are a power of two, a tree's lower levels stay inside, and so do doubling's
// near distances.
int32_t treeHalfHostHops(int32_t n, int32_t hosts) {
  if (!isPowerOfTwo(n)) return treeDepth(n);
  return std::min(treeDepth(n), treeDepth(hosts) + (n == hosts ? 0 : 1));
}
int32_t treeAllReduceHostHops(int32_t n, int32_t hosts) { return 2 * treeHalfHostHops(n, hosts); }

int32_t doublingHostHops(int32_t n, int32_t hosts) {
  return isPowerOfTwo(n) ? treeDepth(hosts) : doublingCost(n).hops;
}

}  // namespace tutti::schedule
