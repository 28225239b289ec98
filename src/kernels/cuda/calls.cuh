// The calls of a launch: in each block one after the other.
#pragma once

#include "kernels/cuda/apart.cuh"
#include "kernels/cuda/lines.cuh"
#include "kernels/cuda/slots.cuh"
#include "kernels/cuda/two_stages.cuh"
#include "kernels/cuda/wide_lines.cuh"

namespace tutti::kernels::cuda {

// The barrier ends a call for the whole block: its epoch is stored, its lines are read.
// Call is LineCall or TwoStageCall.
template <typename Call>
__device__ __forceinline__ void runLineCalls(const wire::GpuLaunch& launch) {
  awaitStream();
  for (int i = 0; i < launch.callCount; ++i) {
    const GpuCall& call = launch.calls[i];
    const int block = static_cast<int>(blockIdx.x) - call.firstBlock;
    if (block < 0 || block >= call.blocks) continue;
    if (i > 0) __syncthreads();
    if (!Call(launch.view, call).run()) return;
  }
}

template <int kMost, typename Policy, bool kShares>
__device__ __forceinline__ void runSlotCalls(const wire::GpuLaunch& launch) {
  __shared__ SlotShared shared;
  for (int i = 0; i < launch.callCount; ++i) {
    const GpuCall& call = launch.calls[i];
    if (static_cast<int>(blockIdx.x) >= call.blocks) continue;
    if (i > 0) __syncthreads();
    if (!runSlotCall<kMost, Policy, kShares>(launch, call, shared)) return;
  }
}

// For up to 2, 4 and 8 ranks: what is done for each peer is unrolled.
#define TUTTI_LINE_KERNEL(name, most, call, policy)                                       \
  extern "C" __global__ void __launch_bounds__(tutti::kernels::cuda::kLineThreads, 1)     \
      name##most(const __grid_constant__ tutti::wire::GpuLaunch launch) {                 \
    tutti::kernels::cuda::runLineCalls<tutti::kernels::cuda::call<most, policy>>(launch); \
  }

// `shares`: for calls with a reach.
#define TUTTI_SLOT_KERNEL(name, most, policy, shares)                                 \
  extern "C" __global__ void __launch_bounds__(tutti::kernels::cuda::kSlotThreads, 1) \
      name##most(const __grid_constant__ tutti::wire::GpuLaunch launch) {             \
    tutti::kernels::cuda::runSlotCalls<most, policy, shares>(launch);                 \
  }

}  // namespace tutti::kernels::cuda
