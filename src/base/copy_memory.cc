#include "base/copy_memory.h"

#if __has_builtin(__builtin_ia32_pause)
#include <cpuid.h>
#endif

namespace tutti {

bool movesFastByLoop() {
#if __has_builtin(__builtin_ia32_pause)
  constexpr unsigned kAuthenticAmd[] = {0x68747541, 0x69746e65, 0x444d4163};
  constexpr unsigned kBaseFamily = 15;  // the extended one is added to it
  constexpr unsigned kLeastFamily = 26;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0, &a, &b, &c, &d) == 0) return false;
  if (b != kAuthenticAmd[0] || d != kAuthenticAmd[1] || c != kAuthenticAmd[2]) return false;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return false;
  return (a >> 8 & 0xf) == kBaseFamily && kBaseFamily + (a >> 20 & 0xff) >= kLeastFamily;
#else
  return false;
#endif
}

void copyLong(std::byte* to, const std::byte* from, size_t bytes) {
  constexpr size_t kMemcpyLoops = 8192;  // from here on by itself
  if (looksOverlapping(to, from)) [[unlikely]] {
    for (size_t at = 0; at < bytes; at += kLongCopyBytes)
      std::memcpy(to + at, from + at, std::min(kLongCopyBytes, bytes - at));
    return;
  }
#if __has_builtin(__builtin_ia32_pause)
  if (isLoopFast && bytes < kMemcpyLoops) {
    asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
    return;
  }
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace tutti
