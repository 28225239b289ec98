#include "base/copy_memory.h"

#include "base/processor.h"

namespace tutti {

bool movesFastByLoop() { return processorKind() == ProcessorKind::kAmdFrom26; }

void copyLong(std::byte* to, const std::byte* from, size_t bytes) {
  if (looksOverlapping(to, from)) [[unlikely]] {
    for (size_t at = 0; at < bytes; at += kLongCopyBytes)
      std::memcpy(to + at, from + at, std::min(kLongCopyBytes, bytes - at));
    return;
  }
#if __has_builtin(__builtin_ia32_pause)
  constexpr size_t kMemcpyLoops = 8192;  // from here on by itself
  if (isLoopFast && bytes < kMemcpyLoops) {
    asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
    return;
  }
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace tutti
