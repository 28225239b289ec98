// How long steps take that the host's executor hands to a GPU (launch/device_folder.h), from their
// start until the host knows of the end, beside the copies to and from pinned memory that staging
// there makes.
#pragma once

#include <cstddef>
#include <vector>

namespace tutti::bench {

struct StepOptions {
  std::vector<size_t> sizes;  // bytes of a step
  int rounds = 300;
};

// Prints medians, in µs, on GPU 0. 0, or an exit code where there is none.
int timeSteps(const StepOptions& options);

}  // namespace tutti::bench
