// What the choices for collectives (catalog.cc) and for transfers (transfer_shapes.cc) share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/cuda/catalog.h"

namespace tutti::kernels::cuda {

// A kernel that starts before its turn holds multiprocessors while it waits: small ones only, and
// none where ranks share a GPU.
inline constexpr int32_t kEarlyBlocks = 16;

inline bool folds(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter ||
         collective == Collective::kReduce;
}

inline int32_t blockLimit(const GpuRequest& request) {
  return std::clamp(std::min(residentBlocks(request, 1), request.maxBlocks), 1,
                    wire::kGpuMaxBlocks);
}

// Blocks that share the call, which is cut between `units`: as many as pay, or more where those are
// asked for, but none without a unit.
int32_t blocksFor(const GpuRequest& request, uint64_t wanted, uint64_t units, int32_t most);

// The longest message from one rank to another, unless the call is cut up.
inline size_t messageBytes(const GpuRequest& request) {
  return static_cast<size_t>(request.count) * sizeOf(request.type);
}

// How a collective's messages go.
enum class Way : uint8_t { kLines, kStages, kWide, kSlots };

Way wayOf(const GpuRequest& request);
wire::GpuAlgorithm shapeOf(const GpuRequest& request, Way way);
std::string_view scheduleName(Collective collective, wire::GpuAlgorithm shape);

}  // namespace tutti::kernels::cuda
