// What only moves bytes, of whatever type.
//
// Each for 2, 4 and 8 ranks at most: tuttiMoveLines2 … and tuttiMoveSlots2 … execute the schedules
// AllGather/direct, AlltoAll/pairwise, Broadcast/direct, Gather/direct and Scatter/direct, the
// latter also Broadcast/twoshot, as does tuttiMoveTwoStages4 …; tuttiTransfers Send/direct and
// Recv/direct.
#include "kernels/cuda/calls.cuh"
#include "kernels/cuda/policies.cuh"
#include "kernels/cuda/transfers.cuh"

TUTTI_LINE_KERNEL(tuttiMoveLines, 2, LineCall, tutti::kernels::cuda::Moving)
TUTTI_LINE_KERNEL(tuttiMoveLines, 4, LineCall, tutti::kernels::cuda::Moving)
TUTTI_LINE_KERNEL(tuttiMoveLines, 8, LineCall, tutti::kernels::cuda::Moving)
TUTTI_LINE_KERNEL(tuttiMoveTwoStages, 4, TwoStageCall, tutti::kernels::cuda::Moving)
TUTTI_LINE_KERNEL(tuttiMoveTwoStages, 8, TwoStageCall, tutti::kernels::cuda::Moving)

TUTTI_SLOT_KERNEL(tuttiMoveSlots, 2, tutti::kernels::cuda::Moving, false)
TUTTI_SLOT_KERNEL(tuttiMoveSlots, 4, tutti::kernels::cuda::Moving, false)
TUTTI_SLOT_KERNEL(tuttiMoveSlots, 8, tutti::kernels::cuda::Moving, false)
TUTTI_SLOT_KERNEL(tuttiMoveSharing, 2, tutti::kernels::cuda::Moving, true)
TUTTI_SLOT_KERNEL(tuttiMoveSharing, 4, tutti::kernels::cuda::Moving, true)
TUTTI_SLOT_KERNEL(tuttiMoveSharing, 8, tutti::kernels::cuda::Moving, true)

extern "C" __global__ void __launch_bounds__(tutti::kernels::cuda::kPumpThreads, 3)
    tuttiTransfers(const __grid_constant__ tutti::wire::GpuTransfers transfers) {
  __shared__ tutti::kernels::cuda::TransferStep tables[2];
  tutti::kernels::cuda::runTransfers(transfers, tables);
}
