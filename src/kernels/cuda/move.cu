// What only moves bytes, of whatever type.
//
// tuttiMoveLines and tuttiMoveSlots execute the schedules AllGather/direct, AlltoAll/pairwise,
// Broadcast/direct, Gather/direct and Scatter/direct, tuttiMoveSlots also Broadcast/twoshot;
// tuttiTransfers Send/direct and Recv/direct.
#include "kernels/cuda/calls.cuh"
#include "kernels/cuda/policies.cuh"
#include "kernels/cuda/transfers.cuh"

extern "C" __global__ void __launch_bounds__(512, 1)
    tuttiMoveLines(const __grid_constant__ tutti::wire::GpuLaunch launch) {
  tutti::kernels::cuda::runLineCalls<tutti::kernels::cuda::Moving>(launch);
}

extern "C" __global__ void __launch_bounds__(512, 2)
    tuttiMoveSlots(const __grid_constant__ tutti::wire::GpuLaunch launch) {
  tutti::kernels::cuda::runSlotCalls<tutti::kernels::cuda::Moving>(launch);
}

extern "C" __global__ void __launch_bounds__(512, 2)
    tuttiTransfers(const __grid_constant__ tutti::wire::GpuTransfers transfers) {
  tutti::kernels::cuda::runTransfers(transfers);
}
