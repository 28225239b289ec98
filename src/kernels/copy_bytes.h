// Copies of a message's payload: a call of memcpy costs more than what it does for a few bytes.
#pragma once

#include <cstddef>
#include <cstring>

#include "base/copy_memory.h"
#include "wire/link.h"

namespace tutti::kernels {

// At most kInlineBytes: a few stores, which leave the core together.
inline void copyFew(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes >= 8) {
    for (size_t at = 0; at + 8 < bytes; at += 8) std::memcpy(to + at, from + at, 8);
    std::memcpy(to + bytes - 8, from + bytes - 8, 8);
  } else if (bytes >= 4) {
    std::memcpy(to, from, 4);
    std::memcpy(to + bytes - 4, from + bytes - 4, 4);
  } else {
    for (size_t at = 0; at < bytes; ++at) to[at] = from[at];
  }
}

// REQUIRES: equal or not overlapping.
inline void copyBytes(std::byte* to, const std::byte* from, size_t bytes) {
  if (to == from) return;
  if (bytes <= wire::kInlineBytes) {
    copyFew(to, from, bytes);
  } else {
    copyMemory(to, from, bytes);
  }
}

}  // namespace tutti::kernels
