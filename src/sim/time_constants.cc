#include "sim/time_constants.h"

#include <algorithm>

namespace tutti::sim {
namespace {

using graph::Protocol;

// Any algorithm where none is named.
const CallPrices* find(const PriceKey& key) {
  const CallPrices* best = nullptr;
  for (const CallPrices& row : gpuPrices()) {
    if (row.system != key.system || row.collective != key.collective ||
        row.protocol != key.protocol || (!key.algorithm.empty() && row.algorithm != key.algorithm))
      continue;
    const bool isAbove = row.rankCount > key.rankCount;
    const bool isNearer = best != nullptr && !isAbove && row.rankCount > best->rankCount;
    const bool isLess =
        best != nullptr && best->rankCount > key.rankCount && row.rankCount < best->rankCount;
    if (best == nullptr || isNearer || isLess) best = &row;
  }
  return best;
}

// Receiving is the other half of sending; gathering and scattering are parts of an all-to-all.
Collective pricedAs(Collective collective) {
  switch (collective) {
    case Collective::kRecv: return Collective::kSend;
    case Collective::kGather:
    case Collective::kScatter: return Collective::kAllToAll;
    case Collective::kAllReduce:
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kAllToAll:
    case Collective::kSend: return collective;
  }
  return collective;
}

// To whom the host launches a send each; 1: it launches one kernel.
int32_t launchedPeers(System system, Collective collective, int32_t rankCount) {
  return system == System::kNccl && pricedAs(collective) == Collective::kAllToAll
             ? std::max(rankCount - 1, 1)
             : 1;
}

}  // namespace

std::span<const CallPrices> gpuPrices() { return plan::builtInGpu().calls; }

bool isPriced(System system, Collective collective, std::string_view algorithm, Protocol protocol) {
  return find({system, pricedAs(collective), algorithm, protocol}) != nullptr;
}

const CallPrices& pricesFor(const PriceKey& key) {
  PriceKey wanted = key;
  wanted.collective = pricedAs(key.collective);
  if (const CallPrices* exact = find(wanted)) return *exact;
  wanted.algorithm = "";
  if (const CallPrices* like = find(wanted)) return *like;
  wanted.collective = Collective::kAllReduce;
  return *find(wanted);
}

LaunchCost launchCost(System system, Launch launch, Collective collective, int32_t rankCount) {
  if (launch == Launch::kGraph) return {};
  LaunchCost cost = plan::builtInGpu().eager[static_cast<size_t>(system)];
  cost.leastUs += cost.peerUs * (launchedPeers(system, collective, rankCount) - 1);
  return cost;
}

double networkHopUs(bool hasGpus, Protocol protocol) {
  const plan::SimulatorConstants& known = plan::builtInSimulator();
  return hasGpus ? known.gpuNetworkHopUs[static_cast<size_t>(protocol)] : known.cpuNetworkHopUs;
}

CallPrices cpuPrices(Collective collective, std::string_view algorithm) {
  CallPrices prices = plan::builtInSimulator().cpuCall;
  prices.collective = collective;
  prices.algorithm = algorithm;
  return prices;
}

}  // namespace tutti::sim
