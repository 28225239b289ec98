// What each algorithm and protocol of the reference system costs on given graphs, as latency and
// bandwidth by collective: the table from which a choice is made, and the choice. Pure, any thread.
//
// This is the *choice* model of NCCL ("what would be picked"), built from published facts; it is no
// model of time.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "graph/graph.h"
#include "graph/name_filter.h"
#include "graph/nccl_constants.h"
#include "wire/types.h"

namespace tutti::graph {

std::string_view nameOf(Method method);
std::string_view nameOf(Protocol protocol);

// The graphs of the whole communicator, aligned over its nodes. No channel: there is none.
struct ClusterGraphs {
  GraphSummary ring{};
  GraphSummary tree{};
  GraphSummary chain{};     // CollNet chain
  GraphSummary direct{};    // CollNet direct
  GraphSummary switched{};  // NVLS
  int32_t rankCount = 1;
  int32_t nodeCount = 1;
  int32_t mostRanksPerNode = 1;
  int32_t smVersion = 0;         // of the oldest GPU, 90 is 9.0
  double networkOverheadUs = 1;  // of a message on the CPU: 1 on Intel, 2 on AMD
};

struct MethodCost {
  double latencyUs = 0;
  double gbPerSecond = 0;  // of the algorithm; 0: cannot be used
};

class CostTable {
 public:
  MethodCost& at(Collective collective, Method method, Protocol protocol) {
    return costs_[static_cast<size_t>(collective)][static_cast<size_t>(method)]
                 [static_cast<size_t>(protocol)];
  }
  const MethodCost& at(Collective collective, Method method, Protocol protocol) const {
    return costs_[static_cast<size_t>(collective)][static_cast<size_t>(method)]
                 [static_cast<size_t>(protocol)];
  }

 private:
  std::array<std::array<std::array<MethodCost, kProtocolCount>, kMethodCount>, kCollectiveCount>
      costs_{};
};

// The latencies and bandwidths of all combinations, allowed by settings or not.
CostTable makeCostTable(const ClusterGraphs& graphs, const NcclConstants& constants);

struct Limits {
  NameFilter methods{};      // NCCL_ALGO
  NameFilter protocols{};    // NCCL_PROTO
  int32_t minChannels = 1;   // NCCL_MIN_CTAS
  int32_t maxChannels = 64;  // NCCL_MAX_CTAS
};

struct MethodChoice {
  Method method = Method::kRing;
  Protocol protocol = Protocol::kSimple;
  int32_t channelCount = 1;
  double timeUs = 0;
};

class MethodChooser {
 public:
  MethodChooser(const ClusterGraphs& graphs, const NcclConstants& constants, const Limits& limits);

  // The cheapest. `operations` are launched together. kInvalidUsage when NCCL_ALGO and NCCL_PROTO
  // leave nothing for the collective, or when it has none of these algorithms (all-to-all, ...).
  // Allocates nothing when there is a choice.
  Result<MethodChoice> choose(Collective collective, uint64_t bytes, int32_t operations = 1) const;
  // All that can be used, the cheapest first.
  std::vector<MethodChoice> rank(Collective collective, uint64_t bytes) const;
  // The sizes, in powers of two from 64 bytes to 16 GiB, from which another choice holds.
  std::vector<std::pair<uint64_t, MethodChoice>> switches(Collective collective) const;

  const CostTable& table() const { return table_; }
  const ClusterGraphs& graphs() const { return graphs_; }

 private:
  struct Candidate {
    Method method;
    Protocol protocol;
    MethodCost cost;
  };
  double timeUs(Collective collective, const Candidate& candidate, uint64_t bytes,
                int32_t operations) const;
  MethodChoice finish(Collective collective, const Candidate& candidate, uint64_t bytes,
                      int32_t operations) const;

  ClusterGraphs graphs_;
  const NcclConstants& constants_;  // one of the library's sets
  int32_t minChannels_;
  CostTable table_;
  // What the settings allow, so that a choice looks at nothing else.
  std::array<std::vector<Candidate>, kCollectiveCount> candidates_;
};

// The table as text, for `tutti explain`.
std::string describe(const CostTable& table);

}  // namespace tutti::graph
