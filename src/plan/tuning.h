// What is known of each kind of device, with where it is from: as plain values, and as the text
// file in which the project keeps its own (device_constants.txt), `tutti tune` writes what it
// measured and later runs read it (TUTTI_TUNING_FILE). Pure, any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "graph/nccl_constants.h"
#include "plan/cost_model.h"

namespace tutti::plan {

// Where figures come from.
struct Origin {
  std::string machine{};
  std::string date{};
  std::string how{};  // the command
  bool operator==(const Origin&) const = default;
};

// Ranks on CPUs.
struct CpuConstants {
  Origin origin{};
  int32_t cpuCount = 1;  // that the ranks shared
  std::vector<CostPrices> prices{};

  // Of that kind of ranks; where those were not measured crowded, or only so, as they were. null:
  // not at all.
  const CostPrices* pricesOf(const schedule::Algorithm& algorithm, const RankKind& kind) const;
  bool operator==(const CpuConstants&) const = default;
};

// TCP between hosts of CPU ranks: what a call takes beside the prices of one host's processes.
struct SocketConstants {
  Origin origin{};
  CostTerms us{};  // of the network's terms; 0 elsewhere
  // At least what bytes between hosts take, where that was measured without a wire; 0: nothing.
  double wireGbPerSecond = 0;
  bool operator==(const SocketConstants&) const = default;
};

// Whose calls are timed, and how they are launched: one at a time on a stream, or in a graph.
enum class System : uint8_t { kTutti, kNccl };
std::string_view nameOf(System system);
enum class Launch : uint8_t { kEager, kGraph };
std::string_view nameOf(Launch launch);

// Prices of one algorithm with one protocol, as measured with so many ranks of a host.
struct CallPrices {
  System system = System::kTutti;
  Collective collective = Collective::kAllReduce;  // kSend: send and receive
  std::string_view algorithm = "";                 // static storage
  graph::Protocol protocol = graph::Protocol::kSimple;
  int32_t rankCount = 2;
  double fixedUs = 0;      // a call, replayed in a graph
  double hopUs = 0;        // a message that waits for the one before, inside a node
  double gbPerSecond = 0;  // data that a rank sends, all its channels together, inside a node
  // As far as that was measured, and what each further byte goes at: the price of a short call's
  // bytes says nothing of long ones. 0: no end.
  double uptoBytes = 0;
  double tailGbPerSecond = 0;

  // What so many bytes that a rank sends take it; never less for more.
  double bytesUs(double sentBytes) const;
  bool operator==(const CallPrices&) const = default;
};

struct LaunchCost {
  double moreUs = 0;   // than in a graph
  double leastUs = 0;  // the host cannot call more often
  double peerUs = 0;   // more of that for each further peer that a call sends to on its own
  bool operator==(const LaunchCost&) const = default;
};

struct GpuConstants {
  Origin origin{};
  std::array<LaunchCost, 2> eager{};  // by system
  std::vector<CallPrices> calls{};
  bool operator==(const GpuConstants&) const = default;
};

// What the simulator supposes where nothing was measured.
struct SimulatorConstants {
  Origin origin{};
  CallPrices cpuCall{};        // whatever is called
  double cpuNetworkHopUs = 0;  // more than the network's own latency
  std::array<double, graph::kProtocolCount> gpuNetworkHopUs{};  // the same, by protocol
  bool operator==(const SimulatorConstants&) const = default;
};

// A file has each kind of device once, or not at all.
struct Tuning {
  std::optional<CpuConstants> cpu{};
  std::optional<SocketConstants> sockets{};
  std::optional<GpuConstants> gpu{};
  std::optional<SimulatorConstants> simulator{};
  bool operator==(const Tuning&) const = default;
};

// Errors of the reader name source and line.
std::string writeTuning(const Tuning& tuning);
Result<Tuning> parseTuning(std::string_view text, const std::string& source);

}  // namespace tutti::plan
