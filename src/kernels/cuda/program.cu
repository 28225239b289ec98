// The general executor: reductions of one element type, compiled once for each with TUTTI_ELEMENT
// naming it, and, without, what only moves bytes. In images of their own, which only communicators
// load that need them.
//
// tuttiFoldProgram and tuttiMoveProgram execute any schedule, tuttiProgramTransfers Send/direct and
// Recv/direct.
#include "kernels/cuda/program.cuh"

#ifdef TUTTI_ELEMENT

extern "C" __global__ void __launch_bounds__(tutti::kernels::cuda::kProgramThreads, 1)
    tuttiFoldProgram(const __grid_constant__ tutti::wire::GpuProgramLaunch launch) {
  using Element = tutti::kernels::cuda::ElementOf<tutti::DataType::TUTTI_ELEMENT>;
  __shared__ tutti::kernels::cuda::ProgramShared shared;
  tutti::kernels::cuda::runProgram<tutti::kernels::cuda::Folding<Element>>(launch, shared);
}

#else

extern "C" __global__ void __launch_bounds__(tutti::kernels::cuda::kProgramThreads, 2)
    tuttiMoveProgram(const __grid_constant__ tutti::wire::GpuProgramLaunch launch) {
  __shared__ tutti::kernels::cuda::ProgramShared shared;
  tutti::kernels::cuda::runProgram<tutti::kernels::cuda::Moving>(launch, shared);
}

extern "C" __global__ void __launch_bounds__(tutti::kernels::cuda::kProgramTransferThreads, 4)
    tuttiProgramTransfers(const __grid_constant__ tutti::wire::GpuProgramTransfers launch) {
  __shared__ tutti::kernels::cuda::ProgramShared shared;
  __shared__ tutti::kernels::cuda::TransferProgram program;
  tutti::kernels::cuda::runProgramTransfers(launch, shared, program);
}

#endif
