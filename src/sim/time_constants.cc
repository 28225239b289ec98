#include "sim/time_constants.h"

#include <algorithm>

namespace tutti::sim {
namespace {

using graph::Protocol;

const CallPrices* find(System system, Collective collective, std::string_view algorithm,
                       Protocol protocol) {
  const std::span<const CallPrices> known = gpuPrices();
  const auto found = std::ranges::find_if(known, [&](const CallPrices& row) {
    return row.system == system && row.collective == collective && row.protocol == protocol &&
           (algorithm.empty() || row.algorithm == algorithm);
  });
  return found == known.end() ? nullptr : &*found;
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

}  // namespace

std::span<const CallPrices> gpuPrices() { return plan::builtInGpu().calls; }

bool isPriced(System system, Collective collective, std::string_view algorithm, Protocol protocol) {
  return find(system, pricedAs(collective), algorithm, protocol) != nullptr;
}

const CallPrices& pricesFor(System system, Collective collective, std::string_view algorithm,
                            Protocol protocol) {
  const Collective priced = pricedAs(collective);
  if (const CallPrices* exact = find(system, priced, algorithm, protocol)) return *exact;
  if (const CallPrices* like = find(system, priced, "", protocol)) return *like;
  return *find(system, Collective::kAllReduce, "", protocol);
}

LaunchCost launchCost(System system, Launch launch) {
  if (launch == Launch::kGraph) return {};
  return plan::builtInGpu().eager[static_cast<size_t>(system)];
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
