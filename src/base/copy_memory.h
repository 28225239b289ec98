// Copies of memory by the processor's own loop, `rep movsb`: where that is fast, and not where it
// is not.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tutti {

// Addresses are compared by their places in pages of this length.
inline constexpr size_t kAliasBytes = 4096;

// Whether the destination is a few bytes ahead of the source, whole pages aside. There `rep movsb`,
// which memcpy takes from some KiB on, takes for an overlap what is none on some processors: 64 KiB
// took 25 us instead of 1.4 (AMD EPYC, family 25, model 1; glibc 2.36, 2026-11-24).
inline bool looksOverlapping(const std::byte* to, const std::byte* from) {
  constexpr uintptr_t kFewBytes = 32;
  const uintptr_t ahead =
      (reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from)) % kAliasBytes;
  return ahead != 0 && ahead < kFewBytes;
}

// The first place from `room` on that lies in its page as `from` does, so that the kernel's copies
// from there, which know no other way, do not look so. Less than kAliasBytes behind `room`.
inline std::byte* placeAlike(std::byte* room, const std::byte* from) {
  return room +
         (reinterpret_cast<uintptr_t>(from) - reinterpret_cast<uintptr_t>(room)) % kAliasBytes;
}

// Whether the loop pays above 1 KiB where the destination is in another core's cache, as slots
// are: AMD's processors from family 26 on. Messages of 1, 2 and 4 KiB, by vectors over so: round
// trips 1.30, 1.37 and 1.02, all-gathers of as much 1.2, 1.3 and 1.0, broadcasts 1.0, 1.5 and 1.1;
// of 512 bytes 0.7 (2026-11-27). memcpy takes it from 8 KiB on.
bool movesFastByLoop();
inline const bool isLoopFast = movesFastByLoop();

// Of a destination that another core had last, and that so many bytes will go to: how many from the
// first on are worth fetching before. Of longer ones the first would have left the cache when the
// last come; and the loop fetches better by itself: messages of 4 KiB, of which 4 KiB, 2 KiB and
// 256 bytes were fetched, 0.65, 0.42 and 0.38 us a broadcast, 1.04, 0.75 and 0.68 an all-gather,
// but of 2 KiB all and 256 bytes 0.22 and 0.29, 0.52 and 0.61 (AMD EPYC VM, family 26, 2026-11-27).
inline size_t worthFetching(size_t bytes) {
  constexpr size_t kMost = 4096;
  constexpr size_t kMostForLoop = 2048;
  constexpr size_t kBegin = 256;
  if (bytes <= kMostForLoop) return bytes;
  return isLoopFast ? kBegin : std::min(bytes, kMost);
}

inline constexpr size_t kLongCopyBytes = 1024;
// Of more than kLongCopyBytes. Not inline: short copies are worth no register more.
void copyLong(std::byte* to, const std::byte* from, size_t bytes);

// memcpy, or in less time. Not overlapping.
inline void copyMemory(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes <= kLongCopyBytes) [[likely]] {
    std::memcpy(to, from, bytes);
  } else {
    copyLong(to, from, bytes);
  }
}

}  // namespace tutti
