// Cache lines, which two CPUs hand to and fro.
#pragma once

#include <cstddef>

namespace tutti {

inline constexpr size_t kCacheLineBytes = 64;

template <bool kToWrite>
void fetchLines(const std::byte* memory, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kCacheLineBytes) {
    __builtin_prefetch(memory + at, kToWrite);
    asm volatile("");  // GCC takes a loop that only prefetches for one without effect
  }
}

// Asks for the lines to write them: another CPU has them from the last time.
inline void fetchToWrite(const std::byte* memory, size_t bytes) { fetchLines<true>(memory, bytes); }

// Asks for the lines to read them.
inline void fetchToRead(const std::byte* memory, size_t bytes) { fetchLines<false>(memory, bytes); }

}  // namespace tutti
