#include "values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "random.h"

namespace tutti::soak {
namespace {

struct FloatFormat {
  int mantissaBits;
  int exponentBits;
};

bool isFloat(ncclDataType_t type) { return type >= ncclFloat16; }

bool isSigned(ncclDataType_t type) {
  return type == ncclInt8 || type == ncclInt32 || type == ncclInt64;
}

FloatFormat formatOf(ncclDataType_t type) {
  switch (type) {
    case ncclFloat16: return {10, 5};
    case ncclBfloat16: return {7, 8};
    case ncclFloat8e4m3: return {3, 4};
    case ncclFloat8e5m2: return {2, 5};
    case ncclFloat32: return {23, 8};
    default: return {52, 11};
  }
}

// Finite values only.
double decode(ncclDataType_t type, uint64_t bits) {
  const FloatFormat format = formatOf(type);
  const int bias = (1 << (format.exponentBits - 1)) - 1;
  const uint64_t mantissa = bits & ((uint64_t{1} << format.mantissaBits) - 1);
  const auto exponent =
      static_cast<int>((bits >> format.mantissaBits) & ((uint64_t{1} << format.exponentBits) - 1));
  const bool isNegative = ((bits >> (format.mantissaBits + format.exponentBits)) & 1) != 0;
  const double fraction = std::ldexp(static_cast<double>(mantissa), -format.mantissaBits);
  const double value =
      exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
  return isNegative ? -value : value;
}

// Of a value that the type holds exactly as a normal number.
uint64_t encode(ncclDataType_t type, double value) {
  const FloatFormat format = formatOf(type);
  const uint64_t sign = std::signbit(value) ? 1 : 0;
  uint64_t rest = 0;
  if (value != 0) {
    const int bias = (1 << (format.exponentBits - 1)) - 1;
    int exponent = 0;
    const double fraction = std::frexp(std::fabs(value), &exponent);  // in [0.5, 1)
    const auto mantissa = static_cast<uint64_t>(std::ldexp(2 * fraction - 1, format.mantissaBits));
    rest = (static_cast<uint64_t>(exponent - 1 + bias) << format.mantissaBits) | mantissa;
  }
  return (sign << (format.mantissaBits + format.exponentBits)) | rest;
}

uint64_t cut(ncclDataType_t type, uint64_t bits) {
  const size_t width = 8 * sizeOf(type);
  return width == 64 ? bits : bits & ((uint64_t{1} << width) - 1);
}

int64_t signExtended(ncclDataType_t type, uint64_t bits) {
  const size_t unused = 64 - 8 * sizeOf(type);
  return static_cast<int64_t>(bits << unused) >> unused;
}

bool folds(Verb verb) {
  return verb == Verb::kAllReduce || verb == Verb::kReduce || verb == Verb::kReduceScatter;
}

uint64_t hashOf(const Call& call, int place, size_t i) {
  return mix(call.id ^ (static_cast<uint64_t>(place) << 48) ^ (i * 0x2545f4914f6cdd1d));
}

// A whole number: sums and products of `teamSize` of these have no rounding in any order.
double floatInput(const Call& call, int teamSize, int place, size_t i) {
  const uint64_t hash = hashOf(call, place, i);
  if (call.fold == Fold::kProd) {
    const bool isLarge =
        static_cast<int>(hashOf(call, -1, i) % static_cast<uint64_t>(teamSize)) == place;
    const double size = isLarge ? 1 + static_cast<double>(hash % 3) : 1;
    return (hash & 8) != 0 ? size : -size;
  }
  const double exact =
      std::ldexp(1, formatOf(call.type).mantissaBits + 1) / (call.fold == Fold::kPreMulSum ? 2 : 1);
  // Of more ranks than a small type can count, some bring nothing; others for each element.
  const uint64_t turn =
      (hashOf(call, -1, i) + static_cast<uint64_t>(place)) % static_cast<uint64_t>(teamSize);
  if (static_cast<double>(turn) >= exact) return 0;
  const double share = std::floor(exact / teamSize);
  const auto limit = static_cast<int64_t>(std::fmin(std::fmax(share, 1), 1e6));
  return static_cast<double>(static_cast<int64_t>(hash % static_cast<uint64_t>(2 * limit + 1)) -
                             limit);
}

double foldFloats(const Call& call, int teamSize, size_t i) {
  double result = 0;
  for (int place = 0; place < teamSize; ++place) {
    double value = floatInput(call, teamSize, place, i);
    if (call.fold == Fold::kPreMulSum) value *= decode(call.type, scalarOf(call, place));
    if (place == 0) {
      result = value;
    } else if (call.fold == Fold::kProd) {
      result *= value;
    } else if (call.fold == Fold::kMax) {
      result = std::fmax(result, value);
    } else if (call.fold == Fold::kMin) {
      result = std::fmin(result, value);
    } else {
      result += value;
    }
  }
  return call.fold == Fold::kAvg ? result / teamSize : result;
}

bool isBefore(ncclDataType_t type, uint64_t a, uint64_t b) {
  return isSigned(type) ? signExtended(type, a) < signExtended(type, b) : a < b;
}

uint64_t foldIntegers(const Call& call, int teamSize, size_t i) {
  uint64_t result = 0;
  for (int place = 0; place < teamSize; ++place) {
    uint64_t value = inputElement(call, teamSize, place, i);
    if (call.fold == Fold::kPreMulSum) value = cut(call.type, value * scalarOf(call, place));
    const bool isFirst = place == 0;
    switch (call.fold) {
      case Fold::kProd: result = isFirst ? value : result * value; break;
      case Fold::kMax:
        if (isFirst || isBefore(call.type, result, value)) result = value;
        break;
      case Fold::kMin:
        if (isFirst || isBefore(call.type, value, result)) result = value;
        break;
      case Fold::kSum:
      case Fold::kAvg:
      case Fold::kPreMulSum: result += value; break;
    }
    result = cut(call.type, result);
  }
  if (call.fold != Fold::kAvg) return result;
  if (!isSigned(call.type)) return result / static_cast<uint64_t>(teamSize);
  return cut(call.type, static_cast<uint64_t>(signExtended(call.type, result) / teamSize));
}

bool isFolded(const Call& call, int teamSize, size_t i, uint64_t bits, uint64_t& wanted) {
  if (!isFloat(call.type)) {
    wanted = foldIntegers(call, teamSize, i);
    return bits == wanted;
  }
  const double value = foldFloats(call, teamSize, i);
  if (call.fold != Fold::kAvg) {
    wanted = encode(call.type, value == 0 ? 0.0 : value);
    return bits == wanted || decode(call.type, bits) == value;  // either sign of zero
  }
  // The sum is exact and the quotient rounded once: within one unit in the last place.
  wanted = encode(call.type, value == 0 ? 0.0 : value);
  const double unit = std::ldexp(std::fabs(value), -formatOf(call.type).mantissaBits);
  return std::fabs(decode(call.type, bits) - value) <= unit;
}

// Whose element, and which of its, is element `i` of the output at `place`.
std::pair<int, size_t> sourceOf(const Call& call, int teamSize, int place, size_t i) {
  const size_t block = call.count > 0 ? i / call.count : 0;
  const auto self = static_cast<size_t>(place);
  switch (call.verb) {
    case Verb::kAllGather:
    case Verb::kGather: return {static_cast<int>(block), i % call.count};
    case Verb::kAlltoAll: return {static_cast<int>(block), self * call.count + i % call.count};
    case Verb::kScatter: return {call.root, self * call.count + i};
    case Verb::kExchange: {
      size_t rest = i;
      for (int from = 0; from < teamSize; ++from) {
        const size_t count = exchangeCount(call, from, place);
        if (rest < count) {
          for (int to = 0; to < place; ++to) rest += exchangeCount(call, from, to);
          return {from, rest};
        }
        rest -= count;
      }
      return {0, 0};
    }
    case Verb::kBroadcast:
    case Verb::kBcast:
    case Verb::kAllReduce:
    case Verb::kReduce:
    case Verb::kReduceScatter: break;
  }
  return {call.root, i};
}

}  // namespace

size_t sizeOf(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    default: return 8;
  }
}

uint64_t readElement(const std::byte* at, size_t bytes) {
  uint64_t bits = 0;
  std::memcpy(&bits, at, bytes);
  return bits;
}

void writeElement(std::byte* at, size_t bytes, uint64_t bits) { std::memcpy(at, &bits, bytes); }

uint64_t inputElement(const Call& call, int teamSize, int place, size_t i) {
  const uint64_t hash = hashOf(call, place, i);
  if (!folds(call.verb)) return cut(call.type, hash);
  if (isFloat(call.type)) return encode(call.type, floatInput(call, teamSize, place, i));
  if (call.fold != Fold::kAvg) return cut(call.type, hash);
  // The sum fits a type of 8 bits.
  const int64_t most = std::min<int64_t>(16, 256 / teamSize);
  const int64_t small = static_cast<int64_t>(hash % static_cast<uint64_t>(most)) -
                        (isSigned(call.type) ? most / 2 : 0);
  return cut(call.type, static_cast<uint64_t>(small));
}

uint64_t scalarOf(const Call& call, int place) {
  const uint64_t hash = hashOf(call, place, ~size_t{0});
  if (!isFloat(call.type)) return cut(call.type, hash % 7);
  const double size = sizeOf(call.type) > 1 && (hash & 2) != 0 ? 2 : 1;
  return encode(call.type, (hash & 1) != 0 ? size : -size);
}

size_t exchangeCount(const Call& call, int from, int to) {
  const uint64_t hash = hashOf(call, from, static_cast<size_t>(to) + 1);
  return hash % 4 == 0 ? 0 : (hash >> 8) % (call.count + 1);
}

size_t inputCount(const Call& call, int teamSize, int place) {
  const auto ranks = static_cast<size_t>(teamSize);
  switch (call.verb) {
    case Verb::kReduceScatter:
    case Verb::kAlltoAll: return ranks * call.count;
    case Verb::kScatter: return place == call.root ? ranks * call.count : 0;
    case Verb::kBroadcast:
    case Verb::kBcast: return place == call.root ? call.count : 0;
    case Verb::kExchange: {
      size_t total = 0;
      for (int to = 0; to < teamSize; ++to) total += exchangeCount(call, place, to);
      return total;
    }
    case Verb::kAllReduce:
    case Verb::kReduce:
    case Verb::kAllGather:
    case Verb::kGather: break;
  }
  return call.count;
}

size_t outputCount(const Call& call, int teamSize, int place) {
  const auto ranks = static_cast<size_t>(teamSize);
  switch (call.verb) {
    case Verb::kAllGather:
    case Verb::kAlltoAll: return ranks * call.count;
    case Verb::kGather: return place == call.root ? ranks * call.count : 0;
    case Verb::kReduce: return place == call.root ? call.count : 0;
    case Verb::kExchange: {
      size_t total = 0;
      for (int from = 0; from < teamSize; ++from) total += exchangeCount(call, from, place);
      return total;
    }
    case Verb::kAllReduce:
    case Verb::kBroadcast:
    case Verb::kBcast:
    case Verb::kReduceScatter:
    case Verb::kScatter: break;
  }
  return call.count;
}

bool isRight(const Call& call, int teamSize, int place, size_t i, uint64_t bits, uint64_t& wanted) {
  if (folds(call.verb)) {
    const size_t first =
        call.verb == Verb::kReduceScatter ? static_cast<size_t>(place) * call.count : 0;
    return isFolded(call, teamSize, first + i, bits, wanted);
  }
  const auto [from, at] = sourceOf(call, teamSize, place, i);
  wanted = inputElement(call, teamSize, from, at);
  return bits == wanted;
}

}  // namespace tutti::soak
