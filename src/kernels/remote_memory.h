// Reads and writes the memory of another process of this host, without its help.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace tutti::kernels {

// Copies `bytes` at `address` of the process to `to`. kRemoteError when the process is gone or the
// address is not its memory. Any thread.
Status readProcess(int32_t processId, const void* address, void* to, size_t bytes);

// Copies to `to` of the process. kRemoteError, not logged: not all of it, as when the process is
// gone or forbids it. Any thread.
Status writeProcess(int32_t processId, const void* from, void* to, size_t bytes);

// Whether that takes less than thrice as long as a copy of as many bytes in a cache; else it loses
// to a copy into a slot and one out of it: on an AMD EPYC VM (family 26) it takes 8.5 times as
// long, and is 2 to 3 times slower, on an Intel Xeon VM twice. Found out by the first call, in some
// 100 us. Any thread.
bool doesReadFast();

// Whether this process may read that one's memory: the word there must be `expected`. Logs nothing.
bool canReadProcess(int32_t processId, const uint64_t* address, uint64_t expected);

}  // namespace tutti::kernels
