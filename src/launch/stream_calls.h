// What calls of GPU ranks are checked for before they go onto a stream.
#pragma once

#include <span>

#include "base/ids.h"
#include "base/status.h"
#include "device/accelerator.h"
#include "launch/call.h"

namespace tutti::launch {

// Sends and receives of a rank with itself pair up, with equal sizes.
Status checkSelfTransfers(std::span<const StreamCall> calls, Rank self);

// Of all streams of the group: they are captured into one graph, or none is. An error where that
// capture is broken.
Result<device::Capture> captureOf(std::span<const StreamCall> calls,
                                  device::Accelerator& accelerator, Rank self);

// The capture has broken meanwhile, thus nothing of it will ever run.
bool hasBroken(const device::Capture& capture, void* stream, device::Accelerator& accelerator);

// Every buffer is memory that a GPU can address (NCCL_CHECK_POINTERS).
Status checkBuffers(std::span<const StreamCall> calls, device::Accelerator& accelerator);

}  // namespace tutti::launch
