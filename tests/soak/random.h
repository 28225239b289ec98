// Numbers that depend on nothing but their seed, the same on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::soak {

// SplitMix64's finaliser: every bit of the result depends on every bit of the argument.
constexpr uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(mix(seed)) {}
  uint64_t next() { return mix(state_++); }
  // 0 <= result < bound; bound > 0.
  size_t below(size_t bound) { return static_cast<size_t>(next() % bound); }
  int intBelow(size_t bound) { return static_cast<int>(below(bound)); }
  // True once in `times`.
  bool oneIn(size_t times) { return below(times) == 0; }
  template <typename T>
  const T& pick(const std::vector<T>& from) {
    return from[below(from.size())];
  }

 private:
  uint64_t state_;
};

}  // namespace tutti::soak
