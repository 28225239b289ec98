// Buffers that the user has registered with one communicator. CPU ranks gain nothing from it (their
// kernels read any host memory), so a registration is a hint that is kept, checked and forgotten.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "base/status.h"

namespace tutti::comm {

// Thread-safe. Ranges may overlap; each registration has a handle of its own, never reused.
class Registrations {
 public:
  // kInvalidArgument for a null or empty range, or one that wraps around the address space.
  Result<void*> add(const void* memory, size_t bytes);
  // kInvalidArgument when the handle is not in force here.
  Status remove(const void* handle);

  size_t count() const;

 private:
  struct Range {
    uintptr_t first = 0;
    size_t bytes = 0;
  };
  mutable std::mutex mutex_;  // guards the two below
  uintptr_t lastHandle_ = 0;
  std::map<uintptr_t, Range> ranges_;  // by handle
};

}  // namespace tutti::comm
