// Reductions of one element type: compiled once for each, with TUTTI_ELEMENT naming it; of integers
// for both that have its width.
//
// Each for 2, 4 and 8 ranks at most, where a name has such a number: tuttiFoldLines2 … executes the
// schedules AllReduce/oneshot, ReduceScatter/direct and Reduce/direct; tuttiFoldTwoStages4 …
// AllReduce/twoshot and Reduce/twoshot; tuttiFoldWide2 …, tuttiFoldSlots2 and tuttiFoldApart4 …
// all of these; tuttiFoldTransfers those of two ranks.
#include "kernels/cuda/calls.cuh"
#include "kernels/cuda/fold_transfers.cuh"
#include "kernels/cuda/policies.cuh"

namespace tutti::kernels::cuda {
namespace {
using Policy = Folding<ElementOf<DataType::TUTTI_ELEMENT>>;
}  // namespace
}  // namespace tutti::kernels::cuda

TUTTI_LINE_KERNEL(tuttiFoldLines, 2, LineCall, tutti::kernels::cuda::Policy)
TUTTI_LINE_KERNEL(tuttiFoldLines, 4, LineCall, tutti::kernels::cuda::Policy)
TUTTI_LINE_KERNEL(tuttiFoldLines, 8, LineCall, tutti::kernels::cuda::Policy)
TUTTI_LINE_KERNEL(tuttiFoldTwoStages, 4, TwoStageCall, tutti::kernels::cuda::Policy)
TUTTI_LINE_KERNEL(tuttiFoldTwoStages, 8, TwoStageCall, tutti::kernels::cuda::Policy)

TUTTI_LINE_KERNEL(tuttiFoldWide, 2, WideCall, tutti::kernels::cuda::Policy)
TUTTI_LINE_KERNEL(tuttiFoldWide, 4, WideCall, tutti::kernels::cuda::Policy)
TUTTI_APART_KERNEL(tuttiFoldApart, 4, tutti::kernels::cuda::Policy)
TUTTI_APART_KERNEL(tuttiFoldApart, 8, tutti::kernels::cuda::Policy)

TUTTI_SLOT_KERNEL(tuttiFoldSlots, 2, tutti::kernels::cuda::Policy, false)

extern "C" __global__ void __launch_bounds__(tutti::kernels::cuda::kPumpThreads, 2)
    tuttiFoldTransfers(const __grid_constant__ tutti::wire::GpuTransfers transfers) {
  __shared__ tutti::kernels::cuda::FoldStep tables[2];
  __shared__ tutti::kernels::cuda::Pump pump;
  tutti::kernels::cuda::runFoldTransfers<tutti::kernels::cuda::Policy>(transfers, tables, pump);
}
