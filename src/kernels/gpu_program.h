// Calls that no kernel of the catalogue (gpu_catalog.h) takes: of more ranks than those know, or by
// an algorithm that somebody has asked for. The general kernel runs the proved schedule's program
// (wire/gpu_program.h). Pure, so that all ranks decide alike; nothing here needs CUDA.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "kernels/gpu_catalog.h"
#include "schedule/catalog.h"
#include "wire/gpu_program.h"

namespace tutti::kernels::cuda {

// One that a call could take.
struct GpuProgramWay {
  const schedule::Algorithm* algorithm = nullptr;
  wire::GpuMessages messages = wire::GpuMessages::kSlots;
  int32_t blocks = 1;
  double us = 0;          // estimated
  bool foldsOnce = true;  // all contributions in one step, if it folds any: one rounding
};

// All, each algorithm with the messages that the call's length allows: first those that fold once,
// whose results are the same by any of them, each kind the cheapest first; empty for more than
// kGpuProgramRanks ranks, sends and receives.
std::vector<GpuProgramWay> programWays(const GpuRequest& request);

// What the way decides; the caller adds view, buffers, scalar and signature.
struct GpuProgramPlace {
  Rank rank{0};
  Rank root{0};  // of a call that has one
};
void fillProgram(const GpuRequest& request, const GpuProgramWay& way, const GpuProgramPlace& place,
                 wire::GpuProgramLaunch& launch);

// Kernel and image; what is per call as the way says.
GpuChoice programKernel(const GpuRequest& request, const GpuProgramWay& way);

// How many ranks of a communicator a GPU can hold, where each may send to and receive from every
// other at once.
int32_t mostSharers(int32_t rankCount, int32_t multiprocessors);

// Sends and receives of such communicators: blocks of one, of which a rank may have one to and one
// from every other at once, and their kernel.
int32_t programTransferBlocks(const GpuRequest& request, uint64_t bytes);
GpuChoice programTransferKernel();

}  // namespace tutti::kernels::cuda
