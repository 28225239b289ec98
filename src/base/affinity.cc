#include "base/affinity.h"

#include <sched.h>

namespace tutti {

std::vector<int32_t> affinityCpus() {
  std::vector<int32_t> cpus;
  // A mask too small for the kernel's is an error: double it until it fits.
  for (size_t count = 1024; count <= size_t{kMostCpus}; count *= 2) {
    std::vector<unsigned long> mask(count / (8 * sizeof(unsigned long)));
    const size_t bytes = mask.size() * sizeof(unsigned long);
    auto* set = reinterpret_cast<cpu_set_t*>(mask.data());
    if (::sched_getaffinity(0, bytes, set) != 0) continue;
    for (size_t cpu = 0; cpu < count; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set)) cpus.push_back(static_cast<int32_t>(cpu));
    }
    break;
  }
  return cpus;
}

}  // namespace tutti
