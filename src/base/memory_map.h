// What of this process's memory can be used, as the kernel lists it. For checks that are asked for:
// to read the list takes a system call for each of its pages, and tens of microseconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tutti {

enum class MemoryUse : uint8_t { kRead, kWrite };

// The first place of a stretch of memory that cannot be used as wanted.
struct MemoryFault {
  enum class Reason : uint8_t { kUnmapped, kUnreadable, kReadOnly };
  uintptr_t at = 0;
  Reason reason = Reason::kUnmapped;
};

// This process's list, /proc/self/maps; empty where it cannot be read. Any thread; what others map
// meanwhile may be in it or not.
std::string readMemoryMap();

// In a list of that form; none: all of it can be used. Pure.
std::optional<MemoryFault> findFault(std::string_view map, uintptr_t from, size_t bytes,
                                     MemoryUse use);

}  // namespace tutti
