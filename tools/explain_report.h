// What `tutti explain` says: gathered from the planner, the catalogue and the prover, then printed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/processor.h"
#include "base/status.h"
#include "plan/plan.h"
#include "schedule/catalog.h"
#include "schedule/prover.h"
#include "tools/explain_mapped.h"

namespace tutti::tools {

// Proving takes time and memory by the square of the ranks.
inline constexpr int32_t kMostRanksProved = 256;

struct ExplainedCall {
  Collective collective = Collective::kAllReduce;
  int32_t rankCount = 1;
  uint64_t bytes = 0;         // of the whole vector; rounded up to whole floats a block
  Rank root{0};               // of a send or receive: the receiver, the rank after it sends
  Rank rank{0};               // whose program is shown
  size_t bufferBytes = 0;     // NCCL_BUFFSIZE
  std::string algorithms;     // NCCL_ALGO
  int32_t cpuCount = 1;       // that the ranks of a host share
  int32_t hostCount = 1;      // each with the next few ranks
  bool readsByKernel = true;  // processes of a host
  bool readsFastByKernel = true;
  ProcessorKind processor = ProcessorKind::kOther;
  std::string network = {};               // between hosts; empty: one host
  plan::NetworkReduction inNetwork = {};  // what reduces there
  plan::Relays relays = plan::Relays::kByPrice;
  plan::Overlap overlap = plan::Overlap::kWithCpus;
  std::shared_ptr<const plan::Tuning> tuning = {};  // as plan::Agreement's
};

// An algorithm's figures for the call.
struct AlgorithmFacts {
  const schedule::Algorithm* algorithm = nullptr;
  schedule::Cost cost;   // one piece
  double sentBytes = 0;  // by the rank that sends most
  double receivedBytes = 0;
  double threadsUs = 0;  // as predicted; 0 where there is no choice, so no prices, and on hosts
  double processesUs = 0;
  bool isChosen = false;
};

struct Explanation {
  ExplainedCall call;
  uint64_t count = 0;                      // floats a block
  plan::Plan plan;                         // where ranks can read each other's memory; of several
                                           // hosts the same as slotPlan
  plan::Plan slotPlan;                     // where they cannot
  MappedFacts mapped;                      // of slotPlan, with buffers of ncclMemAlloc
  std::string_view mappedOther;            // tried beside it there; empty: nothing
  std::vector<plan::Switch> switches;      // where another algorithm is taken
  std::vector<plan::Switch> slotSwitches;  // the same where they cannot
  std::vector<AlgorithmFacts> algorithms;
  uint32_t slotCount = 0;
  bool isProved = false;         // tried at all; not above kMostRanksProved
  std::string refusal;           // of the prover
  schedule::ProofReport report;  // one piece
};

// kInvalidUsage when NCCL_ALGO leaves no algorithm. REQUIRES: root and rank below rankCount,
// hostCount not above it.
Result<Explanation> explainCall(const ExplainedCall& call);

void printText(const Explanation& explanation);
void printJson(const Explanation& explanation);

// What the planner takes for these numbers of ranks on so many CPUs, all collectives.
struct ExplainedTable {
  std::vector<int32_t> rankCounts{};
  int32_t cpuCount = 1;
  bool readsByKernel = true;  // processes of a host
  bool readsFastByKernel = true;
  ProcessorKind processor = ProcessorKind::kOther;
  std::shared_ptr<const plan::Tuning> tuning{};  // as plan::Agreement's
  bool json = false;
};
void printTable(const ExplainedTable& table);

}  // namespace tutti::tools
