// Owns one memory mapping. Move-only; unmaps on destruction.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace tutti {

class UniqueMapping {
 public:
  UniqueMapping() = default;
  // Takes what mmap() returned; MAP_FAILED makes an empty one.
  UniqueMapping(void* memory, size_t bytes)
      : memory_(memory == MAP_FAILED ? nullptr : memory),
        bytes_(memory == MAP_FAILED ? 0 : bytes) {}
  UniqueMapping(UniqueMapping&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  UniqueMapping& operator=(UniqueMapping&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~UniqueMapping() {
    if (memory_ != nullptr) ::munmap(memory_, bytes_);
  }

  void* get() const { return memory_; }
  size_t bytes() const { return bytes_; }
  explicit operator bool() const { return memory_ != nullptr; }

 private:
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

// Zeroed memory of this process alone; a page costs nothing before it is written. `what` ends the
// error's sentence: "of a board".
Result<UniqueMapping> mapPrivate(size_t bytes, std::string_view what);
// The same, as much as there are addresses: what is written beyond the machine's memory ends the
// process.
Result<UniqueMapping> reserve(size_t bytes, std::string_view what);

}  // namespace tutti
