// What this library does with a call on GPU ranks of one host, which talk to each other directly
// and need no rings: the kernel, and how long it takes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "topology/paths.h"
#include "topology/topology.h"
#include "wire/types.h"

namespace tutti::tools {

struct OwnGpuWay {
  std::string_view algorithm;  // the schedule's name
  std::string_view protocol;   // "lines" or "slots"
  std::string_view kernel;
  int32_t blocks = 0;
  int32_t threads = 0;
  bool takesEngines = false;  // copy engines instead, where the output is in a symmetric window
  double us = 0;  // a call of its own, launch included, by sim/time_constants.h; 0: not known
};

struct GpuCall {
  Collective collective = Collective::kAllReduce;
  uint64_t bytes = 0;  // of the whole vector, taken as floats
  int32_t rankCount = 1;
  int32_t maxBlocks = 0;        // NCCL_MAX_CTAS; 0: as the library's own
  int32_t minBlocks = 0;        // NCCL_MIN_CTAS; the same
  bool prefersEngines = false;  // NCCL_CTA_POLICY, as the next
  bool savesBlocks = false;
  std::optional<topology::PathKind> peerLevel{};  // NCCL_P2P_LEVEL
};

// The pair that keeps kernels from reaching all memory, as the machine has it; empty: there is
// none.
std::string pairOutOfReach(const GpuCall& call, const topology::Topology& machine);

// None where no kernel takes so many ranks, or they do not reach each other's memory. Times are
// known of GPUs on an NVLink switch only, and of H200s at that.
std::optional<OwnGpuWay> ownGpuWay(const GpuCall& call, const topology::Topology& machine);

}  // namespace tutti::tools
