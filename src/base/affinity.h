// The CPUs that a thread may run on.
#pragma once

#include <cstdint>
#include <vector>

namespace tutti {

// Of the calling thread, ascending, by the kernel's numbers. Empty when the kernel does not tell.
std::vector<int32_t> affinityCpus();

}  // namespace tutti
