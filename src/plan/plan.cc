#include "plan/plan.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "base/fnv.h"
#include "base/units.h"
#include "plan/algorithm_filter.h"
#include "plan/cost_model.h"
#include "plan/device_constants.h"
#include "plan/pieces.h"
#include "schedule/catalog.h"
#include "schedule/references.h"

namespace tutti::plan {
namespace {

using schedule::Algorithm;

int32_t hopsOf(const Algorithm& algorithm, const Agreement& agreement) {
  return schedule::costOf(algorithm,
                          schedule::evenSpread(agreement.rankCount, agreement.evenHostCount()))
      .hops;
}

// Where the kernel copies what one rank moves to or from others, over one hop, by ranks with a CPU
// each, messages need not fit a slot, since copies would not be the better form. Of exchanges, and
// of sends, whose callers often receive as well, it depends on the machine, and trials tell:
// references of 64 KiB to 8 MiB take 0.8 of the time of copies on an Intel Xeon VM
// (2026-11-22), 1.25 to 2.2 on an AMD EPYC VM (2026-11-25).
bool isReadLong(const CallShape& shape, const Algorithm& algorithm, const Agreement& agreement,
                size_t chunkBytes) {
  const bool isOneSided = shape.collective == Collective::kBroadcast ||
                          shape.collective == Collective::kScatter ||
                          shape.collective == Collective::kGather;
  return agreement.readsByKernel && !agreement.isCrowded() && isOneSided &&
         chunkBytes >= kKernelLongMinBytes &&
         vectorBytes(shape, agreement.rankCount) <= kKernelLongMaxBytes &&
         hopsOf(algorithm, agreement) == 1;
}

// Where ranks share CPUs and pass a broadcast on, references make each wait for the next: 8 ranks,
// 1 MiB, ring: 0.87 ms, and 0.53 as copies (2 CPUs of an Intel Xeon VM, 2026-11-22).
bool isRelayedByCrowd(const CallShape& shape, const Algorithm& algorithm,
                      const Agreement& agreement) {
  return shape.collective == Collective::kBroadcast && agreement.isCrowded() &&
         hopsOf(algorithm, agreement) > 1;
}

// From which length on messages are tried as references that the kernel reads.
size_t readFromBytes(const CallShape& shape, const Agreement& agreement) {
  const bool isLargeExchange =
      shape.collective == Collective::kAllToAll && agreement.rankCount >= kLargeExchangeRanks;
  return agreement.isCrowded() && !isLargeExchange ? kKernelCrowdedMinBytes : kKernelMinBytes;
}

// A network takes what lies in its ring.
bool isReferable(const CallShape& shape, const Algorithm& algorithm) {
  if (algorithm.reducesInNetwork()) return false;
  return shape.op != ReduceOp::kPreMulSum && schedule::isReferable(algorithm);
}

schedule::ScheduleOptions optionsFor(const CallShape& shape, const Agreement& agreement) {
  schedule::ScheduleOptions options{.rankCount = agreement.rankCount,
                                    .order = agreement.order,
                                    .hostCount = agreement.evenHostCount(),
                                    .hostStarts = agreement.inNetwork.hostStarts,
                                    .headCount = std::max(agreement.inNetwork.headCount, 1)};
  switch (shape.collective) {
    case Collective::kSend:
      options.root = shape.peer;
      options.sender = agreement.rank;
      break;
    case Collective::kRecv:
      options.root = agreement.rank;
      options.sender = shape.peer;
      break;
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kGather:
    case Collective::kScatter: options.root = shape.peer; break;
    case Collective::kAllReduce:
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll: break;
  }
  return options;
}

int32_t filledChunks(const Algorithm& algorithm, const CallShape& shape,
                     const Agreement& agreement) {
  return schedule::chunksOf(algorithm, agreement.rankCount, vectorBytes(shape, agreement.rankCount))
      .filled;
}

Crossings crossingsFor(const Algorithm& algorithm, const CallShape& shape,
                       const Agreement& agreement) {
  return crossingsOf(algorithm, optionsFor(shape, agreement), agreement.hostOf,
                     filledChunks(algorithm, shape, agreement));
}

// What both sides of a link must agree on. A send and its receive share one value; the algorithm is
// part of it because two ranks with different ones would misread each other's messages.
uint32_t shapeSignature(const CallShape& shape, const Algorithm& algorithm) {
  Fnv hash;
  const auto add = [&hash](uint64_t value) { hash.add(value); };
  if (isPointToPoint(shape.collective)) {
    add(static_cast<uint64_t>(Collective::kSend));
    add(shape.count * sizeOf(shape.type));
  } else {
    add(static_cast<uint64_t>(shape.collective));
    add(static_cast<uint64_t>(shape.type));
    add(isReduction(shape.collective) ? static_cast<uint64_t>(shape.op) : 0);
    add(hasRoot(shape.collective) ? static_cast<uint64_t>(index(shape.peer)) : 0);
    add(shape.count);
    for (const char letter : algorithm.name) add(static_cast<uint64_t>(letter));
  }
  return static_cast<uint32_t>(hash.value());
}

// Why a network does not do it; empty where it does.
std::string networkObstacle(const CallShape& shape, const Agreement& agreement) {
  const NetworkReduction& network = agreement.inNetwork;
  if (network.headCount == 0)
    return network.obstacle.empty() ? "NCCL_COLLNET_ENABLE is not set" : network.obstacle;
  const bool isGather = shape.collective == Collective::kAllGather;
  if (!isGather && !network.reduces(shape.type, shape.op))
    return fmt::format("{} does not reduce {} so", network.name, name(shape.type));
  if (shape.collective == Collective::kAllReduce) return {};
  if (!(isGather ? network.gathers : network.scatters))
    return fmt::format("{} has no {} on some rank", network.name, name(shape.collective));
  if (agreement.evenHostCount() != static_cast<int32_t>(network.hostStarts.size()))
    return "hosts do not hold as many ranks each";
  return {};
}

// Why algorithms of its kind are not for this call; empty where they are.
std::string obstacleTo(const Algorithm& algorithm, const CallShape& shape,
                       const Agreement& agreement) {
  if (algorithm.relays && agreement.relays == Relays::kNever) {
    return fmt::format(
        "{} relays, which a rank's NCCL_PXN_DISABLE=1 or NCCL_P2P_PXN_LEVEL=0 forbids",
        algorithm.name);
  }
  if (!algorithm.reducesInNetwork() || agreement.isOneHost) return {};
  std::string obstacle = networkObstacle(shape, agreement);
  if (!obstacle.empty()) obstacle.insert(0, "no network reduces: ");
  return obstacle;
}

// What NCCL_ALGO allows of the collective's algorithms; those that the links can hold.
Result<std::vector<const Algorithm*>> allowedFor(const CallShape& shape,
                                                 const Agreement& agreement) {
  const Collective collective = shape.collective;
  const auto all = schedule::algorithms(collective);
  const AlgorithmFilter filter(agreement.algorithms);
  const int32_t hosts = agreement.evenHostCount();
  std::vector<const Algorithm*> allowed;
  std::string lastObstacle;
  for (const Algorithm& algorithm : all) {
    const uint32_t capacity = wire::capacity(agreement.geometry.slotCount);
    if (algorithm.minSlotCount > static_cast<int32_t>(capacity)) continue;
    if (!filter.allows(collective, algorithm.name)) continue;
    std::string obstacle = obstacleTo(algorithm, shape, agreement);
    if (!obstacle.empty()) {
      lastObstacle = "; " + std::move(obstacle);
      continue;
    }
    const bool isAsked = !agreement.algorithms.empty();
    const bool isInNetwork = algorithm.reducesInNetwork() && !agreement.isOneHost;
    if (!isAsked && !isInNetwork && !algorithm.isOfItsOwn(agreement.rankCount, hosts)) continue;
    if (!isAsked && algorithm.relays && agreement.relays == Relays::kAlways) return {{&algorithm}};
    allowed.push_back(&algorithm);
  }
  if (!allowed.empty()) return allowed;
  return invalidUsage("NCCL_ALGO={} leaves no algorithm for {}; there are: {}{}",
                      agreement.algorithms, name(collective), listNames(all), lastObstacle);
}

std::string reasonForOnly(const Algorithm& algorithm, const Agreement& agreement) {
  return agreement.algorithms.empty() && algorithm.relays ? "NCCL_P2P_PXN_LEVEL=2"
                                                          : "the only one NCCL_ALGO allows";
}

RankKind kindOf(const Agreement& agreement) {
  return {.readsPeers = agreement.readsPeers, .isCrowded = agreement.isCrowded()};
}

// What all links together hold of a vector of which each rank has a block for each other one.
uint64_t bytesInLinks(uint64_t bytes, const Agreement& agreement) {
  const auto ranks = static_cast<uint64_t>(agreement.rankCount);
  const wire::LinkGeometry& geometry = agreement.geometry;
  const uint64_t ofALink =
      std::min(bytes / ranks, uint64_t{geometry.slotCount} * geometry.slotBytes);
  return ranks * (ranks - 1) * ofALink;
}

// Of crowded ranks on AMD's newer processors the others' prices choose badly while the links' bytes
// stay in caches: all-reduce of 16 KiB to 1 MiB by 4 ranks takes 0.61 to 0.78 of the time by those
// of their own, by 8 of 256 KiB 0.61, reduce-scatter 0.52 to 0.81; but by 8 of 1 MiB 1.36 and 1.57,
// by 4 of 16 MiB 1.1 (2 CPUs of a VM, family 26, 2026-11-27): what leaves the caches has no price.
bool goesByAmdPrices(const CallShape& shape, const Agreement& agreement) {
  constexpr uint64_t kMostBytes = 4_MiB;
  return agreement.isCrowded() && agreement.processor == ProcessorKind::kAmdFrom26 &&
         bytesInLinks(vectorBytes(shape, agreement.rankCount), agreement) < kMostBytes;
}

// The agreement's prices where it has all that are needed, else the built-in ones.
const CpuConstants& constantsFor(const CallShape& shape, std::span<const Algorithm* const> allowed,
                                 const Agreement& agreement) {
  const CpuConstants* measured = nullptr;
  if (agreement.tuning != nullptr && agreement.tuning->cpu) {
    measured = &*agreement.tuning->cpu;
  } else if (goesByAmdPrices(shape, agreement)) {
    measured = &builtInCrowdedAmd();
  }
  if (measured == nullptr) return builtInCpu();
  const bool hasAll = std::ranges::all_of(allowed, [&](const Algorithm* each) {
    return measured->pricesOf(*each, kindOf(agreement)) != nullptr;
  });
  return hasAll ? *measured : builtInCpu();
}

// What goes between hosts; a planner remembers it.
using CrossingsOf = std::function<Crossings(const Algorithm&)>;

// The sockets' prices; of no matter on one host.
const SocketConstants& socketsFor(const Agreement& agreement) {
  const bool isMeasured = agreement.tuning != nullptr && agreement.tuning->sockets;
  return isMeasured ? *agreement.tuning->sockets : builtInSockets();
}

// Of ranks whose hosts have a network that reduces.
std::optional<schedule::Spread> spreadOf(const Agreement& agreement) {
  const std::vector<int32_t>& starts = agreement.inNetwork.hostStarts;
  if (agreement.inNetwork.headCount == 0) return std::nullopt;
  schedule::Spread spread{.rankCount = agreement.rankCount,
                          .hostCount = static_cast<int32_t>(starts.size()),
                          .mostRanks = 0,
                          .headCount = agreement.inNetwork.headCount};
  for (size_t host = 0; host < starts.size(); ++host) {
    const int32_t end = host + 1 < starts.size() ? starts[host + 1] : agreement.rankCount;
    spread.mostRanks = std::max(spread.mostRanks, end - starts[host]);
  }
  return spread;
}

// Where ranks share CPUs and all their copies of a broadcast together leave the last cache, those
// of any program but the ring go to memory each at a pace of its own. Direct over the ring: 4 ranks
// of 8 MiB 0.9, of 16 MiB 1.14; 8 of 4 MiB 0.78, of 8 MiB 1.29; 16 of 4 MiB 1.5; two-shot of 16 MiB
// by 8 2.3, tree 1.2 (2 CPUs of an AMD EPYC VM, 32 MiB of that cache, 2026-11-25).
bool copiesOutgrowCaches(const CostedCall& call) {
  constexpr uint64_t kAllBytes = 64_MiB;
  return call.bytes * static_cast<uint64_t>(call.rankCount) >= kAllBytes;
}

// The same of an all-gather's blocks on their way from all ranks to all. Direct over the ring: 8
// ranks of 1 MiB 0.64, of 4 MiB 1.79, of 16 MiB 1.93; 4 ranks of 16 MiB 1.18 and, in place, 1.0, of
// 64 MiB 1.04 and 0.9 (the same cache, 2026-11-27).
bool slotsOutgrowCaches(const CostedCall& call, const Agreement& agreement) {
  constexpr uint64_t kAllBytes = 16_MiB;
  return bytesInLinks(call.bytes, agreement) >= kAllBytes;
}

// Whether the prices of crowded processes make too little of this call. They were measured where a
// kernel reads fast, and of broadcasts that go by way of an outbox.
bool isUnderpriced(const Algorithm& algorithm, const CostedCall& call, const Agreement& agreement) {
  if (!agreement.isCrowded() || agreement.readsPeers || algorithm.name == "ring") return false;
  if (algorithm.collective == Collective::kAllGather)
    return !agreement.readsByKernel && agreement.isOneHost && slotsOutgrowCaches(call, agreement);
  return algorithm.collective == Collective::kBroadcast &&
         (copiesOutgrowCaches(call) || !agreement.hasOutbox());
}

std::vector<AlgorithmCost> costsBy(const CpuConstants& constants, const CallShape& shape,
                                   const Agreement& agreement,
                                   std::span<const Algorithm* const> allowed,
                                   const CrossingsOf& crossings) {
  CostedCall call{.rankCount = agreement.rankCount,
                  .ranksPerCpu = agreement.ranksPerCpu,
                  .bytes = vectorBytes(shape, agreement.rankCount),
                  .readsPeers = agreement.readsPeers,
                  .slotCount = agreement.geometry.slotCount,
                  .slotBytes = agreement.geometry.slotBytes,
                  .isOneHost = agreement.isOneHost,
                  .hostCount = agreement.evenHostCount(),
                  .inNetwork = spreadOf(agreement)};
  const SocketConstants& sockets = socketsFor(agreement);
  CostPrices network{.us = sockets.us};
  double& usPerMb = network.us[static_cast<size_t>(CostTerm::kNetMb)];
  if (sockets.wireGbPerSecond > 0) usPerMb = std::max(usPerMb, 1000 / sockets.wireGbPerSecond);
  std::vector<AlgorithmCost> costs;
  costs.reserve(allowed.size());
  for (const Algorithm* each : allowed) {
    const CostPrices* prices = constants.pricesOf(*each, kindOf(agreement));
    if (!agreement.hostOf.empty()) call.crossings = crossings(*each);
    const CostTerms counts = countTerms(*each, call);
    if (prices == nullptr) {
      costs.push_back({each->name, 0});
      continue;
    }
    const double longer = isUnderpriced(*each, call, agreement) ? 2 : 1;
    costs.push_back({each->name, longer * predictUs(*prices, counts) + predictUs(network, counts)});
  }
  return costs;
}

// What the plug-in makes of our choice.
Choice advised(const CallShape& shape, const Agreement& agreement, Choice own,
               std::span<const AlgorithmCost> costs) {
  const std::string_view advice = agreement.tuner
                                      ->advise({.collective = shape.collective,
                                                .bytes = vectorBytes(shape, agreement.rankCount),
                                                .costs = costs,
                                                .chosen = own.algorithm})
                                      .algorithm;
  if (advice.empty() || advice == own.algorithm) return own;
  return {advice, fmt::format("tuner plug-in {}; else {}: {}", agreement.tuner->name(),
                              own.algorithm, own.reason)};
}

// Eight slots keep a sender busy while the receiver folds. Half a mebibyte, so slots of 64 KiB,
// stays inside a core's L2 cache.
constexpr uint32_t kSlotCount = 8;

// A root's short messages run ahead of readers that come late: broadcast of 256 B by 4 ranks on 2
// CPUs took 0.65 us with 8 slots, 0.52 with 16, 0.38 with 32 (Intel Xeon VM, 2026-11-22).
constexpr uint32_t kShortCount = 32;

}  // namespace

wire::LinkGeometry linkGeometry(size_t bufferBytes) {
  const size_t slotBytes = std::clamp<size_t>(roundUp(bufferBytes / kSlotCount, kCacheLineBytes),
                                              kCacheLineBytes, wire::kMaxSlotBytes);
  return {.slotCount = kSlotCount,
          .slotBytes = static_cast<uint32_t>(slotBytes),
          .shortCount = slotBytes > wire::kShortBytes ? kShortCount : 0};
}

// Short calls go round the whole ring: all-to-all of 8 bytes took 8 MiB of shared memory a rank
// where 64 had 32 slots a link. Links to all others stay below 2 MiB a rank, and half of that is
// left for those of sends.
wire::LinkGeometry amongRanks(const wire::LinkGeometry& geometry, size_t rankCount) {
  constexpr size_t kMostShortBytes = 2_MiB;
  wire::LinkGeometry result = geometry;
  while (result.shortCount > result.slotCount &&
         rankCount * result.shortCount * wire::kShortBytes > kMostShortBytes)
    result.shortCount /= 2;
  return result;
}

// A program moves piece after piece, so each waits for the trips of its messages, 15 us and more.
// All-reduce of 16 MiB, 2 ranks over loopback, slots of 64 and 256 KiB: 24 and 13 ms (2 CPUs of
// an Intel Xeon VM, busy, least of three, 2026-11-21).
wire::LinkGeometry acrossHosts(const wire::LinkGeometry& geometry) {
  constexpr uint32_t kTimes = 4;
  return {.slotCount = geometry.slotCount,
          .slotBytes = std::min(geometry.slotBytes * kTimes, wire::kMaxSlotBytes)};
}

class ProgramCache {
 public:
  std::shared_ptr<const schedule::Program> get(const Algorithm& algorithm, const CallShape& shape,
                                               const Agreement& agreement) {
    // Shared by the plans that run it; a plan may outlive its place in this table.
    auto& program = programs_[keyOf(algorithm, shape)];
    if (program == nullptr) {
      program = std::make_shared<const schedule::Program>(
          schedule::buildProgram(algorithm, optionsFor(shape, agreement), agreement.rank));
    }
    return program;
  }

  Crossings crossings(const Algorithm& algorithm, const CallShape& shape,
                      const Agreement& agreement) {
    const auto [found, isNew] = crossings_.try_emplace(
        {keyOf(algorithm, shape), filledChunks(algorithm, shape, agreement)});
    if (isNew) found->second = crossingsFor(algorithm, shape, agreement);
    return found->second;
  }

 private:
  using Key = std::tuple<const Algorithm*, int32_t, int32_t>;
  static Key keyOf(const Algorithm& algorithm, const CallShape& shape) {
    const int32_t peer =
        hasRoot(shape.collective) || shape.collective >= Collective::kSend ? index(shape.peer) : 0;
    return {&algorithm, static_cast<int32_t>(shape.collective), peer};
  }

  std::map<Key, std::shared_ptr<const schedule::Program>> programs_;
  std::map<std::pair<Key, int32_t>, Crossings> crossings_;  // by the chunks sent, too
};

Planner::Planner(Agreement agreement)
    : agreement_(std::move(agreement)), programs_(std::make_unique<ProgramCache>()) {}
Planner::~Planner() = default;

int32_t Agreement::evenHostCount() const {
  const auto hostAt = [&](size_t place) {
    return hostOf[order.empty() ? place : static_cast<size_t>(index(order[place]))];
  };
  std::vector<size_t> firsts;  // the place of each host's first rank, were each host's together
  for (size_t place = 0; place < hostOf.size(); ++place) {
    if (place == 0 || hostAt(place) != hostAt(place - 1)) firsts.push_back(place);
  }
  const size_t hosts = firsts.size();
  if (hosts < 2 || hosts != static_cast<size_t>(std::ranges::max(hostOf)) + 1) return 1;
  for (size_t host = 0; host < hosts; ++host) {
    if (firsts[host] * hosts != host * hostOf.size()) return 1;
  }
  return static_cast<int32_t>(hosts);
}

ReduceOp NetworkReduction::operationFor(ReduceOp op) {
  return op == ReduceOp::kAvg || op == ReduceOp::kPreMulSum ? ReduceOp::kSum : op;
}

uint64_t NetworkReduction::bitOf(DataType type, ReduceOp op) {
  constexpr int kOperations = 4;  // those that operationFor() gives
  static_assert(kDataTypeCount * kOperations <= 64);
  return uint64_t{1} << (static_cast<int>(type) * kOperations + static_cast<int>(operationFor(op)));
}

bool NetworkReduction::reduces(DataType type, ReduceOp op) const {
  return headCount > 0 && (supported & bitOf(type, op)) != 0;
}

size_t vectorBytes(const CallShape& shape, int32_t rankCount) {
  return shape.count * sizeOf(shape.type) *
         static_cast<size_t>(schedule::blockCount(shape.collective, rankCount));
}

BufferBytes bufferBytes(const CallShape& shape, const Agreement& agreement) {
  const size_t whole = vectorBytes(shape, agreement.rankCount);
  const size_t block = shape.count * sizeOf(shape.type);
  const schedule::ScheduleOptions options = optionsFor(shape, agreement);
  const schedule::Peers peers{.root = options.root, .sender = options.sender};
  const bool sendsBlock =
      shape.collective == Collective::kAllGather || shape.collective == Collective::kGather;
  const bool receivesBlock =
      shape.collective == Collective::kReduceScatter || shape.collective == Collective::kScatter;
  BufferBytes bytes;
  if (schedule::hasInput(shape.collective, peers, agreement.rank))
    bytes.input = sendsBlock ? block : whole;
  if (schedule::hasOutput(shape.collective, peers, agreement.rank))
    bytes.output = receivesBlock ? block : whole;
  return bytes;
}

namespace {

// The cheapest by the prices; of equals the first in the catalogue.
Result<Choice> chooseWith(const CallShape& shape, const Agreement& agreement,
                          const CrossingsOf& crossings) {
  const auto all = schedule::algorithms(shape.collective);
  if (all.size() == 1) return Choice{all[0].name, "the only algorithm"};
  TUTTI_TRY_ASSIGN(const std::vector<const Algorithm*> allowed, allowedFor(shape, agreement));
  if (allowed.size() == 1) return Choice{allowed[0]->name, reasonForOnly(*allowed[0], agreement)};
  const CpuConstants& constants = constantsFor(shape, allowed, agreement);
  const std::vector<AlgorithmCost> costs = costsBy(constants, shape, agreement, allowed, crossings);
  const auto best = std::ranges::min_element(costs, {}, &AlgorithmCost::us);
  const AlgorithmCost* second = nullptr;
  for (const AlgorithmCost& each : costs) {
    if (&each != &*best && (second == nullptr || each.us < second->us)) second = &each;
  }
  Choice own{
      best->algorithm,
      fmt::format("{} bytes on {} ranks: {} {:.2f} us, {} {:.2f} us by prices of {}",
                  vectorBytes(shape, agreement.rankCount), agreement.rankCount, best->algorithm,
                  best->us, second->algorithm, second->us, constants.origin.date)};
  if (agreement.tuner == nullptr) return own;
  return advised(shape, agreement, std::move(own), costs);
}

CrossingsOf countingAnew(const CallShape& shape, const Agreement& agreement) {
  return [&](const Algorithm& algorithm) { return crossingsFor(algorithm, shape, agreement); };
}

}  // namespace

Result<Choice> choose(const CallShape& shape, const Agreement& agreement) {
  return chooseWith(shape, agreement, countingAnew(shape, agreement));
}

std::vector<AlgorithmCost> costsOf(const CallShape& shape, const Agreement& agreement) {
  const Result<std::vector<const Algorithm*>> allowed = allowedFor(shape, agreement);
  if (!allowed.ok()) return {};
  return costsBy(constantsFor(shape, allowed.value(), agreement), shape, agreement, allowed.value(),
                 countingAnew(shape, agreement));
}

std::vector<Switch> switchesOf(Collective collective, const Agreement& agreement) {
  std::vector<Switch> found;
  const auto blocks = static_cast<uint64_t>(schedule::blockCount(collective, agreement.rankCount));
  constexpr int kFirstPower = 3, kLastPower = 32;
  for (int power = kFirstPower; power <= kLastPower; ++power) {
    const uint64_t bytes = uint64_t{1} << power;
    const CallShape shape{
        .collective = collective, .type = DataType::kUint8, .count = divideUp(bytes, blocks)};
    const Result<Choice> choice = choose(shape, agreement);
    if (!choice.ok()) return {};
    if (found.empty() || found.back().algorithm != choice.value().algorithm)
      found.push_back({bytes, choice.value().algorithm});
  }
  return found;
}

Result<Plan> Planner::make(const CallShape& shape) {
  TUTTI_TRY_ASSIGN(Choice choice, chooseWith(shape, agreement_, [&](const Algorithm& algorithm) {
                     return programs_->crossings(algorithm, shape, agreement_);
                   }));
  Plan plan = bind(shape, choice.algorithm);
  plan.reason = std::move(choice.reason);
  return plan;
}

namespace {

// On two ranks a sum is the same in either order. One-shot reads whole vectors in one hop; two-shot
// folds halves, and each rank puts its own into both outputs. Of the time of two halves in two hops
// the first takes 0.33 to 0.8 from 16 to 256 KiB, and 0.8 to 1.2 above (buffers that peers map, 2
// CPUs of an Intel Xeon VM, 2026-11-21); as copies they take longer.
std::string_view otherOfTwo(const CallShape& shape, std::string_view own) {
  if (shape.collective != Collective::kAllReduce) return {};
  return own == "oneshot" ? "twoshot" : "oneshot";
}

// What folds in the order of a ring, in one step, and needs a hop or two. The same bits where a
// partial sum that is sent on is not rounded. As copies it is no faster.
std::string_view otherThanRing(const CallShape& shape, std::string_view own) {
  constexpr size_t kLeastExactBytes = 4;  // shorter types are summed as floats
  if (own != "ring") return {};
  const bool isExact = sizeOf(shape.type) >= kLeastExactBytes;
  switch (shape.collective) {
    case Collective::kAllReduce: return isExact ? "twoshot" : "";
    case Collective::kReduceScatter: return isExact ? "direct" : "";
    case Collective::kAllGather: return "direct";
    default: return {};
  }
}

}  // namespace

Result<std::optional<Plan>> Planner::makeOther(const CallShape& shape, const Plan& plan) {
  const int32_t rankCount = agreement_.rankCount;
  const bool isForMany =
      agreement_.isCrowded() && !agreement_.readsPeers && rankCount <= kMostRanksMapped;
  std::string_view otherName;
  if (rankCount == 2) {
    otherName = otherOfTwo(shape, plan.algorithm);
  } else if (isForMany) {
    otherName = otherThanRing(shape, plan.algorithm);
  }
  // Every rank has a chunk of its own, so that each hears of all others.
  constexpr size_t kMinBytes = 4_KiB;
  const bool isFit = !otherName.empty() && agreement_.isOneHost &&
                     shape.op != ReduceOp::kPreMulSum && vectorBytes(shape, rankCount) >= kMinBytes;
  if (!isFit || !AlgorithmFilter(agreement_.algorithms).allows(shape.collective, otherName)) {
    return std::optional<Plan>();
  }
  Plan other = bind(shape, otherName, true);
  other.reason = "tried beside " + std::string(plan.algorithm) + " where peers read the buffers";
  return std::optional<Plan>(std::move(other));
}

Plan Planner::bind(const CallShape& shape, std::string_view algorithmName, bool isOther) {
  const Algorithm& algorithm = *schedule::findAlgorithm(shape.collective, algorithmName);
  const size_t elementBytes = sizeOf(shape.type);
  const int32_t chunkCount = algorithm.chunksOf(optionsFor(shape, agreement_));
  const auto chunksPerBlock = static_cast<size_t>(
      chunkCount / schedule::blockCount(shape.collective, agreement_.rankCount));
  const size_t chunkBytes = divideUp(shape.count, chunksPerBlock) * elementBytes;
  const Piecing piecing{.slotBytes = agreement_.geometry.slotBytes,
                        .isCrowded = agreement_.isCrowded(),
                        .isOneHost = agreement_.isOneHost};
  Plan plan;
  // Another one is taken where its steps can refer; that it may not in every call is seen there.
  const bool refers = isOther || isReferable(shape, algorithm);
  const bool isLong = refers && isReadLong(shape, algorithm, agreement_, chunkBytes);
  const bool isRead = refers && agreement_.readsPeers && chunkBytes >= kDirectMinBytes;
  plan.isDirect = !isOther && (isRead || isLong);
  // Among many another one is for memory that is mapped.
  const bool isMappedOnly = isOther && agreement_.rankCount > 2;
  plan.mayRefer = refers && !plan.isDirect && !isMappedOnly && agreement_.readsByKernel &&
                  chunkBytes >= readFromBytes(shape, agreement_) &&
                  !isRelayedByCrowd(shape, algorithm, agreement_);
  size_t pieceBytes = pieceBytesFor(chunkBytes, piecing);
  if (plan.isDirect)
    pieceBytes = directPieceBytes(chunkBytes, isLong ? kKernelLongMinBytes : kDirectMinBytes);
  const bool mayCopy = agreement_.isOneHost && !agreement_.readsPeers && !plan.isDirect;
  if (mayCopy || isOther) pieceBytes = processPieceBytes(chunkBytes, piecing);
  const std::vector<int32_t>& hosts = agreement_.inNetwork.hostStarts;
  if (algorithm.reducesInNetwork() && shape.collective != Collective::kAllReduce && !hosts.empty())
    pieceBytes =
        std::min(pieceBytes, networkPieceBytes(agreement_.geometry.slotBytes, hosts.size()));
  plan.algorithm = algorithm.name;
  plan.program = programs_->get(algorithm, shape, agreement_);
  plan.layout = schedule::makeLayout({.collective = shape.collective,
                                      .rank = agreement_.rank,
                                      .rankCount = agreement_.rankCount,
                                      .chunkCount = chunkCount,
                                      .blockElements = shape.count,
                                      .elementBytes = elementBytes,
                                      .pieceBytes = pieceBytes});
  plan.signature = shapeSignature(shape, algorithm);
  if (algorithm.reducesInNetwork() && agreement_.inNetwork.headCount > 0)
    plan.networkOp = NetworkReduction::operationFor(shape.op);
  return plan;
}

MappedSteps Planner::mappedSteps(const CallShape& shape, const Plan& plan, bool inPlace) const {
  // A pre-multiplied input is nobody's memory.
  if (shape.op == ReduceOp::kPreMulSum && isReduction(shape.collective)) return {};
  if (agreement_.rankCount > kMostRanksMapped) return {};
  const Algorithm& algorithm = *schedule::findAlgorithm(shape.collective, plan.algorithm);
  if (algorithm.reducesInNetwork()) return {};  // the heads' slots are the network's
  const schedule::Schedule all = schedule::makeSchedule(algorithm, optionsFor(shape, agreement_));
  return {.referable = schedule::referableSteps(all, agreement_.rank, inPlace),
          .answered = schedule::answeredSteps(all, agreement_.rank),
          .placements = schedule::placements(all, agreement_.rank, inPlace)};
}

}  // namespace tutti::plan
