#include "schedule/catalog.h"

#include <algorithm>
#include <array>
#include <vector>

#include "schedule/costs.h"
#include "schedule/short_costs.h"

namespace tutti::schedule {
namespace {

int32_t oneChunk(int32_t) { return 1; }
int32_t oneChunkARank(int32_t rankCount) { return rankCount; }

// The chunks of a broadcast or a reduction: all ranks' but the root's.
int32_t chunkARankButOne(int32_t n) { return std::max(n - 1, 1); }

template <Cost (*cost)(const Spread&)>
Cost onOneHost(int32_t n) {
  return cost({.rankCount = n, .mostRanks = n});
}

// Every hop may be one.
template <Cost (*cost)(int32_t)>
int32_t allHops(int32_t n, int32_t) {
  return cost(n).hops;
}

// A ring passes a message on in the step that receives it, and all ranks do so at once round the
// circle: with one slot a link every rank would wait for the next to drain its own.
constexpr int32_t kRingSlots = 2;

// Where a rank sends twice on a link before the other side, which does the same, reads the first.
constexpr int32_t kTwoPhaseSlots = 2;

// Heads hand each other all chunks before either folds the first.
constexpr int32_t kHeadSlots = 4;

// Rail's that run ahead (rail.cc).
constexpr int32_t kRailSlots = 4;

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
    Algorithm{"collnetdirect", Collective::kAllGather, kTwoPhaseSlots, collnetDirectAllGather,
              collnetBlockChunkCount, onOneHost<collnetGatherCost>, collnetBlockHostHops,
              collnetGatherCost, "direct", nullptr, Heads::kOneAnAdapter},
    Algorithm{"ring", Collective::kReduceScatter, kRingSlots, ringReduceScatter, oneChunkARank,
              ringHalfCost, ringHalfHostHops},
    Algorithm{"direct", Collective::kReduceScatter, 1, directReduceScatter, oneChunkARank,
              directAllGatherCost, allHops<directAllGatherCost>},
    Algorithm{"pat", Collective::kReduceScatter, 1, patReduceScatter, oneChunkARank, patHalfCost,
              allHops<patHalfCost>},
    Algorithm{"collnetdirect", Collective::kReduceScatter, kTwoPhaseSlots,
              collnetDirectReduceScatter, collnetBlockChunkCount, onOneHost<collnetScatterCost>,
              collnetBlockHostHops, collnetScatterCost, "direct", nullptr, Heads::kOneAnAdapter},
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
    Algorithm{"rail", Collective::kAllToAll, kRailSlots, railAllToAll, oneChunkARank,
              directAllToAllCost, railHostHops, railCost, "direct", nullptr, Heads::kNone, true},
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
                                     .lagSlots = options.lagSlots,
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
