// What a device knows about memory that it allocated so that other processes can map it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/fd.h"
#include "wire/shared_segment.h"

namespace tutti::device {

// Thread-safe.
class SharedMemory {
 public:
  // The segment that holds these bytes; serial 0 when none does.
  virtual wire::SharedSegment find(const void* memory, size_t bytes) = 0;
  // Grows with every allocation and every free, so that what find() said can be kept meanwhile. 0:
  // there was never a segment. One load.
  virtual uint64_t generation() const = 0;
  // As find(), and the segment's addresses name nothing else, also once it is freed, until it was
  // dropped as often: for whoever has told an adapter of it.
  virtual wire::SharedSegment hold(const void* memory, size_t bytes) = 0;
  virtual void drop(const wire::SharedSegment& segment) = 0;
  // Memory of the library's own that peers can map; find() does not know it. serial 0: it cannot be
  // had.
  virtual wire::SharedSegment allocateOwn(size_t bytes) = 0;
  // Who has it mapped keeps it as it is.
  virtual void freeOwn(const wire::SharedSegment& segment) = 0;
  // A descriptor of the segment with that token, for a peer; empty when there is none.
  virtual UniqueFd open(const wire::SegmentToken& token) = 0;

 protected:
  ~SharedMemory() = default;
};

}  // namespace tutti::device
