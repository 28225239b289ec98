// Whether this process reads others' memory through the kernel, by TUTTI_PROCESS_READ: where a call
// finds that faster than copies, or where it is fast, by itself.
#pragma once

#include "base/settings.h"
#include "kernels/remote_memory.h"

namespace tutti::comm {

inline bool readsByKernel(const Settings& settings) {
  return settings.integer("TUTTI_PROCESS_READ") != 0;
}
inline bool readsFastByKernel(const Settings& settings) {
  const int64_t wanted = settings.integer("TUTTI_PROCESS_READ");
  return wanted == 1 || (wanted != 0 && kernels::doesReadFast());
}

}  // namespace tutti::comm
