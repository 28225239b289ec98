// What a call's parts take: the constants behind every simulated time, each with where it comes
// from. Calibrated only on what this project measured (docs/results/2026-11-21-gpu-measured.csv, by
// scripts/sim_calibrate.py); what nobody measured here says so. Plain values, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "graph/nccl_constants.h"
#include "wire/types.h"

namespace tutti::sim {

// Whose calls are timed.
enum class System : uint8_t { kTutti, kNccl };
std::string_view nameOf(System system);

// How they are launched: one at a time on a stream, or replayed in a graph.
enum class Launch : uint8_t { kEager, kGraph };
std::string_view nameOf(Launch launch);

// Prices of one algorithm with one protocol.
struct CallPrices {
  System system = System::kTutti;
  Collective collective = Collective::kAllReduce;  // kSend: send and receive
  std::string_view algorithm = "";
  graph::Protocol protocol = graph::Protocol::kSimple;
  double fixedUs = 0;      // a call, replayed in a graph
  double hopUs = 0;        // a message that waits for the one before, inside a node
  double gbPerSecond = 0;  // data that a rank sends, all its channels together, inside a node
};
std::span<const CallPrices> gpuPrices();

// The row itself; else one of the collective and protocol; else one of all-reduce. Never none.
const CallPrices& pricesFor(System system, Collective collective, std::string_view algorithm,
                            graph::Protocol protocol);
// Whether the first of these would be found.
bool isPriced(System system, Collective collective, std::string_view algorithm,
              graph::Protocol protocol);

struct LaunchCost {
  double moreUs = 0;   // than in a graph
  double leastUs = 0;  // the host cannot call more often
};
LaunchCost launchCost(System system, Launch launch);

// A hop between nodes costs more than one inside: proxy, port and remote flag, beside what the
// network's own latencies are. Supposed, not measured by this project.
double networkHopUs(bool hasGpus, graph::Protocol protocol);
// What is left of a port's signalling rate for data after headers. Supposed.
inline constexpr double kNetworkShare = 0.97;

// CPU ranks, all protocols alike.
CallPrices cpuPrices(Collective collective, std::string_view algorithm);

}  // namespace tutti::sim
