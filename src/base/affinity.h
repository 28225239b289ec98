// The CPUs that a thread may run on.
#pragma once

#include <cstdint>
#include <vector>

namespace tutti {

// More CPUs than any kernel is built for.
inline constexpr int32_t kMostCpus = 1 << 16;

// Of the calling thread, ascending, by the kernel's numbers. Empty when the kernel does not tell.
std::vector<int32_t> affinityCpus();

// Moves the calling thread there and leaves its affinity as it is. False, and nothing is moved,
// when its affinity leaves that CPU out or the kernel refuses.
bool moveThreadTo(int32_t cpu);

}  // namespace tutti
