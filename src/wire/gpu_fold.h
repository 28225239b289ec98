// What the host tells a GPU of one fold: the parameter of the kernels in kernels/cuda/step.cu.
#pragma once

#include <cstdint>

#include "wire/types.h"

namespace tutti::wire {

inline constexpr int32_t kGpuFoldOperands = 240;  // sources, and destinations, at most

// As kernels::FoldArgs, without a source that is scaled. All memory is the GPU's, or pinned.
struct GpuFold {
  uint64_t elementCount;
  ReduceOp op;
  int32_t divisor;  // of the result; 0: it is not divided
  int32_t sourceCount;
  int32_t destinationCount;
  const void* sources[kGpuFoldOperands];
  void* destinations[kGpuFoldOperands];
};
static_assert(sizeof(GpuFold) < 4096);  // a kernel's parameters

}  // namespace tutti::wire
