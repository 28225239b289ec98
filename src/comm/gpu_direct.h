// GPUDirect at start-up: whether network adapters reach the memory of this communicator's GPUs by
// themselves, which of them this rank's, and why not the others.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/settings.h"
#include "bootstrap/bootstrap.h"
#include "device/accelerator.h"
#include "net/gpu_memory.h"
#include "topology/paths.h"
#include "topology/topology.h"
#include "transport/transport.h"

namespace tutti::comm {

// What one rank finds out by itself.
struct GpuDirectView {
  std::vector<topology::PathKind> distances{};  // of each adapter from the GPU
  transport::GpuSlots slots{};
  std::string obstacle{};     // why no adapter may write to the GPU's memory; empty: some may
  std::string description{};  // "mlx5_0 (PIX); mlx5_5: SYS from the GPU, ..."
};

struct GpuDirectRules {
  std::optional<topology::PathKind> level{};  // NCCL_NET_GDR_LEVEL
  bool overC2c = true;                        // NCCL_NET_GDR_C2C
  int64_t read = -1;                          // NCCL_NET_GDR_READ
  bool usesDmaBuffers = true;                 // NCCL_DMABUF_ENABLE
};
GpuDirectRules gpuDirectRulesOf(const Settings& settings);

// Where the GPU sits; null, or kNoNode: not known.
struct GpuPlace {
  const topology::Topology* machine = nullptr;
  topology::NodeId gpu = topology::kNoNode;
};
// Pure. Adapters by which the network reaches no GPU come with that as their reason.
GpuDirectView judgeGpuDirect(std::span<const net::Adapter> adapters, const GpuPlace& place,
                             const GpuDirectRules& rules);

// What all ranks know of it.
struct GpuDirectAgreement {
  bool isUsed = false;
  bool foldsOnGpu = false;  // all ranks' libraries have the kernels
  uint64_t fromBytes = 0;   // TUTTI_GDR_FROM_BYTES, the largest
  std::string reason{};     // why not
};
// Collective among the ranks.
Result<GpuDirectAgreement> agreeOnGpuDirect(bootstrap::Bootstrap& bootstrap,
                                            const GpuDirectView& own, uint64_t fromBytes);

}  // namespace tutti::comm
