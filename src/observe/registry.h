// Where tools that watch a program come in.
#pragma once

#include <memory>

#include "observe/call_ranges.h"

namespace tutti::observe {

// Whether this build has ranges: the headers of NVTX3 were there.
bool hasCallRanges();

// Null: no tool listens, or this build has no ranges.
std::unique_ptr<CallRanges> openCallRanges();

}  // namespace tutti::observe
