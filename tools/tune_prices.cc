#include "tools/tune_prices.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/processor.h"
#include "plan/device_constants.h"
#include "plan/plan.h"
#include "schedule/catalog.h"
#include "tools/tune_times.h"

namespace tutti::tools {
namespace {

constexpr double kGood = 1.1;
// A cell whose best algorithm differs more from itself was not measured, and may not pass for good.
constexpr double kMostSpread = 1.25;

const schedule::Algorithm& algorithmOf(const TuneTime& time) {
  return *schedule::findAlgorithm(time.block.collective, time.rival);
}

plan::RankKind rankKindOf(const TuneBlock& block) {
  return {.readsPeers = block.isThreads, .isCrowded = block.rankCount > block.cpuCount};
}

plan::CostTerms termsOf(const TuneTime& time) {
  const TuneBlock& block = time.block;
  const schedule::Algorithm& algorithm = algorithmOf(time);
  plan::CostedCall call{
      .rankCount = block.rankCount,
      .ranksPerCpu = std::max(1.0, static_cast<double>(block.rankCount) / block.cpuCount),
      .bytes = time.bytes,
      .readsPeers = block.isThreads,
      .isOneHost = block.hostCount == 1};
  if (block.hostCount == 1) return plan::countTerms(algorithm, call);
  std::vector<int32_t> hostOf;
  for (int32_t rank = 0; rank < block.rankCount; ++rank)
    hostOf.push_back(rank * block.hostCount / block.rankCount);
  call.slotBytes = plan::acrossHosts({.slotBytes = call.slotBytes}).slotBytes;
  call.hostCount = block.hostCount;
  call.crossings =
      plan::crossingsOf(algorithm, {.rankCount = block.rankCount, .hostCount = block.hostCount},
                        hostOf, schedule::chunksOf(algorithm, block.rankCount, time.bytes).filled);
  return plan::countTerms(algorithm, call);
}

struct Prices {
  plan::CpuConstants cpu;
  plan::SocketConstants sockets;
};

// Those that ranks on this machine choose by, but that of long calls of ranks that share AMD's
// newer processors the planner goes by the others (goesByAmdPrices in choice.cc).
Prices builtInPrices() {
  Prices prices{plan::builtInCpu(), plan::builtInSockets()};
  if (processorKind() != ProcessorKind::kAmdFrom26) return prices;
  const std::vector<plan::CostPrices>& crowded = plan::builtInCrowdedAmd().prices;
  std::erase_if(prices.cpu.prices, [&](const plan::CostPrices& usual) {
    return std::ranges::any_of(crowded, [&](const plan::CostPrices& each) {
      return each.kind == usual.kind && each.collective == usual.collective;
    });
  });
  prices.cpu.prices.insert(prices.cpu.prices.end(), crowded.begin(), crowded.end());
  return prices;
}

Prices pricesOf(const plan::Tuning& tuning) {
  return {tuning.cpu.value_or(plan::builtInCpu()), tuning.sockets.value_or(plan::builtInSockets())};
}

// 0: there are no prices for it.
double predictUs(const Prices& prices, const TuneTime& time) {
  const plan::CostPrices* cpu = prices.cpu.pricesOf(algorithmOf(time), rankKindOf(time.block));
  if (cpu == nullptr) return 0;
  const plan::CostTerms counts = termsOf(time);
  return plan::predictUs(*cpu, counts) + plan::predictUs({.us = prices.sockets.us}, counts);
}

int32_t mostCpus(const std::vector<TuneTime>& times) {
  int32_t most = 1;
  for (const TuneTime& each : times) most = std::max(most, each.block.cpuCount);
  return most;
}

}  // namespace

plan::Tuning fitTo(const std::vector<TuneTime>& times, const plan::Origin& origin) {
  plan::Tuning tuning;
  std::vector<plan::MeasuredCall> calls;
  for (const TuneTime& each : times) {
    if (each.rival == kChoice || each.block.hostCount > 1) continue;
    calls.push_back({.collective = each.block.collective,
                     .kind = rankKindOf(each.block),
                     .algorithm = each.rival,
                     .sample = {.counts = termsOf(each), .us = each.us}});
  }
  if (!calls.empty())
    tuning.cpu = {.origin = origin, .cpuCount = mostCpus(times), .prices = plan::fitAll(calls)};
  const Prices inside{.cpu = pricesOf(tuning).cpu, .sockets = {}};
  std::vector<plan::CostSample> crossing;
  for (const TuneTime& each : times) {
    if (each.rival == kChoice || each.block.hostCount == 1) continue;
    crossing.push_back(
        {.counts = termsOf(each), .us = each.us, .knownUs = predictUs(inside, each)});
  }
  if (!crossing.empty()) tuning.sockets = {.origin = origin, .us = plan::fitNetwork(crossing)};
  return tuning;
}

namespace {

// Times are medians.
struct Cell {
  const TuneTime* choice = nullptr;  // null: was not measured
  std::vector<const TuneTime*> forced{};
  std::map<std::string_view, double> slowest{};  // of each algorithm's repeats, us

  const TuneTime& best() const {
    return **std::ranges::min_element(forced, {}, [](const TuneTime* each) { return each->us; });
  }
  bool isGood(double us) const { return us <= kGood * best().us; }
  bool isWithinSpread(double us) const {
    return us <= std::min(slowest.at(best().rival), kMostSpread * best().us);
  }
  bool isWellChosenBy(const Prices& prices) const {
    const TuneTime* cheapest = *std::ranges::min_element(
        forced, {}, [&](const TuneTime* each) { return predictUs(prices, *each); });
    return isGood(cheapest->us);
  }
};

std::vector<std::string> labelsOf(const TuneBlock& block) {
  const std::string kind = kindOf(block);
  return {fmt::format("{} of {}", name(block.collective), kind),
          fmt::format("{} {} on {} CPUs", block.rankCount, kind, block.cpuCount), "all"};
}

}  // namespace

TuneJudgement judge(const std::vector<TuneTime>& times, const plan::Tuning& fitted) {
  std::map<std::pair<TuneBlock, uint64_t>, Cell> cells;
  const std::vector<TuneTime> medians = mediansOf(times);
  for (const TuneTime& each : times) {
    double& slowest = cells[{each.block, each.bytes}].slowest[each.rival];
    slowest = std::max(slowest, each.us);
  }
  for (const TuneTime& each : medians) {
    Cell& cell = cells[{each.block, each.bytes}];
    if (each.rival == kChoice) {
      cell.choice = &each;
    } else {
      cell.forced.push_back(&each);
    }
  }
  const Prices own = pricesOf(fitted), builtIn = builtInPrices();
  TuneJudgement judgement;
  for (const auto& [key, cell] : cells) {
    if (cell.choice == nullptr || cell.forced.empty()) continue;
    const bool isGood = cell.isGood(cell.choice->us);
    for (const std::string& label : labelsOf(key.first)) {
      TuneScore& score = judgement.scores[label];
      ++score.cells;
      score.asItRan += isGood;
      score.asItRanOrSpread += isGood || cell.isWithinSpread(cell.choice->us);
      score.byFitted += cell.isWellChosenBy(own);
      score.byBuiltIn += cell.isWellChosenBy(builtIn);
    }
    if (!isGood)
      judgement.misses.push_back({.block = key.first,
                                  .bytes = key.second,
                                  .choiceUs = cell.choice->us,
                                  .best = cell.best().rival,
                                  .bestUs = cell.best().us});
  }
  return judgement;
}

}  // namespace tutti::tools
