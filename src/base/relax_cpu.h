// One turn of a spin.
#pragma once

namespace tutti {

// Tells the core that this is a spin: its sibling thread gets the execution units, and leaving the
// loop costs no memory-order mis-speculation. 4.5 to 9 ns, 2026-11.
inline void relaxCpu() {
#if __has_builtin(__builtin_ia32_pause)
  __builtin_ia32_pause();
#elif __has_builtin(__builtin_arm_yield)
  __builtin_arm_yield();
#endif
}

}  // namespace tutti
