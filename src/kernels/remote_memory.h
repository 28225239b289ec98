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
// to a copy into a slot and one out of it where the cores that do that share a cache: on an AMD
// EPYC VM (family 26) it takes 8.5 times as long, and is 2 to 3 times slower, on an Intel Xeon VM
// twice. Where they share none it wins all the same: on one of family 25, whose copies from core to
// core go at 20 or, for seconds at a time, at 4 GB/s, exchanges of 1 MiB by copies took 65 or 200
// us, by reads 120. Found out by the first call, in some 100 us. Any thread.
bool doesReadFast();

// Whether this process may read that one's memory: the word there must be `expected`. Logs nothing.
bool canReadProcess(int32_t processId, const uint64_t* address, uint64_t expected);

}  // namespace tutti::kernels
