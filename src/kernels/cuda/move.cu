// What only moves bytes, of whatever type.
//
// tuttiMoveLines and tuttiMoveSlots2, 4, 8 execute the schedules AllGather/direct,
// AlltoAll/pairwise, Broadcast/direct, Gather/direct and Scatter/direct, the latter also
// Broadcast/twoshot; tuttiTransfers Send/direct and Recv/direct.
#include "kernels/cuda/calls.cuh"
#include "kernels/cuda/policies.cuh"
#include "kernels/cuda/transfers.cuh"

extern "C" __global__ void __launch_bounds__(512, 1)
    tuttiMoveLines(const __grid_constant__ tutti::wire::GpuLaunch launch) {
  tutti::kernels::cuda::runLineCalls<tutti::kernels::cuda::Moving>(launch);
}

TUTTI_SLOT_KERNEL(tuttiMoveSlots, 2, tutti::kernels::cuda::Moving)
TUTTI_SLOT_KERNEL(tuttiMoveSlots, 4, tutti::kernels::cuda::Moving)
TUTTI_SLOT_KERNEL(tuttiMoveSlots, 8, tutti::kernels::cuda::Moving)

extern "C" __global__ void __launch_bounds__(tutti::kernels::cuda::kPumpThreads, 3)
    tuttiTransfers(const __grid_constant__ tutti::wire::GpuTransfers transfers) {
  __shared__ tutti::kernels::cuda::TransferStep tables[2];
  tutti::kernels::cuda::runTransfers(transfers, tables);
}
