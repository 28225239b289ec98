#include "base/processor.h"

#if __has_builtin(__builtin_ia32_pause)
#include <cpuid.h>
#endif

namespace tutti {

ProcessorKind processorKind() {
#if __has_builtin(__builtin_ia32_pause)
  constexpr unsigned kAuthenticAmd[] = {0x68747541, 0x69746e65, 0x444d4163};
  constexpr unsigned kBaseFamily = 15;  // the extended one is added to it
  constexpr unsigned kLeastFamily = 26;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0, &a, &b, &c, &d) == 0) return ProcessorKind::kOther;
  if (b != kAuthenticAmd[0] || d != kAuthenticAmd[1] || c != kAuthenticAmd[2])
    return ProcessorKind::kOther;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return ProcessorKind::kOther;
  const bool isNew =
      (a >> 8 & 0xf) == kBaseFamily && kBaseFamily + (a >> 20 & 0xff) >= kLeastFamily;
  if (isNew) return ProcessorKind::kAmdFrom26;
#endif
  return ProcessorKind::kOther;
}

}  // namespace tutti
