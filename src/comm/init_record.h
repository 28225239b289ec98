// What each rank of a new communicator tells all others (agree.cc).
#pragma once

#include <array>
#include <cstdint>

#include "base/processor.h"
#include "bootstrap/peer_info.h"
#include "comm/crowding.h"
#include "comm/reduction.h"
#include "plan/plan.h"
#include "wire/link.h"

namespace tutti::comm {

// Why GPU ranks are not to use each other's memory.
enum class Avoidance : int32_t { kNo, kBySetting, kWithoutKernels };

// Its part of the one all-gather of start-up.
struct InitRecord {
  bootstrap::PeerInfo peer;
  wire::LinkGeometry geometry;
  uint64_t algorithmsHash = 0;         // of NCCL_ALGO
  std::array<char, 128> algorithms{};  // its beginning, zero-terminated, for messages
  std::array<char, 64> protocols{};    // NCCL_PROTO, the same way
  uint64_t tuningHash = 0;             // of the tuning file; 0: none
  uint64_t gpuHash = 0;                // of the GPU and its host; 0: a CPU rank
  int32_t maxBlocks = 0;
  int32_t minBlocks = 0;
  int32_t prefersEngines = 0;
  int32_t savesBlocks = 0;
  int32_t adaptsBlocks = 0;
  Avoidance avoidsPeers{};
  int32_t peerLevel = -1;           // NCCL_P2P_LEVEL, as a topology::PathKind; -1: not set
  uint64_t stagingBytes = 0;        // proposed, for GPU ranks that cannot
  int32_t wantsMachine = 0;         // somebody wants to see the host's topology
  int32_t cpuNode = -1;             // that the rank is bound to; -1: none
  std::array<char, 24> gpuBusId{};  // zero-terminated; empty for a CPU rank
  int32_t multiprocessors = 0;
  int32_t hasBulk = 0;        // kernels::cuda::canBulk()
  int32_t isEncrypted = 0;    // TUTTI_SECURE=encrypt
  int32_t checksNetwork = 0;  // TUTTI_NET_CHECKSUM
  uint64_t idsHash = 0;       // of the ids given to ncclCommInitRankScalable
  CpuMask cpus{};             // where the thread may run
  uint64_t machineHash = 0;   // Process::machineHash()
  uint64_t probeAddress = 0;  // a word of this process ...
  uint64_t probeValue = 0;    // ... that holds this: who reads it there may read references
  ReductionOffer reduction;
  plan::Relays relays{};    // of which the least holds
  plan::Overlap overlap{};  // the same; TUTTI_NET_OVERLAP
  ProcessorKind processor = ProcessorKind::kOther;
};

}  // namespace tutti::comm
