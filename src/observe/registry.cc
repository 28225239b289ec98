#include "observe/registry.h"

#ifdef TUTTI_NVTX
#include "observe/nvtx/nvtx_ranges.h"
#endif

namespace tutti::observe {

bool hasCallRanges() {
#ifdef TUTTI_NVTX
  return true;
#else
  return false;
#endif
}

std::unique_ptr<CallRanges> openCallRanges() {
#ifdef TUTTI_NVTX
  return nvtx::openRanges();
#else
  return nullptr;
#endif
}

}  // namespace tutti::observe
