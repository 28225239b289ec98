#include "sim/time_constants.h"

#include <algorithm>
#include <array>

namespace tutti::sim {
namespace {

using graph::Protocol;
using enum System;

// scripts/sim_calibrate.py docs/results/2026-11-21-gpu-measured.csv, 2026-11-21: 2 and 4 H200,
// kernels in graphs (short calls) and eager (from 256 MB on). A "protocol" here is whichever way
// was cheapest in a range of sizes, so NCCL's three need not be its own LL, LL128 and Simple;
// docs/results/2026-11-21-sim.md has the errors.
// clang-format off
constexpr std::array kGpuPrices = {
    CallPrices{kTutti, Collective::kAllReduce, "oneshot", Protocol::kLl, 4.02, 0.66, 174.3},
    CallPrices{kTutti, Collective::kAllReduce, "twoshot", Protocol::kLl128, 12.25, 0.66, 306.3},
    CallPrices{kTutti, Collective::kAllReduce, "twoshot", Protocol::kSimple, 11.48, 0.66, 323.6},
    CallPrices{kNccl, Collective::kAllReduce, "ring", Protocol::kLl, 5.13, 0.67, 177.2},
    CallPrices{kNccl, Collective::kAllReduce, "ring", Protocol::kLl128, 17.41, 0.66, 316.9},
    CallPrices{kNccl, Collective::kAllReduce, "ring", Protocol::kSimple, 134.41, 0.66, 358.5},
    CallPrices{kTutti, Collective::kAllGather, "direct", Protocol::kLl, 3.55, 0.66, 14.9},
    CallPrices{kTutti, Collective::kAllGather, "direct", Protocol::kLl128, 4.04, 0.66, 114.8},
    CallPrices{kTutti, Collective::kAllGather, "direct", Protocol::kSimple, 9.36, 0.66, 323.4},
    CallPrices{kNccl, Collective::kAllGather, "ring", Protocol::kLl, 4.49, 0.68, 7.6},
    CallPrices{kNccl, Collective::kAllGather, "ring", Protocol::kLl128, 5.16, 0.77, 117.0},
    CallPrices{kNccl, Collective::kAllGather, "ring", Protocol::kSimple, 22.96, 0.66, 294.2},
    CallPrices{kTutti, Collective::kReduceScatter, "direct", Protocol::kLl, 4.13, 0.66, 12.8},
    CallPrices{kTutti, Collective::kReduceScatter, "direct", Protocol::kLl128, 4.76, 0.66, 130.5},
    CallPrices{kTutti, Collective::kReduceScatter, "direct", Protocol::kSimple, 11.01, 0.66, 317.5},
    CallPrices{kNccl, Collective::kReduceScatter, "ring", Protocol::kLl, 4.30, 0.77, 9.5},
    CallPrices{kNccl, Collective::kReduceScatter, "ring", Protocol::kLl128, 4.94, 0.66, 132.4},
    CallPrices{kNccl, Collective::kReduceScatter, "ring", Protocol::kSimple, 19.33, 0.66, 294.7},
    CallPrices{kTutti, Collective::kBroadcast, "direct", Protocol::kLl, 2.63, 0.66, 252.2},
    CallPrices{kTutti, Collective::kBroadcast, "ring", Protocol::kLl128, 2.15, 2.13, 277.7},
    CallPrices{kTutti, Collective::kBroadcast, "ring", Protocol::kSimple, 0.00, 9.46, 337.3},
    CallPrices{kNccl, Collective::kBroadcast, "ring", Protocol::kLl, 3.47, 0.66, 10.2},
    CallPrices{kNccl, Collective::kBroadcast, "ring", Protocol::kLl128, 4.79, 0.71, 216.4},
    CallPrices{kNccl, Collective::kBroadcast, "ring", Protocol::kSimple, 11.39, 3.22, 355.2},
    CallPrices{kTutti, Collective::kReduce, "direct", Protocol::kLl, 3.11, 0.66, 104.4},
    CallPrices{kTutti, Collective::kReduce, "ring", Protocol::kLl128, 2.09, 0.72, 170.3},
    CallPrices{kTutti, Collective::kReduce, "ring", Protocol::kSimple, 0.00, 8.78, 315.3},
    CallPrices{kNccl, Collective::kReduce, "ring", Protocol::kLl, 3.21, 0.66, 6.2},
    CallPrices{kNccl, Collective::kReduce, "ring", Protocol::kLl128, 4.24, 0.66, 224.6},
    CallPrices{kNccl, Collective::kReduce, "ring", Protocol::kSimple, 6.49, 4.09, 355.9},
    CallPrices{kTutti, Collective::kAllToAll, "direct", Protocol::kLl, 3.92, 0.66, 4.8},
    CallPrices{kTutti, Collective::kAllToAll, "direct", Protocol::kLl128, 4.61, 0.66, 126.2},
    CallPrices{kTutti, Collective::kAllToAll, "direct", Protocol::kSimple, 10.03, 0.66, 322.7},
    CallPrices{kNccl, Collective::kAllToAll, "direct", Protocol::kLl, 5.97, 0.66, 92.9},
    CallPrices{kNccl, Collective::kAllToAll, "direct", Protocol::kLl128, 9.59, 0.66, 238.6},
    CallPrices{kNccl, Collective::kAllToAll, "direct", Protocol::kSimple, 33.65, 0.66, 327.7},
    CallPrices{kTutti, Collective::kSend, "direct", Protocol::kLl, 5.98, 0.66, 21.4},
    CallPrices{kTutti, Collective::kSend, "direct", Protocol::kLl128, 6.31, 0.66, 288.0},
    CallPrices{kTutti, Collective::kSend, "direct", Protocol::kSimple, 10.17, 0.66, 351.9},
    CallPrices{kNccl, Collective::kSend, "direct", Protocol::kLl, 5.85, 0.66, 47.0},
    CallPrices{kNccl, Collective::kSend, "direct", Protocol::kLl128, 9.20, 0.66, 219.2},
    CallPrices{kNccl, Collective::kSend, "direct", Protocol::kSimple, 190.27, 0.66, 381.4},
};
// clang-format on

const CallPrices* find(System system, Collective collective, std::string_view algorithm,
                       Protocol protocol) {
  const auto* found = std::ranges::find_if(kGpuPrices, [&](const CallPrices& row) {
    return row.system == system && row.collective == collective && row.protocol == protocol &&
           (algorithm.empty() || row.algorithm == algorithm);
  });
  return found == kGpuPrices.end() ? nullptr : found;
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

std::string_view nameOf(System system) { return system == kTutti ? "tutti" : "nccl"; }
std::string_view nameOf(Launch launch) { return launch == Launch::kEager ? "eager" : "graph"; }

std::span<const CallPrices> gpuPrices() { return kGpuPrices; }

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

// From the same fit: calls of up to 64 KB, one at a time, against graphs.
LaunchCost launchCost(System system, Launch launch) {
  if (launch == Launch::kGraph) return {};
  return system == kTutti ? LaunchCost{.moreUs = 1.2} : LaunchCost{.moreUs = 1.0, .leastUs = 10.4};
}

double networkHopUs(bool hasGpus, Protocol protocol) {
  if (!hasGpus) return 20;  // TCP between hosts
  switch (protocol) {
    case Protocol::kLl: return 3;
    case Protocol::kLl128: return 4;
    case Protocol::kSimple: return 8;
  }
  return 8;
}

// Roughly those of docs/results/2026-11-22-peers.md (2 ranks, 8 bytes, 0.45 us; 2 cores of a Xeon).
CallPrices cpuPrices(Collective collective, std::string_view algorithm) {
  return {.system = kTutti,
          .collective = collective,
          .algorithm = algorithm,
          .protocol = Protocol::kSimple,
          .fixedUs = 0.1,
          .hopUs = 0.35,
          .gbPerSecond = 5};
}

}  // namespace tutti::sim
