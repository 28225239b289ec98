// The narrow float formats as their standards define them: slow, and independent of the conversions
// that are tested against them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/cpu/float_formats.h"

namespace tutti::kernels::cpu {

struct Description {
  int codeBits;
  int exponentBits;
  int bias;
  bool hasInfinity;  // infinity exists, and the highest exponent is kept for it and NaN
  bool saturates;    // what lies beyond the largest finite value becomes that
  uint32_t largest;  // code of the largest finite value
  uint32_t narrowedNan;
};

template <typename Format>
Description describe();
template <>
inline Description describe<Float16>() {
  return {16, 5, 15, true, false, 0x7bff, 0x7fff};
}
template <>
inline Description describe<Bfloat16>() {
  return {16, 8, 127, true, false, 0x7f7f, 0x7fff};
}
template <>
inline Description describe<Float8E4M3>() {
  return {8, 4, 7, false, true, 0x7e, 0x7f};
}
template <>
inline Description describe<Float8E5M2>() {
  return {8, 5, 15, true, true, 0x7b, 0x7f};
}

// The value of a code by the definition of the format; NaN for NaN codes.
inline double valueOf(const Description& format, uint32_t code) {
  const int mantissaBits = format.codeBits - 1 - format.exponentBits;
  const uint32_t magnitude = code & ((1U << (format.codeBits - 1)) - 1);
  const double sign = code == magnitude ? 1 : -1;
  if (magnitude > format.largest) {
    const bool isInfinity = format.hasInfinity && magnitude == format.largest + 1;
    return isInfinity ? sign * std::numeric_limits<double>::infinity()
                      : std::numeric_limits<double>::quiet_NaN();
  }
  const auto exponent = static_cast<int>(magnitude >> mantissaBits);
  const double mantissa = magnitude & ((1U << mantissaBits) - 1);
  const double one = std::ldexp(1.0, mantissaBits);
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - format.bias - mantissaBits);
  return sign * std::ldexp(one + mantissa, exponent - format.bias - mantissaBits);
}

// Narrowing by search: the nearest code's value, the even code of two equally near.
class SlowNarrow {
 public:
  explicit SlowNarrow(const Description& format) : format_(format) {
    for (uint32_t code = 0; code <= format.largest; ++code) {
      values_.push_back(valueOf(format, code));
    }
    // One more, for the rounding at the edge: the value that would come next were it finite.
    values_.push_back(2 * values_[format.largest] - values_[format.largest - 1]);
  }

  uint32_t operator()(float value) const {
    if (std::isnan(value)) return format_.narrowedNan;
    const uint32_t sign = std::signbit(value) ? 1U << (format_.codeBits - 1) : 0U;
    const double magnitude = std::fabs(static_cast<double>(value));
    const auto above = std::lower_bound(values_.begin(), values_.end(), magnitude);
    auto code = static_cast<uint32_t>(above - values_.begin());
    if (above == values_.end()) {
      code = format_.largest + 1;
    } else if (*above != magnitude) {
      const double up = *above - magnitude;
      const double down = magnitude - *(above - 1);
      if (down < up || (down == up && (code - 1) % 2 == 0)) --code;
    }
    if (code > format_.largest && format_.saturates) code = format_.largest;
    return sign | code;
  }

 private:
  const Description format_;
  std::vector<double> values_;  // by code, positive and finite
};

}  // namespace tutti::kernels::cpu
