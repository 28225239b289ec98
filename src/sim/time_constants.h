// What a call's parts take: the constants behind every simulated time, each with where it comes
// from: those of the built-in data file (plan/device_constants.txt), which says what was measured
// and what is supposed. Plain values, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "plan/device_constants.h"
#include "wire/types.h"

namespace tutti::sim {

using plan::CallPrices;
using plan::Launch;
using plan::LaunchCost;
using plan::nameOf;
using plan::System;

std::span<const CallPrices> gpuPrices();

// What is asked of a call's prices.
struct PriceKey {
  System system = System::kTutti;
  Collective collective = Collective::kAllReduce;
  std::string_view algorithm = "";
  graph::Protocol protocol = graph::Protocol::kSimple;
  int32_t rankCount = 2;  // of a node
};
// Those of the algorithm; else of the collective and protocol; else of all-reduce. Of several
// numbers of ranks the nearest that is not above; else the least. Never none.
const CallPrices& pricesFor(const PriceKey& key);
// Whether the first of these would be found.
bool isPriced(System system, Collective collective, std::string_view algorithm,
              graph::Protocol protocol);

// What launching a call costs; nothing in a graph. What NCCL makes of sends, as all-to-all, its
// host launches peer by peer: those count in `leastUs`.
LaunchCost launchCost(System system, Launch launch, Collective collective, int32_t rankCount);

// A hop between nodes costs more than one inside: proxy, port and remote flag, beside what the
// network's own latencies are.
double networkHopUs(bool hasGpus, graph::Protocol protocol);
// What is left of a port's signalling rate for data after headers. Supposed.
inline constexpr double kNetworkShare = 0.97;

// CPU ranks, all protocols alike.
CallPrices cpuPrices(Collective collective, std::string_view algorithm);

}  // namespace tutti::sim
