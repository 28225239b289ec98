// NCCL_CHECK_POINTERS on CPU ranks: buffers that no call can rightly have are refused before the
// call begins.
#pragma once

#include "base/status.h"
#include "comm/communicator.h"
#include "launch/call.h"

namespace tutti::api {

// kInvalidArgument names the buffer and what is wrong: not aligned to the type, no memory there,
// not to be read, not to be written, or partly shared with the other buffer. Memory that was freed
// and that the program still holds looks like any other. REQUIRES: the communicator is ready; the
// call's other arguments are right.
Status checkBuffers(const launch::Call& call, const comm::Communicator& communicator);

}  // namespace tutti::api
