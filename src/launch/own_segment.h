// A segment of the library's own, for as long as this lives.
#pragma once

#include <cstddef>
#include <utility>

#include "device/shared_memory.h"
#include "wire/shared_segment.h"

namespace tutti::launch {

class OwnSegment {
 public:
  OwnSegment() = default;
  // Holds nothing where it cannot be had.
  OwnSegment(device::SharedMemory& memory, size_t bytes)
      : memory_(&memory), segment_(memory.allocateOwn(bytes)) {}
  OwnSegment(OwnSegment&& other) noexcept
      : memory_(other.memory_), segment_(std::exchange(other.segment_, {})) {}
  OwnSegment& operator=(OwnSegment&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(segment_, other.segment_);
    return *this;
  }
  ~OwnSegment() {
    if (segment_.serial != 0) memory_->freeOwn(segment_);
  }

  const wire::SharedSegment& get() const { return segment_; }  // serial 0: nothing

 private:
  device::SharedMemory* memory_ = nullptr;
  wire::SharedSegment segment_;
};

}  // namespace tutti::launch
