#include "plan/choice.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "plan/algorithm_filter.h"
#include "plan/cost_model.h"
#include "plan/device_constants.h"

namespace tutti::plan {

using schedule::Algorithm;

namespace {

int32_t lagSlotsOf(const Agreement& agreement) {
  return agreement.overlapsNetwork
             ? static_cast<int32_t>(wire::capacity(agreement.geometry.slotCount))
             : 0;
}

}  // namespace

schedule::Peers peersOf(const CallShape& shape, Rank rank) {
  switch (shape.collective) {
    case Collective::kSend: return {.root = shape.peer, .sender = rank};
    case Collective::kRecv: return {.root = rank, .sender = shape.peer};
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kGather:
    case Collective::kScatter: return {.root = shape.peer};
    case Collective::kAllReduce:
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll: break;
  }
  return {};
}

schedule::ScheduleOptions optionsFor(const CallShape& shape, const Agreement& agreement) {
  const schedule::Peers peers = peersOf(shape, agreement.rank);
  return {.rankCount = agreement.rankCount,
          .root = peers.root,
          .sender = peers.sender,
          .order = agreement.order,
          .hostCount = agreement.evenHostCount(),
          .lagSlots = lagSlotsOf(agreement),
          .hostStarts = agreement.inNetwork.hostStarts,
          .headCount = std::max(agreement.inNetwork.headCount, 1)};
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

namespace {

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
    return !agreement.readsFastByKernel && agreement.isOneHost &&
           slotsOutgrowCaches(call, agreement);
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
  if (sockets.wireGbPerSecond > 0)
    network.us[static_cast<size_t>(CostTerm::kNetWireMb)] = 1000 / sockets.wireGbPerSecond;
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

CrossingsOf countingAnew(const CallShape& shape, const Agreement& agreement) {
  return [&](const Algorithm& algorithm) { return crossingsFor(algorithm, shape, agreement); };
}

}  // namespace

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

}  // namespace tutti::plan
