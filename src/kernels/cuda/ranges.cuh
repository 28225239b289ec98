// What movers do with bytes: one range to several places, several ranges each to its own. Buffers
// of users may lie at any address; slots are aligned, with room for whole vectors.
#pragma once

#include <type_traits>

#include "kernels/cuda/memory.cuh"
#include "kernels/cuda/pump.cuh"

namespace tutti::kernels::cuda {

struct AsIs {
  __device__ __forceinline__ uint4 operator()(const uint4& raw) const { return raw; }
};

// One source; an optional place at any address, and up to kPeers slots (null: none).
template <int kPeers>
struct Spread {
  const std::byte* from;
  std::byte* to;
  uint32_t bytes;
  uint4* slots[kPeers];

  __device__ __forceinline__ uint32_t wholeVectors() const {
    const bool isAlignedAll = isAligned<uint4>(from) && (to == nullptr || isAligned<uint4>(to));
    return isAlignedAll ? bytes / static_cast<uint32_t>(sizeof(uint4)) : 0;
  }
  // At vector base + i * kStride, of which i is known when compiled.
  template <int kStride>
  __device__ __forceinline__ void storeSlots(uint32_t base, int i, const uint4& value) const {
#pragma unroll
    for (int j = 0; j < kPeers; ++j) {
      if (slots[j] != nullptr) (slots[j] + base)[i * kStride] = value;
    }
  }
};

// Calls batch(base, whole) with the first of each thread's kVectors vectors, kMovers apart: whole
// batches with std::true_type, whose accesses need no test, then what is left.
template <int kVectors, typename Batch>
__device__ __forceinline__ void eachBatch(uint32_t vectors, uint32_t mover, const Batch& batch) {
  uint32_t base = mover;
#pragma unroll 1
  for (; base - mover + kVectors * kMovers <= vectors; base += kVectors * kMovers) {
    batch(base, std::true_type());
  }
  if (base < vectors) batch(base, std::false_type());
}

template <int kVectors, int kPeers, typename Transform>
__device__ __forceinline__ void spread(const Spread<kPeers>& range, uint32_t mover,
                                       const Transform& transform) {
  const uint32_t whole = range.wholeVectors();
  const auto* from = reinterpret_cast<const uint4*>(range.from);
  auto* to = reinterpret_cast<uint4*>(range.to);
  eachBatch<kVectors>(whole, mover, [&](uint32_t base, auto isWhole) {
    const uint4* first = from + base;
    uint4 values[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      values[i] = loadStagedIf(isWhole || base + i * kMovers < whole, first + i * kMovers);
    }
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (!isWhole && base + i * kMovers >= whole) break;
      values[i] = transform(values[i]);
      range.template storeSlots<kMovers>(base, i, values[i]);
      if (to != nullptr) (to + base)[i * kMovers] = values[i];
    }
  });
#pragma unroll 1
  for (uint32_t at = whole + mover; at * sizeof(uint4) < range.bytes; at += kMovers) {
    const size_t offset = at * sizeof(uint4);
    const auto rest = static_cast<int>(min(range.bytes - offset, sizeof(uint4)));
    const uint4 value = transform(loadAny<uint4>(range.from + offset, rest));
    range.template storeSlots<0>(at, 0, value);
    if (range.to != nullptr) storeAny(range.to + offset, value, rest);
  }
}

// A source and a destination, both at any address.
struct Range {
  const std::byte* from;
  std::byte* to;
  uint32_t bytes;
};

// Several at once, so that the loads of all are under way together.
template <int kVectors, int kRanges, typename Transform>
__device__ __forceinline__ void copy(const Range* ranges, uint32_t mover,
                                     const Transform& transform) {
  uint32_t whole[kRanges];
  const uint4* from[kRanges];
  uint4* to[kRanges];
  uint32_t least = ~0u;
#pragma unroll
  for (int j = 0; j < kRanges; ++j) {
    const Range& range = ranges[j];
    const bool isAlignedAll = isAligned<uint4>(range.from) && isAligned<uint4>(range.to);
    whole[j] = isAlignedAll ? range.bytes / static_cast<uint32_t>(sizeof(uint4)) : 0;
    from[j] = reinterpret_cast<const uint4*>(range.from);
    to[j] = reinterpret_cast<uint4*>(range.to);
    least = min(least, range.bytes != 0 ? whole[j] : ~0u);
  }
  // What all of them have, together; what one has besides, by itself.
  if (least == ~0u) return;
  eachBatch<kVectors>(least, mover, [&](uint32_t base, auto isWhole) {
    uint4 values[kRanges][kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
#pragma unroll
      for (int j = 0; j < kRanges; ++j) {
        const bool isThere = whole[j] != 0 && (isWhole || base + i * kMovers < least);
        values[j][i] = loadStagedIf(isThere, (from[j] + base) + i * kMovers);
      }
    }
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
#pragma unroll
      for (int j = 0; j < kRanges; ++j) {
        if (whole[j] != 0 && (isWhole || base + i * kMovers < least)) {
          (to[j] + base)[i * kMovers] = transform(values[j][i]);
        }
      }
    }
  });
#pragma unroll 1
  for (int j = 0; j < kRanges; ++j) {
    const Range range = ranges[j];
#pragma unroll 1
    for (uint32_t at = least + mover; at * sizeof(uint4) < range.bytes; at += kMovers) {
      const size_t offset = at * sizeof(uint4);
      const auto rest = static_cast<int>(min(range.bytes - offset, sizeof(uint4)));
      storeAny(range.to + offset, transform(loadAny<uint4>(range.from + offset, rest)), rest);
    }
  }
}

}  // namespace tutti::kernels::cuda
