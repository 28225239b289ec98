// Which shared segment a buffer lies in, kept from call to call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "device/shared_memory.h"
#include "wire/shared_segment.h"

namespace tutti::launch {

// Of one communicator; used by the thread that drives its present operation. A hit takes one load
// of the device's and a few compares.
class SegmentCache {
 public:
  // Null: no buffer is shared. The memory outlives the cache.
  explicit SegmentCache(device::SharedMemory* memory) : memory_(memory) {}

  // False: find() would find nothing.
  bool hasAny() const { return generation() != 0; }
  // While it stays, find() finds the same. 0: nothing.
  uint64_t generation() const { return memory_ == nullptr ? 0 : memory_->generation(); }
  // The segment that holds the whole buffer; serial 0: none.
  wire::SharedSegment find(const void* buffer, size_t bytes);

 private:
  static constexpr size_t kPlaces = 8;
  device::SharedMemory* memory_;
  uint64_t generation_ = 0;  // of what is kept
  size_t next_ = 0;
  std::array<wire::SharedSegment, kPlaces> places_{};
};

}  // namespace tutti::launch
