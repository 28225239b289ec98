// Cache lines, which two CPUs hand to and fro.
#pragma once

#include <cstddef>

namespace tutti {

inline constexpr size_t kCacheLineBytes = 64;

// Asks for the lines to write them: another CPU has them from the last time.
inline void fetchToWrite(std::byte* memory, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kCacheLineBytes) {
    __builtin_prefetch(memory + at, 1);
    asm volatile("");  // GCC takes a loop that only prefetches for one without effect
  }
}

// Asks for the lines to read them.
inline void fetchToRead(const std::byte* memory, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kCacheLineBytes) {
    __builtin_prefetch(memory + at);
    asm volatile("");
  }
}

}  // namespace tutti
