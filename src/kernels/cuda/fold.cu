// Reductions of one element type: compiled once for each, with TUTTI_ELEMENT naming it.
//
// tuttiFoldLines executes the schedules AllReduce/oneshot, ReduceScatter/direct and Reduce/direct;
// tuttiFoldSlots2, 4 and 8 (ranks at most) these and AllReduce/twoshot, Reduce/twoshot.
#include "kernels/cuda/calls.cuh"
#include "kernels/cuda/policies.cuh"

namespace tutti::kernels::cuda {
namespace {
using Policy = Folding<ElementOf<DataType::TUTTI_ELEMENT>>;
}  // namespace
}  // namespace tutti::kernels::cuda

extern "C" __global__ void __launch_bounds__(512, 1)
    tuttiFoldLines(const __grid_constant__ tutti::wire::GpuLaunch launch) {
  tutti::kernels::cuda::runLineCalls<tutti::kernels::cuda::Policy>(launch);
}

TUTTI_SLOT_KERNEL(tuttiFoldSlots, 2, tutti::kernels::cuda::Policy)
TUTTI_SLOT_KERNEL(tuttiFoldSlots, 4, tutti::kernels::cuda::Policy)
TUTTI_SLOT_KERNEL(tuttiFoldSlots, 8, tutti::kernels::cuda::Policy)
