// Element types in kernels: how each is widened, folded and rounded. The rules are those of
// kernels.h (bit for bit what CPU ranks give): narrow floats accumulate in fp32 and round once,
// integers wrap, NaN is canonical, -0 < +0.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>

#include "wire/types.h"

namespace tutti::kernels::cuda {

// Integers are folded in at least 32 bits; what overflowed is cut off when they are narrowed.
template <typename T>
struct IntegerElement {
  using Bits = T;
  using Value = std::conditional_t<sizeof(T) == 8, T,
                                   std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>>;
  using Wrapping = std::make_unsigned_t<Value>;

  static __device__ Value widen(Bits bits) { return bits; }
  static __device__ Bits narrow(Value value) { return static_cast<Bits>(value); }
  static __device__ Value add(Value a, Value b) {
    return static_cast<Value>(static_cast<Wrapping>(a) + static_cast<Wrapping>(b));
  }
  static __device__ Value multiply(Value a, Value b) {
    return static_cast<Value>(static_cast<Wrapping>(a) * static_cast<Wrapping>(b));
  }
  static __device__ Value maximum(Value a, Value b) { return a > b ? a : b; }
  static __device__ Value minimum(Value a, Value b) { return a < b ? a : b; }
  // Toward zero. `isUnsigned`: the bits are those of an unsigned number.
  static __device__ Value divide(Value sum, int32_t divisor, bool isUnsigned) {
    using Magnitude = std::make_unsigned_t<Bits>;
    const bool isNegative = !isUnsigned && static_cast<std::make_signed_t<Bits>>(sum) < 0;
    const auto bits = static_cast<Wrapping>(sum);
    const auto magnitude = static_cast<Magnitude>(isNegative ? 0 - bits : bits);
    const Wrapping quotient = Wrapping{magnitude} / static_cast<Wrapping>(divisor);
    return static_cast<Value>(isNegative ? 0 - quotient : quotient);
  }
};

template <typename Element>
inline constexpr bool kIsInteger = std::is_integral_v<typename Element::Value>;

// The elements of a word or vector with their sign bits changed: signed numbers that are in the
// order of unsigned ones, and back.
template <typename Bits, typename W>
__device__ __forceinline__ W withSignsChanged(const W& raw) {
  union {
    W whole;
    uint32_t words[sizeof(W) / sizeof(uint32_t)];
  } bits;
  bits.whole = raw;
  constexpr uint64_t kSigns = sizeof(Bits) == 1   ? 0x8080808080808080
                              : sizeof(Bits) == 4 ? 0x8000000080000000
                                                  : 0x8000000000000000;
#pragma unroll
  for (size_t i = 0; i < sizeof(W) / sizeof(uint32_t); ++i)
    bits.words[i] ^= static_cast<uint32_t>(kSigns >> i % 2 * 32);
  return bits.whole;
}

struct FloatArithmetic {
  using Value = float;
  static __device__ float add(float a, float b) { return __fadd_rn(a, b); }
  static __device__ float multiply(float a, float b) { return __fmul_rn(a, b); }
  static __device__ float divide(float sum, int32_t divisor) {
    return __fdiv_rn(sum, static_cast<float>(divisor));
  }
  // max.NaN takes -0 for less than +0.
  static __device__ float maximum(float a, float b) {
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
  }
  static __device__ float minimum(float a, float b) {
    float result;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
  }
};

struct Float32Element : FloatArithmetic {
  using Bits = float;
  static __device__ float widen(float bits) { return bits; }
  static __device__ float narrow(float value) {
    return value == value ? value : __uint_as_float(0x7fc00000);
  }
};

struct Float16Element : FloatArithmetic {
  using Bits = uint16_t;
  static __device__ float widen(Bits bits) { return __half2float(__ushort_as_half(bits)); }
  static __device__ Bits narrow(float value) {
    return value == value ? __half_as_ushort(__float2half_rn(value)) : Bits{0x7fff};
  }
};

struct Bfloat16Element : FloatArithmetic {
  using Bits = uint16_t;
  static __device__ float widen(Bits bits) { return __uint_as_float(uint32_t{bits} << 16); }
  static __device__ Bits narrow(float value) {
    return value == value ? __bfloat16_as_ushort(__float2bfloat16_rn(value)) : Bits{0x7fff};
  }
};

// Before sm_89 there is no instruction for these conversions, and what stands for it is long: there
// it is called instead of repeated for each element, of which the compiler made images of minutes.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
#define TUTTI_FLOAT8_CONVERSION __noinline__
#else
#define TUTTI_FLOAT8_CONVERSION __forceinline__
#endif

template <__nv_fp8_interpretation_t kKind>
struct Float8Element : FloatArithmetic {
  using Bits = uint8_t;
  static __device__ TUTTI_FLOAT8_CONVERSION float widen(Bits bits) {
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(bits, kKind)));
  }
  static __device__ TUTTI_FLOAT8_CONVERSION Bits narrow(float value) {
    return value == value ? __nv_cvt_float_to_fp8(value, __NV_SATFINITE, kKind) : Bits{0x7f};
  }

  // Two at once, the first in the low byte: one instruction each way converts both.
  static __device__ TUTTI_FLOAT8_CONVERSION float2 widenPair(uint16_t bits) {
    return __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(bits, kKind)));
  }
  static __device__ TUTTI_FLOAT8_CONVERSION uint16_t narrowPair(float2 values) {
    const uint32_t both = __nv_cvt_float2_to_fp8x2(values, __NV_SATFINITE, kKind);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    return static_cast<uint16_t>(both);  // the instruction makes 0x7f of every NaN
#else
    const uint32_t low = values.x == values.x ? both & 0xff : 0x7f;
    const uint32_t high = values.y == values.y ? both & 0xff00 : 0x7f00;
    return static_cast<uint16_t>(low | high);
#endif
  }
};

struct Float64Element {
  using Bits = double;
  using Value = double;
  static __device__ double widen(double bits) { return bits; }
  static __device__ double narrow(double value) {
    return value == value ? value : __longlong_as_double(0x7ff8000000000000);
  }
  static __device__ double add(double a, double b) { return __dadd_rn(a, b); }
  static __device__ double multiply(double a, double b) { return __dmul_rn(a, b); }
  static __device__ double divide(double sum, int32_t divisor) {
    return __ddiv_rn(sum, static_cast<double>(divisor));
  }
  // Equal operands differ in the sign of zero at most: the `and` of the bits is the greater.
  static __device__ double maximum(double a, double b) {
    if (a != a || b != b) return __longlong_as_double(0x7ff8000000000000);
    if (a == b) return __longlong_as_double(__double_as_longlong(a) & __double_as_longlong(b));
    return a > b ? a : b;
  }
  static __device__ double minimum(double a, double b) {
    if (a != a || b != b) return __longlong_as_double(0x7ff8000000000000);
    if (a == b) return __longlong_as_double(__double_as_longlong(a) | __double_as_longlong(b));
    return a < b ? a : b;
  }
};

template <DataType kType>
struct ElementOf;
template <>
struct ElementOf<DataType::kInt8> : IntegerElement<int8_t> {};
template <>
struct ElementOf<DataType::kUint8> : IntegerElement<uint8_t> {};
template <>
struct ElementOf<DataType::kInt32> : IntegerElement<int32_t> {};
template <>
struct ElementOf<DataType::kUint32> : IntegerElement<uint32_t> {};
template <>
struct ElementOf<DataType::kInt64> : IntegerElement<int64_t> {};
template <>
struct ElementOf<DataType::kUint64> : IntegerElement<uint64_t> {};
template <>
struct ElementOf<DataType::kFloat16> : Float16Element {};
template <>
struct ElementOf<DataType::kFloat32> : Float32Element {};
template <>
struct ElementOf<DataType::kFloat64> : Float64Element {};
template <>
struct ElementOf<DataType::kBfloat16> : Bfloat16Element {};
template <>
struct ElementOf<DataType::kFloat8E4M3> : Float8Element<__NV_E4M3> {};
template <>
struct ElementOf<DataType::kFloat8E5M2> : Float8Element<__NV_E5M2> {};

// The elements of a word or vector W (8 or 16 bytes), and their values while they are folded.
template <typename Element, typename W>
struct Lanes {
  using Bits = typename Element::Bits;
  using Value = typename Element::Value;
  static constexpr int kCount = sizeof(W) / sizeof(Bits);
  static constexpr bool kByPairs = requires { Element::widenPair(uint16_t{}); };

  Value values[kCount];

  static __device__ Lanes widen(const W& raw) {
    Lanes lanes;
    if constexpr (kByPairs) {
      lanes.widenPairs(raw);
    } else {
      union {
        W whole;
        Bits parts[kCount];
      } bits;
      bits.whole = raw;
#pragma unroll
      for (int i = 0; i < kCount; ++i) lanes.values[i] = Element::widen(bits.parts[i]);
    }
    return lanes;
  }

  __device__ W narrow() const {
    if constexpr (kByPairs) {
      return narrowPairs();
    } else {
      union {
        W whole;
        Bits parts[kCount];
      } bits;
#pragma unroll
      for (int i = 0; i < kCount; ++i) bits.parts[i] = Element::narrow(values[i]);
      return bits.whole;
    }
  }

  // The branch is the same for all threads of a call, and outside of the loop over elements.
  __device__ void fold(ReduceOp op, const Lanes& other) {
    switch (op) {
      case ReduceOp::kProd: return each(other, Element::multiply);
      case ReduceOp::kMax: return each(other, Element::maximum);
      case ReduceOp::kMin: return each(other, Element::minimum);
      case ReduceOp::kSum:
      case ReduceOp::kAvg:
      case ReduceOp::kPreMulSum: return each(other, Element::add);
    }
  }

  __device__ void add(const Lanes& other) { each(other, Element::add); }

  // `isUnsigned`: elements that are integers stand for unsigned ones.
  __device__ void divide(int32_t divisor, bool isUnsigned) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if constexpr (kIsInteger<Element>) {
        values[i] = Element::divide(values[i], divisor, isUnsigned);
      } else {
        values[i] = Element::divide(values[i], divisor);
      }
    }
  }

  __device__ void scale(Value factor) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = Element::multiply(values[i], factor);
  }

 private:
  // By words, since an array of halves of words would be put together byte by byte.
  static constexpr int kWords = sizeof(W) / sizeof(uint32_t);

  __device__ __forceinline__ void widenPairs(const W& raw) {
    union {
      W whole;
      uint32_t words[kWords];
    } bits;
    bits.whole = raw;
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const float2 pair =
          Element::widenPair(static_cast<uint16_t>(bits.words[i / 2] >> i % 2 * 16));
      values[2 * i] = pair.x;
      values[2 * i + 1] = pair.y;
    }
  }

  __device__ __forceinline__ W narrowPairs() const {
    union {
      W whole;
      uint32_t words[kWords];
    } bits;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const float* four = values + 4 * i;
      bits.words[i] = uint32_t{Element::narrowPair(make_float2(four[0], four[1]))} |
                      uint32_t{Element::narrowPair(make_float2(four[2], four[3]))} << 16;
    }
    return bits.whole;
  }

  template <typename Op>
  __device__ __forceinline__ void each(const Lanes& other, Op op) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = op(values[i], other.values[i]);
  }
};

}  // namespace tutti::kernels::cuda
