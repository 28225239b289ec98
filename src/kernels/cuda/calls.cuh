// The calls of a launch, one after the other.
#pragma once

#include "kernels/cuda/lines.cuh"
#include "kernels/cuda/slots.cuh"

namespace tutti::kernels::cuda {

// The barrier ends a call for the whole block: its epoch is stored, its lines are read.
template <typename Policy>
__device__ __forceinline__ void runLineCalls(const wire::GpuLaunch& launch) {
  for (int i = 0; i < launch.callCount; ++i) {
    const GpuCall& call = launch.calls[i];
    if (static_cast<int>(blockIdx.x) >= call.blocks) continue;
    if (i > 0) __syncthreads();
    LineCall<Policy> line(launch.view, call);
    if (!line.run()) return;
  }
}

template <typename Policy>
__device__ __forceinline__ void runSlotCalls(const wire::GpuLaunch& launch) {
  __shared__ SlotShared shared;
  for (int i = 0; i < launch.callCount; ++i) {
    const GpuCall& call = launch.calls[i];
    if (static_cast<int>(blockIdx.x) >= call.blocks) continue;
    if (i > 0) __syncthreads();
    SlotCall<Policy> slots(launch.view, call, shared);
    if (!slots.run()) return;
  }
}

}  // namespace tutti::kernels::cuda
