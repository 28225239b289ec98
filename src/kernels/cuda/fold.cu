// Reductions of one element type: compiled once for each, with TUTTI_ELEMENT naming it.
//
// tuttiFoldLines executes the schedules AllReduce/oneshot, ReduceScatter/direct and Reduce/direct;
// tuttiFoldSlots these and AllReduce/twoshot, Reduce/twoshot.
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

extern "C" __global__ void __launch_bounds__(512, 2)
    tuttiFoldSlots(const __grid_constant__ tutti::wire::GpuLaunch launch) {
  tutti::kernels::cuda::runSlotCalls<tutti::kernels::cuda::Policy>(launch);
}
