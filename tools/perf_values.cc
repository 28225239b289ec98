#include "tools/perf_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace tutti::tools {
namespace {

// A binary floating format narrower than float.
struct SmallFloat {
  int exponentBits;
  int fractionBits;
  double largest;  // finite
};

constexpr SmallFloat kHalf = {5, 10, 65504.0};
constexpr SmallFloat kBfloat = {8, 7, 0x1.fep127};
constexpr SmallFloat kE4M3 = {4, 3, 448.0};
constexpr SmallFloat kE5M2 = {5, 2, 57344.0};

int bias(const SmallFloat& format) { return (1 << (format.exponentBits - 1)) - 1; }

uint32_t encodeSmall(const SmallFloat& format, double value, bool saturates) {
  const int width = 1 + format.exponentBits + format.fractionBits;
  const uint32_t sign = std::signbit(value) ? 1U << (width - 1) : 0;
  const uint32_t infinity = ((1U << format.exponentBits) - 1U) << format.fractionBits;
  if (std::isnan(value)) return sign | infinity | ((1U << format.fractionBits) - 1U);
  double magnitude = std::fabs(value);
  if (saturates) magnitude = std::min(magnitude, format.largest);
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  // The exponent of the last kept bit; below the smallest normal number it no longer falls.
  const int last = std::max(exponent - 1, 1 - bias(format)) - format.fractionBits;
  const double units = std::nearbyint(std::ldexp(magnitude, -last));  // to nearest even
  if (std::ldexp(units, last) > format.largest) return sign | infinity;
  const auto fraction = static_cast<uint32_t>(units);
  const uint32_t hidden = 1U << format.fractionBits;
  if (fraction < hidden) return sign | fraction;
  const int field = last + format.fractionBits + bias(format);
  // Rounding up to the next power of two carries into the exponent by plain addition.
  return sign | ((static_cast<uint32_t>(field) << format.fractionBits) + (fraction - hidden));
}

double decodeSmall(const SmallFloat& format, uint32_t bits, bool hasInfinity) {
  const int width = 1 + format.exponentBits + format.fractionBits;
  const uint32_t mask = (1U << format.fractionBits) - 1U;
  const uint32_t fraction = bits & mask;
  const uint32_t top = (1U << format.exponentBits) - 1U;
  const uint32_t field = (bits >> format.fractionBits) & top;
  const double sign = (bits >> (width - 1)) != 0 ? -1.0 : 1.0;
  if (field == top && hasInfinity) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if (field == top && fraction == mask) return std::numeric_limits<double>::quiet_NaN();
  if (field == 0) {
    return sign * std::ldexp(static_cast<double>(fraction), 1 - bias(format) - format.fractionBits);
  }
  const uint32_t significand = fraction | (1U << format.fractionBits);
  return sign * std::ldexp(static_cast<double>(significand),
                           static_cast<int>(field) - bias(format) - format.fractionBits);
}

template <typename T>
void storeBits(T value, unsigned char* element) {
  std::memcpy(element, &value, sizeof value);
}

template <typename T>
T loadBits(const unsigned char* element) {
  T value;
  std::memcpy(&value, element, sizeof value);
  return value;
}

// Significant bits: integers up to 2^precision are exact.
int precision(DataType type) {
  switch (type) {
    case DataType::kFloat16: return 11;
    case DataType::kFloat32: return 24;
    case DataType::kFloat64: return 53;
    case DataType::kBfloat16: return 8;
    case DataType::kFloat8E4M3: return 4;
    case DataType::kFloat8E5M2: return 3;
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kInt64:
    case DataType::kUint64: return 0;
  }
  return 0;
}

double epsilon(DataType type) { return std::ldexp(1.0, 1 - precision(type)); }

bool isSigned(DataType type) {
  return type == DataType::kInt8 || type == DataType::kInt32 || type == DataType::kInt64;
}

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014), applied to seed, rank and index in turn.
uint64_t mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

uint64_t randomBits(const ValueSpec& spec, int rank, size_t index) {
  return mix(mix(mix(spec.seed) + static_cast<uint64_t>(rank)) + index);
}

// How the terms of a floating sum are kept exact.
struct SumPlan {
  int64_t magnitude;  // terms are whole numbers from 1 to this, either sign
  int freeRanks;      // from this rank on, each odd one takes back what the one before it added
};

// All ranks' terms together stay within 2^precision where that leaves at least 1 a rank. Narrow
// types (fp8) with many ranks cannot have that: there the later ranks cancel pairwise, so that any
// run of neighbouring ranks, which is what rings and trees fold, stays exact.
SumPlan planSum(const ValueSpec& spec) {
  const int64_t weight = spec.op == ReduceOp::kPreMulSum ? 2 : 1;
  const int64_t limit = int64_t{1} << precision(spec.type);
  const int64_t share = limit / (weight * spec.rankCount);
  if (share >= 1) return {std::min(share, int64_t{1} << 20), spec.rankCount};
  return {1, static_cast<int>(std::max<int64_t>(limit / (2 * weight), 1))};
}

double sumTerm(const ValueSpec& spec, int rank, size_t index) {
  const SumPlan plan = planSum(spec);
  const bool takesBack = rank >= plan.freeRanks && (rank - plan.freeRanks) % 2 == 1;
  const uint64_t bits = randomBits(spec, takesBack ? rank - 1 : rank, index);
  const auto magnitude = static_cast<double>(
      1 + static_cast<int64_t>((bits >> 8) % static_cast<uint64_t>(plan.magnitude)));
  return ((bits & 1) != 0) != takesBack ? -magnitude : magnitude;
}

// Powers of two of either sign, and 1.5 at one rank an element: exact in every type and order.
double prodFactor(const ValueSpec& spec, int rank, size_t index) {
  constexpr int kScaledRanks = 4;  // 2^±4 is far inside the range of e4m3
  const uint64_t bits = randomBits(spec, rank, index);
  double factor = (bits & 1) != 0 ? -1.0 : 1.0;
  if (rank < kScaledRanks) factor = std::ldexp(factor, static_cast<int>((bits >> 8) % 3) - 1);
  const bool isOdd = index % static_cast<size_t>(spec.rankCount) == static_cast<size_t>(rank);
  return isOdd ? factor * 1.5 : factor;
}

double floatInput(const ValueSpec& spec, int rank, size_t index) {
  switch (*spec.op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
    case ReduceOp::kPreMulSum: return sumTerm(spec, rank, index);
    case ReduceOp::kProd: return prodFactor(spec, rank, index);
    case ReduceOp::kMax:
    case ReduceOp::kMin: break;
  }
  const uint64_t bits = randomBits(spec, rank, index);
  const uint64_t range = uint64_t{1} << std::min(precision(spec.type), 30);
  const auto magnitude = static_cast<double>(1 + (bits >> 8) % range);
  return (bits & 1) != 0 ? -magnitude : magnitude;
}

int bitWidth(DataType type) { return static_cast<int>(8 * sizeOf(type)); }

// Keeps the low bits that the type has, as the type's value.
uint64_t wrap(DataType type, uint64_t value) {
  const int unused = 64 - bitWidth(type);
  if (isSigned(type)) return static_cast<uint64_t>(static_cast<int64_t>(value << unused) >> unused);
  return (value << unused) >> unused;
}

uint64_t integerInput(const ValueSpec& spec, int rank, size_t index) {
  const uint64_t bits = randomBits(spec, rank, index);
  if (spec.op == ReduceOp::kProd) return wrap(spec.type, bits | 1);  // even factors soon give 0
  if (spec.op == ReduceOp::kAvg) {
    // Sums that wrap would make the average a matter of definition.
    const int valueBits = bitWidth(spec.type) - (isSigned(spec.type) ? 1 : 0);
    const uint64_t largest = (~uint64_t{0} >> (64 - valueBits));
    const uint64_t share = std::max<uint64_t>(largest / static_cast<uint64_t>(spec.rankCount), 1);
    const uint64_t magnitude = 1 + (bits >> 8) % share;
    return isSigned(spec.type) && (bits & 1) != 0 ? uint64_t{0} - magnitude : magnitude;
  }
  const uint64_t value = wrap(spec.type, bits);
  return value == 0 ? 1 : value;
}

uint64_t foldIntegers(const ValueSpec& spec, uint64_t left, uint64_t right) {
  const auto signedLeft = static_cast<int64_t>(left);
  const auto signedRight = static_cast<int64_t>(right);
  const bool isLess = isSigned(spec.type) ? signedLeft < signedRight : left < right;
  switch (*spec.op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
    case ReduceOp::kPreMulSum: return wrap(spec.type, left + right);
    case ReduceOp::kProd: return wrap(spec.type, left * right);
    case ReduceOp::kMax: return isLess ? right : left;
    case ReduceOp::kMin: return isLess ? left : right;
  }
  return 0;
}

uint64_t reduceIntegers(const ValueSpec& spec, size_t index) {
  const bool isScaled = spec.op == ReduceOp::kPreMulSum;
  uint64_t total = 0;
  for (int rank = 0; rank < spec.rankCount; ++rank) {
    uint64_t value = integerInput(spec, rank, index);
    if (isScaled) value = wrap(spec.type, value * static_cast<uint64_t>(preMulScalar(spec, rank)));
    total = rank == 0 ? value : foldIntegers(spec, total, value);
  }
  if (spec.op != ReduceOp::kAvg) return total;
  if (!isSigned(spec.type)) return total / static_cast<uint64_t>(spec.rankCount);
  return static_cast<uint64_t>(static_cast<int64_t>(total) / spec.rankCount);  // toward zero
}

struct Reference {
  double value = 0;
  double magnitudes = 0;  // sum of the terms' magnitudes
};

Reference reduceFloats(const ValueSpec& spec, size_t index) {
  Reference result;
  for (int rank = 0; rank < spec.rankCount; ++rank) {
    double value = floatInput(spec, rank, index);
    if (spec.op == ReduceOp::kPreMulSum) value *= preMulScalar(spec, rank);
    result.magnitudes += std::fabs(value);
    if (rank == 0) {
      result.value = value;
      continue;
    }
    switch (*spec.op) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg:
      case ReduceOp::kPreMulSum: result.value += value; break;
      case ReduceOp::kProd: result.value *= value; break;
      case ReduceOp::kMax: result.value = std::max(result.value, value); break;
      case ReduceOp::kMin: result.value = std::min(result.value, value); break;
    }
  }
  if (spec.op == ReduceOp::kAvg) result.value /= spec.rankCount;
  return result;
}

// How far a right result may be off. Sums and products are exact (planSum, prodFactor) unless the
// type is too narrow for the rank count and the fold order is not one of neighbours. An average may
// be divided before or after the sum: two units in the last place of the terms' mean.
double toleranceOf(const ValueSpec& spec, const Reference& reference) {
  const double ranks = spec.rankCount;
  const double unit = epsilon(spec.type);
  const bool isSum =
      spec.op == ReduceOp::kSum || spec.op == ReduceOp::kAvg || spec.op == ReduceOp::kPreMulSum;
  const bool isExact = !isSum || planSum(spec).freeRanks == spec.rankCount;
  const double orderError = isExact ? 0 : unit * ranks;
  if (spec.op != ReduceOp::kAvg) return orderError;
  const double mean = std::max(std::fabs(reference.value), reference.magnitudes / ranks);
  return 2 * unit * mean + orderError / ranks;
}

void storeInteger(DataType type, uint64_t value, unsigned char* element) {
  static_assert(std::endian::native == std::endian::little);  // the low bytes come first
  std::memcpy(element, &value, sizeOf(type));
}

}  // namespace

bool isFloating(DataType type) { return precision(type) != 0; }

void storeElement(DataType type, double value, unsigned char* element) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kInt64:
      storeInteger(type, static_cast<uint64_t>(static_cast<int64_t>(value)), element);
      return;
    case DataType::kUint64: storeInteger(type, static_cast<uint64_t>(value), element); return;
    case DataType::kFloat32: storeBits(static_cast<float>(value), element); return;
    case DataType::kFloat64: storeBits(value, element); return;
    case DataType::kFloat16:
      storeBits(static_cast<uint16_t>(encodeSmall(kHalf, value, false)), element);
      return;
    case DataType::kBfloat16:
      storeBits(static_cast<uint16_t>(encodeSmall(kBfloat, value, false)), element);
      return;
    case DataType::kFloat8E4M3:
      storeBits(static_cast<uint8_t>(encodeSmall(kE4M3, value, true)), element);
      return;
    case DataType::kFloat8E5M2:
      storeBits(static_cast<uint8_t>(encodeSmall(kE5M2, value, true)), element);
      return;
  }
}

double loadElement(DataType type, const unsigned char* element) {
  switch (type) {
    case DataType::kInt8: return loadBits<int8_t>(element);
    case DataType::kUint8: return loadBits<uint8_t>(element);
    case DataType::kInt32: return loadBits<int32_t>(element);
    case DataType::kUint32: return loadBits<uint32_t>(element);
    case DataType::kInt64: return static_cast<double>(loadBits<int64_t>(element));
    case DataType::kUint64: return static_cast<double>(loadBits<uint64_t>(element));
    case DataType::kFloat32: return static_cast<double>(loadBits<float>(element));
    case DataType::kFloat64: return loadBits<double>(element);
    case DataType::kFloat16: return decodeSmall(kHalf, loadBits<uint16_t>(element), true);
    case DataType::kBfloat16: return decodeSmall(kBfloat, loadBits<uint16_t>(element), true);
    case DataType::kFloat8E4M3: return decodeSmall(kE4M3, loadBits<uint8_t>(element), false);
    case DataType::kFloat8E5M2: return decodeSmall(kE5M2, loadBits<uint8_t>(element), true);
  }
  return 0;
}

int preMulScalar(const ValueSpec& spec, int rank) {
  const bool isFree = !isFloating(spec.type) || rank < planSum(spec).freeRanks;
  return isFree && rank % 2 == 1 ? 2 : 1;
}

Pattern makeInput(const ValueSpec& spec, int rank) {
  const size_t elementBytes = sizeOf(spec.type);
  Pattern pattern{.type = spec.type, .bits = {}, .reference = {}, .tolerance = {}};
  pattern.bits.resize(kPeriod * elementBytes);
  for (size_t index = 0; index < kPeriod; ++index) {
    unsigned char* element = pattern.bits.data() + index * elementBytes;
    if (spec.op && isFloating(spec.type)) {
      storeElement(spec.type, floatInput(spec, rank, index), element);
    } else {
      storeInteger(spec.type, integerInput(spec, rank, index), element);
    }
  }
  return pattern;
}

Pattern makeReduced(const ValueSpec& spec) {
  const size_t elementBytes = sizeOf(spec.type);
  Pattern pattern{.type = spec.type, .bits = {}, .reference = {}, .tolerance = {}};
  pattern.bits.resize(kPeriod * elementBytes);
  const bool floating = isFloating(spec.type);
  if (floating) {
    pattern.reference.resize(kPeriod);
    pattern.tolerance.resize(kPeriod);
  }
  for (size_t index = 0; index < kPeriod; ++index) {
    unsigned char* element = pattern.bits.data() + index * elementBytes;
    if (!floating) {
      storeInteger(spec.type, reduceIntegers(spec, index), element);
      continue;
    }
    const Reference reference = reduceFloats(spec, index);
    storeElement(spec.type, reference.value, element);
    pattern.reference[index] = reference.value;
    pattern.tolerance[index] = toleranceOf(spec, reference);
  }
  return pattern;
}

}  // namespace tutti::tools
