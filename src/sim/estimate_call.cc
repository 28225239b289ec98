#include "sim/estimate_call.h"

#include <algorithm>

#include "schedule/catalog.h"
#include "sim/time_constants.h"

namespace tutti::sim {
namespace {

// The cheapest of the ways whose prices were measured; where none was, the prices of its like.
double onGpus(const plan::Agreement& agreement, const plan::CallShape& shape) {
  constexpr System kSystem = System::kTutti;
  const int32_t ranks = agreement.rankCount;
  const auto algorithms = schedule::algorithms(shape.collective);
  double best = 0;
  for (const bool measuredOnly : {true, false}) {
    for (const schedule::Algorithm& each : algorithms) {
      for (const auto protocol :
           {graph::Protocol::kLl, graph::Protocol::kLl128, graph::Protocol::kSimple}) {
        if (measuredOnly && !isPriced(kSystem, shape.collective, each.name, protocol)) continue;
        if (each.followsHosts()) continue;
        const double us =
            gpuCallUs({.rankCount = ranks, .algorithm = each.name, .protocol = protocol}, shape);
        best = best > 0 ? std::min(best, us) : us;
      }
    }
    if (best > 0) break;
  }
  const LaunchCost launch = launchCost(kSystem, Launch::kEager, shape.collective, ranks);
  return std::max(best + launch.moreUs, launch.leastUs);
}

Result<double> onCpus(const plan::Agreement& agreement, const plan::CallShape& shape) {
  TUTTI_TRY_ASSIGN(const plan::Choice choice, plan::choose(shape, agreement));
  for (const plan::AlgorithmCost& each : plan::costsOf(shape, agreement)) {
    if (each.algorithm == choice.algorithm && each.us > 0) return each.us;
  }
  // Of a collective without a choice nothing was measured.
  const schedule::Algorithm& algorithm =
      *schedule::findAlgorithm(shape.collective, choice.algorithm);
  const CallPrices like = cpuPrices(shape.collective, algorithm.name);
  const double bytes = static_cast<double>(plan::vectorBytes(shape, agreement.rankCount));
  const int32_t hops = algorithm.cost(agreement.rankCount).hops;
  const double us = like.fixedUs + hops * like.hopUs +
                    like.bytesUs(schedule::sentFactor(algorithm, agreement.rankCount) * bytes);
  return agreement.isOneHost ? us : us + hops * networkHopUs(false, graph::Protocol::kSimple);
}

}  // namespace

double gpuCallUs(const GpuWay& way, const plan::CallShape& shape) {
  const schedule::Algorithm* algorithm = schedule::findAlgorithm(shape.collective, way.algorithm);
  if (algorithm == nullptr) return 0;
  const CallPrices prices =
      pricesFor({System::kTutti, shape.collective, way.algorithm, way.protocol, way.rankCount});
  const auto bytes = static_cast<double>(plan::vectorBytes(shape, way.rankCount));
  return prices.fixedUs + algorithm->cost(way.rankCount).hops * prices.hopUs +
         prices.bytesUs(schedule::sentFactor(*algorithm, way.rankCount) * bytes);
}

Result<double> estimateCallUs(const EstimatedRanks& ranks, const plan::CallShape& shape) {
  if (ranks.areGpus) return onGpus(ranks.agreement, shape);
  return onCpus(ranks.agreement, shape);
}

}  // namespace tutti::sim
