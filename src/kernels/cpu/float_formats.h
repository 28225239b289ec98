// The four element formats narrower than fp32, and their exact conversions.
//
// Widening is exact for every code. Narrowing rounds to nearest, ties to even, once:
//   fp16, bf16 (IEEE 754 style): a value that rounds beyond the largest finite one becomes
//   infinity; fp8 e4m3 (OCP E4M3FN: no infinity, NaN is 0x7f and 0xff) and e5m2: such a value, and
//   infinity
//     too, becomes the largest finite one of its sign (448, 57344), as CUDA's saturating
//     conversions do. So an fp8 reduction never makes an infinity, it only passes one on in a plain
//     copy;
//   a NaN becomes the format's canonical one (0x7fff, 0x7f), without sign or payload, so that the
//     result does not depend on which of two NaNs an instruction keeps.
// Denormals are exact both ways. Integer arithmetic throughout, but for one addition in each
// direction that does the rounding or the renormalising; it wants the default rounding mode.
//
// Everything here is always inlined: files built for different processors include it, and a shared
// out-of-line copy would run one processor's instructions on another.
#pragma once

#include <cstdint>

namespace tutti::kernels::cpu {

struct Float16 {
  using Bits = uint16_t;
  static constexpr uint32_t kMantissaBits = 10;
  static constexpr uint32_t kBias = 15;
  static constexpr uint32_t kOverflow = 0x7c00;  // the code that too large a magnitude becomes
  static constexpr uint32_t kNan = 0x7fff;
  static constexpr bool kIeeeSpecials = true;  // the highest exponent means infinity or NaN
};

struct Bfloat16 {
  using Bits = uint16_t;
  static constexpr uint32_t kMantissaBits = 7;
  static constexpr uint32_t kBias = 127;
  static constexpr uint32_t kOverflow = 0x7f80;
  static constexpr uint32_t kNan = 0x7fff;
  static constexpr bool kIeeeSpecials = true;
};

struct Float8E4M3 {
  using Bits = uint8_t;
  static constexpr uint32_t kMantissaBits = 3;
  static constexpr uint32_t kBias = 7;
  static constexpr uint32_t kOverflow = 0x7e;
  static constexpr uint32_t kNan = 0x7f;
  static constexpr bool kIeeeSpecials = false;
};

struct Float8E5M2 {
  using Bits = uint8_t;
  static constexpr uint32_t kMantissaBits = 2;
  static constexpr uint32_t kBias = 15;
  static constexpr uint32_t kOverflow = 0x7b;
  static constexpr uint32_t kNan = 0x7f;
  static constexpr bool kIeeeSpecials = true;
};

inline constexpr uint32_t kFloatMantissaBits = 23;
inline constexpr uint32_t kFloatBias = 127;
inline constexpr uint32_t kFloatInfinity = 0x7f800000;
inline constexpr uint32_t kFloatNan = 0x7fc00000;

// The conversions are written once, for one number or a vector of them: Word is uint32_t and Real
// float, or vectors of those with equally many lanes, where a comparison makes a mask.

template <typename Mask, typename T>
[[gnu::always_inline]] constexpr T choose(Mask mask, T yes, T no) {
  return mask ? yes : no;
}

// a < b, both below 2^31: processors compare vectors of signed numbers more readily.
template <typename Word>
[[gnu::always_inline]] constexpr auto isBelow(Word a, Word b) {
  if constexpr (sizeof(Word) == sizeof(uint32_t)) {
    return a < b;
  } else {
    using Signed = decltype(a < b);
    return reinterpret_cast<Signed>(a) < reinterpret_cast<Signed>(b);
  }
}

// The value of a code (in the low bits of a word), exactly. A NaN widens to some NaN.
template <typename Format, typename Real, typename Word>
[[gnu::always_inline]] constexpr Real widenLanes(Word code) {
  constexpr uint32_t kCodeBits = 8 * sizeof(typename Format::Bits);
  constexpr uint32_t kShift = kFloatMantissaBits - Format::kMantissaBits;
  constexpr uint32_t kMagnitude = (1U << (kCodeBits - 1)) - 1;
  if constexpr (Format::kBias == kFloatBias) {
    return __builtin_bit_cast(Real, code << kShift);
  } else {
    constexpr uint32_t kRebias = (kFloatBias - Format::kBias) << kFloatMantissaBits;
    constexpr uint32_t kLowestExponent = 1U << kFloatMantissaBits;
    const Word sign = (code >> (kCodeBits - 1)) << 31;
    const Word magnitude = code & kMagnitude;
    const Word rebiased = (magnitude << kShift) + kRebias;
    // A denormal is read as a normal number of the lowest exponent, which counts a leading one too
    // many; subtracting that one leaves the value, and no operand is an fp32 denormal.
    const Real leadingOne = __builtin_bit_cast(Real, Word{} + (kRebias + kLowestExponent));
    const Real denormal = __builtin_bit_cast(Real, rebiased + kLowestExponent) - leadingOne;
    const Word finite = choose(isBelow(magnitude, Word{} + (1U << Format::kMantissaBits)),
                               __builtin_bit_cast(Word, denormal), rebiased);
    if constexpr (Format::kIeeeSpecials) {
      constexpr uint32_t kSpecial = kMagnitude & ~((1U << Format::kMantissaBits) - 1);
      const Word special = (magnitude << kShift) | kFloatInfinity;
      return __builtin_bit_cast(
          Real, sign | choose(isBelow(magnitude, Word{} + kSpecial), finite, special));
    } else {
      const Word nan = Word{} + kFloatNan;
      return __builtin_bit_cast(Real, sign | choose(magnitude == Format::kNan, nan, finite));
    }
  }
}

// The code nearest to a value, by the rules above.
template <typename Format, typename Word, typename Real>
[[gnu::always_inline]] constexpr Word narrowLanes(Real value) {
  constexpr uint32_t kShift = kFloatMantissaBits - Format::kMantissaBits;
  constexpr uint32_t kBelowHalf = (1U << (kShift - 1)) - 1;  // and one more where the code is odd
  const Word bits = __builtin_bit_cast(Word, value);
  const Word nan = Word{} + Format::kNan;
  if constexpr (Format::kBias == kFloatBias) {  // overflow carries into infinity by itself
    const Word rounded = bits + ((bits >> kShift) & 1U) + kBelowHalf;
    return choose(value == value, rounded >> kShift, nan);
  } else {
    constexpr uint32_t kCodeBits = 8 * sizeof(typename Format::Bits);
    constexpr uint32_t kRebias = (kFloatBias - Format::kBias) << kFloatMantissaBits;
    constexpr uint32_t kSmallestNormal = kRebias + (1U << kFloatMantissaBits);
    // Added to a float whose last mantissa bit weighs one denormal step, the value is rounded to
    // whole steps by the addition itself; their number is the code.
    constexpr uint32_t kStepCounter = kSmallestNormal + (kShift << kFloatMantissaBits);
    const Word sign = (bits >> 31) << (kCodeBits - 1);
    const Word magnitude = bits & 0x7fffffffU;
    const Real counter = __builtin_bit_cast(Real, Word{} + kStepCounter);
    const Word denormal =
        __builtin_bit_cast(Word, __builtin_bit_cast(Real, magnitude) + counter) - kStepCounter;
    const Word odd = (magnitude >> kShift) & 1U;
    const Word normal = (magnitude + odd + (kBelowHalf - kRebias)) >> kShift;
    const Word code = choose(isBelow(magnitude, Word{} + kSmallestNormal), denormal, normal);
    const Word overflow = Word{} + Format::kOverflow;
    const Word finite = choose(isBelow(code, overflow), code, overflow);
    return choose(value == value, sign | finite, nan);
  }
}

template <typename Format>
[[gnu::always_inline]] constexpr float widen(typename Format::Bits code) {
  return widenLanes<Format, float>(uint32_t{code});
}

template <typename Format>
[[gnu::always_inline]] constexpr typename Format::Bits narrow(float value) {
  return static_cast<typename Format::Bits>(narrowLanes<Format, uint32_t>(value));
}

}  // namespace tutti::kernels::cpu
