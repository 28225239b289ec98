// What a fold must give, one element at a time and in plain arithmetic, for the tests of the loops.
// Elements are passed as their bits.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cpu/float_formats_testing.h"
#include "kernels/kernels.h"

namespace tutti::kernels::cpu {

struct IntegerTraits {
  int bits;
  bool isSigned;
};

inline IntegerTraits integerTraits(DataType type) {
  const bool isSigned =
      type == DataType::kInt8 || type == DataType::kInt32 || type == DataType::kInt64;
  return {.bits = static_cast<int>(sizeOf(type)) * 8, .isSigned = isSigned};
}

inline __int128 integerOf(IntegerTraits traits, uint64_t bits) {
  const int unused = 64 - traits.bits;
  if (traits.isSigned) return static_cast<int64_t>(bits << unused) >> unused;
  return (bits << unused) >> unused;
}

inline uint64_t integerBits(IntegerTraits traits, __int128 value) {
  return static_cast<uint64_t>(value) & (~uint64_t{0} >> (64 - traits.bits));
}

// Unsigned, so that the product of two 64-bit numbers cannot overflow.
inline uint64_t productBits(IntegerTraits traits, __int128 a, __int128 b) {
  const auto product = static_cast<unsigned __int128>(a) * static_cast<unsigned __int128>(b);
  return integerBits(traits, static_cast<__int128>(product));
}

struct Work {
  FoldSpec spec;
  int32_t scaledSource = -1;
  bool post = false;

  bool scales(size_t source) const {
    return spec.op == ReduceOp::kPreMulSum && static_cast<int64_t>(source) == scaledSource;
  }
  bool divides() const { return spec.op == ReduceOp::kAvg && post && spec.rankCount > 1; }
  bool copies(size_t sources) const { return sources == 1 && !scales(0) && !divides(); }
};

inline uint64_t bitsAt(DataType type, const void* data, size_t index) {
  uint64_t bits = 0;
  std::memcpy(&bits, static_cast<const std::byte*>(data) + index * sizeOf(type), sizeOf(type));
  return bits;
}

inline uint64_t integerReference(const Work& work, const std::vector<uint64_t>& sources) {
  const IntegerTraits traits = integerTraits(work.spec.type);
  const __int128 scale = integerOf(traits, bitsAt(work.spec.type, work.spec.preScale.bytes, 0));
  __int128 result = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    __int128 value = integerOf(traits, sources[i]);
    if (work.scales(i)) value = integerOf(traits, productBits(traits, value, scale));
    if (i == 0) {
      result = value;
    } else if (work.spec.op == ReduceOp::kMax) {
      result = value > result ? value : result;
    } else if (work.spec.op == ReduceOp::kMin) {
      result = value < result ? value : result;
    } else {
      const bool multiplies = work.spec.op == ReduceOp::kProd;
      result = integerOf(traits, multiplies ? productBits(traits, result, value)
                                            : integerBits(traits, result + value));
    }
  }
  if (work.divides()) result /= work.spec.rankCount;
  return integerBits(traits, result);
}

template <typename Real>
Real floatStep(ReduceOp op, Real a, Real b) {
  const bool aFirst = std::signbit(a) ? !std::signbit(b) : false;  // -0 before +0
  switch (op) {
    case ReduceOp::kProd: return a * b;
    case ReduceOp::kMax:
      if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<Real>::quiet_NaN();
      return a == b ? (aFirst ? b : a) : std::max(a, b);
    case ReduceOp::kMin:
      if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<Real>::quiet_NaN();
      return a == b ? (aFirst ? a : b) : std::min(a, b);
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
    case ReduceOp::kPreMulSum: return a + b;
  }
  return a;
}

template <typename Real>
Real floatReference(const Work& work, const std::vector<Real>& sources, Real scale) {
  Real result = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    const Real value = work.scales(i) ? sources[i] * scale : sources[i];
    result = i == 0 ? value : floatStep(work.spec.op, result, value);
  }
  if (work.divides()) result /= static_cast<Real>(work.spec.rankCount);
  return std::isnan(result) ? std::numeric_limits<Real>::quiet_NaN() : result;
}

template <typename Real, typename Bits>
uint64_t nativeReference(const Work& work, const std::vector<uint64_t>& sources) {
  std::vector<Real> values;
  for (const uint64_t bits : sources) {
    values.push_back(std::bit_cast<Real>(static_cast<Bits>(bits)));
  }
  const auto scale = static_cast<Bits>(bitsAt(work.spec.type, work.spec.preScale.bytes, 0));
  return std::bit_cast<Bits>(floatReference(work, values, std::bit_cast<Real>(scale)));
}

template <typename Format>
uint64_t codeReference(const Work& work, const std::vector<uint64_t>& sources) {
  static const SlowNarrow narrowSlowly(describe<Format>());
  const auto valueOfCode = [](uint64_t code) {
    return static_cast<float>(valueOf(describe<Format>(), static_cast<uint32_t>(code)));
  };
  std::vector<float> values;
  for (const uint64_t code : sources) values.push_back(valueOfCode(code));
  const float scale = valueOfCode(bitsAt(work.spec.type, work.spec.preScale.bytes, 0));
  return narrowSlowly(floatReference(work, values, scale));
}

inline uint64_t reference(const Work& work, const std::vector<uint64_t>& sources) {
  if (work.copies(sources.size())) return sources[0];
  switch (work.spec.type) {
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kInt64:
    case DataType::kUint64: return integerReference(work, sources);
    case DataType::kFloat32: return nativeReference<float, uint32_t>(work, sources);
    case DataType::kFloat64: return nativeReference<double, uint64_t>(work, sources);
    case DataType::kFloat16: return codeReference<Float16>(work, sources);
    case DataType::kBfloat16: return codeReference<Bfloat16>(work, sources);
    case DataType::kFloat8E4M3: return codeReference<Float8E4M3>(work, sources);
    case DataType::kFloat8E5M2: return codeReference<Float8E5M2>(work, sources);
  }
  return 0;
}

}  // namespace tutti::kernels::cpu
