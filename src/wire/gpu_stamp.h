// What the host tells a GPU that is to note when it comes to a point of a stream: the parameter of
// the kernel tuttiStamp in kernels/cuda/step.cu.
#pragma once

#include <cstdint>

namespace tutti::wire {

struct GpuStamp {
  // In pinned memory: becomes the GPU's global timer, in nanoseconds, which is never 0. One store
  // that publishes nothing else, so without a fence; the host reads relaxed. Null: nothing is done.
  uint64_t* word = nullptr;
};

}  // namespace tutti::wire
