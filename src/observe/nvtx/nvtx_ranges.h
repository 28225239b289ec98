// Call ranges by NVTX3: Nsight Systems and other tools that NVTX_INJECTION64_PATH names.
#pragma once

#include <memory>

#include "observe/call_ranges.h"

namespace tutti::observe::nvtx {

// Null: no tool is attached. A program with more rights than its user's (set-user-id) has none: the
// environment would name a library to load.
std::unique_ptr<CallRanges> openRanges();

}  // namespace tutti::observe::nvtx
