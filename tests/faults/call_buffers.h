// The buffers of a rank's calls: ordinary memory, or that of ncclMemAlloc where FAULT_SHARED is
// set.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdlib>
#include <new>
#include <vector>

namespace tutti::faults {

template <typename T>
struct CallMemory {
  using value_type = T;
  CallMemory() = default;

  T* allocate(size_t count) {
    const size_t bytes = count * sizeof(T);
    void* memory = nullptr;
    if (isShared()) {
      if (ncclMemAlloc(&memory, bytes) != ncclSuccess) throw std::bad_alloc();
    } else {
      memory = ::operator new(bytes);
    }
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t) {
    if (isShared()) {
      static_cast<void>(ncclMemFree(memory));
    } else {
      ::operator delete(memory);
    }
  }
  bool operator==(const CallMemory&) const = default;

 private:
  static bool isShared() {
    static const bool is = std::getenv("FAULT_SHARED") != nullptr;
    return is;
  }
};

using CallBuffer = std::vector<float, CallMemory<float>>;

}  // namespace tutti::faults
