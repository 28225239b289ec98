// Buffers and windows that the user has registered with one communicator.
//
// Which form a message takes is decided for each by what the receiver has mapped
// (wire/shared_segment.h), and never by a registration: that would have to be known to both sides.
// So memory of ncclMemAlloc is read in place without one, other memory is copied with one, and a
// registration is kept, checked and forgotten.
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
  enum class Kind : uint8_t { kBuffer, kWindow };

  // kInvalidArgument for a null or empty range, or one that wraps around the address space.
  Result<void*> add(Kind kind, const void* memory, size_t bytes);
  // kInvalidArgument when the handle is not in force here, or is of the other kind.
  Status remove(Kind kind, const void* handle);

  size_t count() const;

 private:
  struct Range {
    Kind kind = Kind::kBuffer;
    uintptr_t first = 0;
    size_t bytes = 0;
  };
  mutable std::mutex mutex_;  // guards the two below
  uintptr_t lastHandle_ = 0;
  std::map<uintptr_t, Range> ranges_;  // by handle
};

}  // namespace tutti::comm
