// Whether this process reads others' memory through the kernel: TUTTI_PROCESS_READ, or by itself
// where that is fast.
#pragma once

#include "base/settings.h"
#include "kernels/remote_memory.h"

namespace tutti::comm {

inline bool readsByKernel(const Settings& settings) {
  const int64_t wanted = settings.integer("TUTTI_PROCESS_READ");
  return wanted == 1 || (wanted != 0 && kernels::doesReadFast());
}

}  // namespace tutti::comm
