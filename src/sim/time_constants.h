// What a call's parts take: the constants behind every simulated time, each with where it comes
// from: those of the built-in data file (plan/device_constants.txt), which says what was measured
// and what is supposed. Plain values, any thread.
#pragma once

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

// The row itself; else one of the collective and protocol; else one of all-reduce. Never none.
const CallPrices& pricesFor(System system, Collective collective, std::string_view algorithm,
                            graph::Protocol protocol);
// Whether the first of these would be found.
bool isPriced(System system, Collective collective, std::string_view algorithm,
              graph::Protocol protocol);

LaunchCost launchCost(System system, Launch launch);

// A hop between nodes costs more than one inside: proxy, port and remote flag, beside what the
// network's own latencies are.
double networkHopUs(bool hasGpus, graph::Protocol protocol);
// What is left of a port's signalling rate for data after headers. Supposed.
inline constexpr double kNetworkShare = 0.97;

// CPU ranks, all protocols alike.
CallPrices cpuPrices(Collective collective, std::string_view algorithm);

}  // namespace tutti::sim
