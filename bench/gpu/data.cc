#include "data.h"

#include <cstring>

namespace tutti::bench {

uint64_t makeBits(DataType type, std::mt19937_64& random) {
  const uint64_t any = random();
  if (any % 61 == 0) return random();
  const double value = (static_cast<double>(any >> 11) * 0x1p-53 - 0.5) * 6.0;
  const auto real = static_cast<float>(value);
  uint32_t word = 0;
  std::memcpy(&word, &real, 4);
  uint64_t bits = 0;
  switch (type) {
    case DataType::kFloat32: return word;
    case DataType::kFloat64: std::memcpy(&bits, &value, 8); return bits;
    case DataType::kBfloat16: return word >> 16;
    case DataType::kFloat16:
      return (word >> 16 & 0x8000) |
             ((word & 0x7fffffff) < 0x38800000 ? 0 : ((word & 0x7fffffff) - 0x38000000) >> 13);
    case DataType::kFloat8E4M3: return any & 0xbf;
    case DataType::kFloat8E5M2: return any & 0xcf;
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kInt64:
    case DataType::kUint64: return any;
  }
  return any;
}

Bytes makeData(DataType type, size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  const size_t size = sizeOf(type);
  Bytes data(count * size);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t bits = makeBits(type, random);
    std::memcpy(data.data() + i * size, &bits, size);
  }
  return data;
}

}  // namespace tutti::bench
