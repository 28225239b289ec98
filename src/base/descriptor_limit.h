// How many file descriptors this process may have open, for messages of those that got none.
#pragma once

#include <sys/resource.h>

#include <cstddef>

namespace tutti {

inline size_t descriptorLimit() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? static_cast<size_t>(limit.rlim_cur) : 0;
}

}  // namespace tutti
