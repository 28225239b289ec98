// For tests that read memory through the kernel.
#pragma once

#include <unistd.h>

#include "kernels/remote_memory.h"

namespace tutti::kernels {

// False where the kernel forbids it, and under an emulator that does not pass it on.
inline bool readsThroughKernel() {
  const uint64_t word = 20261123;
  return canReadProcess(::getpid(), &word, word);
}

inline constexpr const char* kNotThroughKernel = "no process may read another's memory here";

}  // namespace tutti::kernels
