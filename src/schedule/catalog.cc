#include "schedule/catalog.h"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "schedule/short_costs.h"

namespace tutti::schedule {
namespace {

int32_t oneChunk(int32_t) { return 1; }
int32_t oneChunkARank(int32_t rankCount) { return rankCount; }

// Each rank's to each other.
int64_t everyPair(int32_t n) { return int64_t{n} * (n - 1); }

int32_t treeCount(int32_t n) { return n < 3 ? 1 : 2; }

Cost ringAllReduceCost(int32_t n) {
  return {.steps = 2 * n - 1,
          .sentMessages = 2 * (n - 1),
          .receivedMessages = 2 * (n - 1),
          .hops = 2 * (n - 1),
          .messages = 2 * everyPair(n),
          .links = n == 1 ? 0 : n};
}

// All-gather and reduce-scatter: each half of a ring all-reduce.
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

// The root's one child is the highest power of two below n, and below that each level halves it.
int32_t treeDepth(int32_t n) { return std::bit_width(static_cast<uint32_t>(n - 1)); }

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

// The chunks of a broadcast or a reduction: all ranks' but the root's.
int32_t chunkARankButOne(int32_t n) { return std::max(n - 1, 1); }

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

// A rank has a link to, or from, each that is a power of two away.
int64_t patLinks(int32_t n) { return int64_t{n} * treeDepth(n); }

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

template <Cost (*cost)(const Spread&)>
Cost onOneHost(int32_t n) {
  return cost({.rankCount = n, .mostRanks = n});
}

// ---- hops between hosts

// On its way round each message meets every host's border, all but those on the last links that it
// does not take.
int32_t ringHalfHostHops(int32_t n, int32_t hosts) { return n == hosts ? n - 1 : hosts; }
int32_t ringAllReduceHostHops(int32_t n, int32_t hosts) {
  if (n == hosts) return 2 * (n - 1);
  return 2 * hosts - (n == 2 * hosts ? 1 : 0);
}
// From the root on; a reduction starts behind it and goes the whole way round.
int32_t chainHostHops(int32_t, int32_t hosts) { return hosts - 1; }

// Every hop may be one.
template <Cost (*cost)(int32_t)>
int32_t allHops(int32_t n, int32_t) {
  return cost(n).hops;
}

// To the network and back.
int32_t collnetHostHops(int32_t, int32_t hosts) { return hosts > 1 ? 2 : 0; }

bool isPowerOfTwo(int32_t n) { return std::has_single_bit(static_cast<uint32_t>(n)); }

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

// A ring passes a message on in the step that receives it, and all ranks do so at once round the
// circle: with one slot a link every rank would wait for the next to drain its own.
constexpr int32_t kRingSlots = 2;

// Where a rank sends twice on a link before the other side, which does the same, reads the first.
constexpr int32_t kTwoPhaseSlots = 2;

// Heads hand each other all chunks before either folds the first.
constexpr int32_t kHeadSlots = 4;

// Grouped by collective; the first is taken when nothing is known.
constexpr std::array kAlgorithms = {
    Algorithm{"ring",
              Collective::kAllReduce,
              kRingSlots,
              ringAllReduce,
              oneChunkARank,
              ringAllReduceCost,
              ringAllReduceHostHops,
              nullptr,
              {},
              ringOfFirst},
    Algorithm{"oneshot", Collective::kAllReduce, 1, oneShotAllReduce, oneChunk, oneShotCost,
              allHops<oneShotCost>},
    Algorithm{"twoshot",
              Collective::kAllReduce,
              kTwoPhaseSlots,
              twoShotAllReduce,
              oneChunkARank,
              twoShotAllReduceCost,
              allHops<twoShotAllReduceCost>,
              nullptr,
              {},
              twoShotOfFirst},
    Algorithm{"hierarchical", Collective::kAllReduce, kTwoPhaseSlots, hierarchicalAllReduce,
              oneChunkARank, twoShotAllReduceCost, allHops<twoShotAllReduceCost>, hierarchicalCost,
              "twoshot", hierarchicalOfFirst},
    Algorithm{"tree",
              Collective::kAllReduce,
              1,
              treeAllReduce,
              treeCount,
              treeAllReduceCost,
              treeAllReduceHostHops,
              nullptr,
              {},
              treeOfFirst},
    Algorithm{"doubling", Collective::kAllReduce, 1, doublingAllReduce, oneChunk, doublingCost,
              doublingHostHops},
    Algorithm{"pat",
              Collective::kAllReduce,
              kTwoPhaseSlots,
              patAllReduce,
              oneChunkARank,
              patAllReduceCost,
              allHops<patAllReduceCost>,
              nullptr,
              {},
              patOfFirst},
    Algorithm{"collnetchain", Collective::kAllReduce, kTwoPhaseSlots, collnetChainAllReduce,
              collnetChunkCount, onOneHost<collnetChainCost>, collnetHostHops, collnetChainCost,
              "ring", nullptr, Heads::kOneAHost},
    Algorithm{"collnetdirect", Collective::kAllReduce, kHeadSlots, collnetDirectAllReduce,
              collnetChunkCount, onOneHost<collnetDirectCost>, collnetHostHops, collnetDirectCost,
              "twoshot", nullptr, Heads::kOneAnAdapter},
    Algorithm{"ring", Collective::kAllGather, kRingSlots, ringAllGather, oneChunkARank,
              ringHalfCost, ringHalfHostHops},
    Algorithm{"direct", Collective::kAllGather, 1, directAllGather, oneChunkARank,
              directAllGatherCost, allHops<directAllGatherCost>},
    Algorithm{"pat", Collective::kAllGather, 1, patAllGather, oneChunkARank, patHalfCost,
              allHops<patHalfCost>},
    Algorithm{"ring", Collective::kReduceScatter, kRingSlots, ringReduceScatter, oneChunkARank,
              ringHalfCost, ringHalfHostHops},
    Algorithm{"direct", Collective::kReduceScatter, 1, directReduceScatter, oneChunkARank,
              directAllGatherCost, allHops<directAllGatherCost>},
    Algorithm{"pat", Collective::kReduceScatter, 1, patReduceScatter, oneChunkARank, patHalfCost,
              allHops<patHalfCost>},
    Algorithm{"ring", Collective::kBroadcast, 1, ringBroadcast, oneChunk, chainCost, chainHostHops},
    Algorithm{"direct", Collective::kBroadcast, 1, directBroadcast, oneChunk, directBroadcastCost,
              allHops<directBroadcastCost>},
    Algorithm{"twoshot",
              Collective::kBroadcast,
              1,
              twoShotBroadcast,
              chunkARankButOne,
              twoShotBroadcastCost,
              allHops<twoShotBroadcastCost>,
              nullptr,
              {},
              twoShotBroadcastOfFirst},
    Algorithm{"tree",
              Collective::kBroadcast,
              1,
              treeBroadcast,
              treeCount,
              treeHalfCost,
              treeHalfHostHops,
              nullptr,
              {},
              treeBroadcastOfFirst},
    Algorithm{"ring", Collective::kReduce, 1, ringReduce, oneChunk, chainCost, ringHalfHostHops},
    Algorithm{"direct", Collective::kReduce, 1, directReduce, oneChunk, directReduceCost,
              allHops<directReduceCost>},
    Algorithm{"twoshot",
              Collective::kReduce,
              1,
              twoShotReduce,
              chunkARankButOne,
              twoShotReduceCost,
              allHops<twoShotReduceCost>,
              nullptr,
              {},
              twoShotReduceOfFirst},
    Algorithm{"tree",
              Collective::kReduce,
              1,
              treeReduce,
              treeCount,
              treeHalfCost,
              treeHalfHostHops,
              nullptr,
              {},
              treeReduceOfFirst},
    Algorithm{"pairwise", Collective::kAllToAll, 1, pairwiseAllToAll, oneChunkARank, pairwiseCost,
              allHops<pairwiseCost>},
    Algorithm{"direct", Collective::kAllToAll, 1, directAllToAll, oneChunkARank, directAllToAllCost,
              allHops<directAllToAllCost>},
    Algorithm{"direct", Collective::kGather, 1, directGather, oneChunkARank, gatherCost,
              allHops<gatherCost>},
    Algorithm{"direct", Collective::kScatter, 1, directScatter, oneChunkARank, scatterCost,
              allHops<scatterCost>},
    Algorithm{"direct", Collective::kSend, 1, directTransfer, oneChunk, transferCost,
              allHops<transferCost>},
    Algorithm{"direct", Collective::kRecv, 1, directTransfer, oneChunk, transferCost,
              allHops<transferCost>},
};

char lower(char letter) {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

bool isSameName(std::string_view left, std::string_view right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                    [](char a, char b) { return lower(a) == lower(b); });
}

}  // namespace

std::span<const Algorithm> algorithms(Collective collective) {
  const auto isOther = [&](const Algorithm& entry) { return entry.collective != collective; };
  const auto* first = std::find_if_not(kAlgorithms.begin(), kAlgorithms.end(), isOther);
  const auto* last = std::find_if(first, kAlgorithms.end(), isOther);
  return {first, last};
}

const Algorithm* findAlgorithm(Collective collective, std::string_view name) {
  for (const Algorithm& algorithm : algorithms(collective)) {
    if (isSameName(algorithm.name, name)) return &algorithm;
  }
  return nullptr;
}

Spread evenSpread(int32_t rankCount, int32_t hostCount) {
  return {.rankCount = rankCount, .hostCount = hostCount, .mostRanks = rankCount / hostCount};
}

Cost costOf(const Algorithm& algorithm, const Spread& spread) {
  return algorithm.followsHosts() ? algorithm.costOnHosts(spread)
                                  : algorithm.cost(spread.rankCount);
}

int32_t Algorithm::networksOf(const ScheduleOptions& options) const {
  if (!reducesInNetwork() || (options.hostCount < 2 && options.hostStarts.size() < 2)) return 0;
  return heads == Heads::kOneAHost ? 1 : options.headCount;
}

Cost costOf(const Algorithm& algorithm, const ShortVector& vector) {
  const int32_t blocks = blockCount(algorithm.collective, vector.rankCount);
  const Cost whole = costOf(algorithm, evenSpread(vector.rankCount, vector.hostCount));
  const bool isWhole = vector.chunks * blocks >= algorithm.chunkCount(vector.rankCount);
  if (isWhole || algorithm.costOfFirst == nullptr) return whole;
  Cost cost = algorithm.costOfFirst(vector);
  cost.steps = whole.steps;
  return cost;
}

Chunks chunksOf(const Algorithm& algorithm, int32_t rankCount, uint64_t vectorBytes) {
  const int32_t blocks = blockCount(algorithm.collective, rankCount);
  return cutBlock(vectorBytes / static_cast<uint64_t>(blocks),
                  algorithm.chunkCount(rankCount) / blocks);
}

double sentFactor(const Algorithm& algorithm, int32_t rankCount) {
  return static_cast<double>(algorithm.cost(rankCount).sentMessages) /
         algorithm.chunkCount(rankCount);
}

double receivedFactor(const Algorithm& algorithm, int32_t rankCount) {
  return static_cast<double>(algorithm.cost(rankCount).receivedMessages) /
         algorithm.chunkCount(rankCount);
}

namespace {

// Ranks' places in an order, and back.
class Places {
 public:
  explicit Places(std::span<const Rank> order) : order_(order), placeOf_(order.size()) {
    for (size_t i = 0; i < order.size(); ++i)
      placeOf_[static_cast<size_t>(index(order[i]))] = static_cast<int32_t>(i);
  }
  Rank placeOf(Rank rank) const {
    return isNetwork(index(rank)) ? rank : Rank{placeOf_[static_cast<size_t>(index(rank))]};
  }
  Rank rankAt(int32_t place) const {
    return isNetwork(place) ? Rank{place} : order_[static_cast<size_t>(place)];
  }

 private:
  bool isNetwork(int32_t place) const { return static_cast<size_t>(place) >= order_.size(); }

  std::span<const Rank> order_;
  std::vector<int32_t> placeOf_;
};

// Chunks of a block a rank carry that rank's data; others are shares of one vector, whoever works
// on them.
void renameChunks(Program& program, const Places& places, int32_t chunksPerBlock) {
  const auto renamed = [&](int32_t chunk) {
    return index(places.rankAt(chunk / chunksPerBlock)) * chunksPerBlock + chunk % chunksPerBlock;
  };
  for (Step& step : program.steps) step.chunk = renamed(step.chunk);
  for (Operand& operand : program.operands) {
    if (operand.place != Place::kLink) operand.index = renamed(operand.index);
  }
}

}  // namespace

Program buildProgram(const Algorithm& algorithm, const ScheduleOptions& options, Rank rank) {
  if (options.order.empty()) return algorithm.build(options, rank);
  const Places places(options.order);
  Program program = algorithm.build({.rankCount = options.rankCount,
                                     .root = places.placeOf(options.root),
                                     .sender = places.placeOf(options.sender),
                                     .hostCount = options.hostCount,
                                     .hostStarts = options.hostStarts,
                                     .headCount = options.headCount},
                                    places.placeOf(rank));
  for (Rank& peer : program.receivesFrom) peer = places.rankAt(index(peer));
  for (Rank& peer : program.sendsTo) peer = places.rankAt(index(peer));
  const int32_t blocks = blockCount(algorithm.collective, options.rankCount);
  if (blocks > 1) renameChunks(program, places, algorithm.chunksOf(options) / blocks);
  return program;
}

Schedule makeSchedule(const Algorithm& algorithm, const ScheduleOptions& options) {
  Schedule schedule{.algorithm = algorithm.name,
                    .collective = algorithm.collective,
                    .rankCount = options.rankCount,
                    .root = options.root,
                    .sender = options.sender,
                    .blockCount = blockCount(algorithm.collective, options.rankCount),
                    .chunkCount = algorithm.chunksOf(options),
                    .networkCount = algorithm.networksOf(options),
                    .programs = {}};
  const int32_t programCount = options.rankCount + schedule.networkCount;
  schedule.programs.reserve(static_cast<size_t>(programCount));
  for (int32_t rank = 0; rank < programCount; ++rank) {
    schedule.programs.push_back(buildProgram(algorithm, options, Rank{rank}));
  }
  return schedule;
}

}  // namespace tutti::schedule
