// Byte sizes as they are said: 512_KiB.
#pragma once

#include <cstddef>

namespace tutti {

constexpr size_t operator""_KiB(unsigned long long value) { return size_t{value} << 10; }
constexpr size_t operator""_MiB(unsigned long long value) { return size_t{value} << 20; }
constexpr size_t operator""_GiB(unsigned long long value) { return size_t{value} << 30; }

constexpr size_t divideUp(size_t value, size_t divisor) { return (value + divisor - 1) / divisor; }
constexpr size_t roundUp(size_t value, size_t multiple) {
  return divideUp(value, multiple) * multiple;
}

}  // namespace tutti
