// What only moves bytes, of whatever type.
//
// Each for 2, 4 and 8 ranks at most, where a name has such a number: tuttiMoveLines2 … and
// tuttiMoveSlots2 execute the schedules AllGather/direct, AlltoAll/pairwise, Broadcast/direct,
// Gather/direct and Scatter/direct; tuttiMoveWide2 …, tuttiMoveApart4 … and tuttiMoveSharing4 …
// these and Broadcast/twoshot, which tuttiMoveTwoStages4 … executes; tuttiTransfers Send/direct and
// Recv/direct.
#include "kernels/cuda/calls.cuh"
#include "kernels/cuda/policies.cuh"
#include "kernels/cuda/transfers.cuh"

TUTTI_LINE_KERNEL(tuttiMoveLines, 2, LineCall, tutti::kernels::cuda::Moving)
TUTTI_LINE_KERNEL(tuttiMoveLines, 4, LineCall, tutti::kernels::cuda::Moving)
TUTTI_LINE_KERNEL(tuttiMoveLines, 8, LineCall, tutti::kernels::cuda::Moving)
TUTTI_LINE_KERNEL(tuttiMoveTwoStages, 4, TwoStageCall, tutti::kernels::cuda::Moving)
TUTTI_LINE_KERNEL(tuttiMoveTwoStages, 8, TwoStageCall, tutti::kernels::cuda::Moving)

TUTTI_LINE_KERNEL(tuttiMoveWide, 2, WideCall, tutti::kernels::cuda::Moving)
TUTTI_LINE_KERNEL(tuttiMoveWide, 4, WideCall, tutti::kernels::cuda::Moving)
TUTTI_APART_KERNEL(tuttiMoveApart, 4, tutti::kernels::cuda::Moving)
TUTTI_APART_KERNEL(tuttiMoveApart, 8, tutti::kernels::cuda::Moving)

TUTTI_SLOT_KERNEL(tuttiMoveSlots, 2, tutti::kernels::cuda::Moving, false)
TUTTI_SLOT_KERNEL(tuttiMoveSharing, 2, tutti::kernels::cuda::Moving, true)
TUTTI_SLOT_KERNEL(tuttiMoveSharing, 4, tutti::kernels::cuda::Moving, true)
TUTTI_SLOT_KERNEL(tuttiMoveSharing, 8, tutti::kernels::cuda::Moving, true)

extern "C" __global__ void __launch_bounds__(tutti::kernels::cuda::kPumpThreads, 3)
    tuttiTransfers(const __grid_constant__ tutti::wire::GpuTransfers transfers) {
  __shared__ tutti::kernels::cuda::TransferStep tables[2];
  __shared__ tutti::kernels::cuda::Pump pump;
  tutti::kernels::cuda::runTransfers(transfers, tables, pump);
}
