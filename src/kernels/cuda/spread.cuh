// Copies a range to several places at once: a user's buffer, peers' slots.
#pragma once

#include "kernels/cuda/memory.cuh"
#include "kernels/cuda/session.cuh"

namespace tutti::kernels::cuda {

struct Spread {
  const std::byte* from;
  size_t bytes;
  std::byte* to;            // at any address; null: nowhere
  uint32_t peers;           // who gets it too, at slots[peer]
  std::byte* const* slots;  // aligned, with room for whole vectors
  int firstPeer;            // each rank begins with another, so that no rank is a hot spot
  int rankCount;
};

__device__ __forceinline__ void storeEach(const Spread& spread, size_t vector, const uint4& value) {
  for (int step = 0; step < spread.rankCount; ++step) {
    int peer = spread.firstPeer + step;
    if (peer >= spread.rankCount) peer -= spread.rankCount;
    if ((spread.peers & bit(peer)) != 0) {
      reinterpret_cast<uint4*>(spread.slots[peer])[vector] = value;
    }
  }
}

// All threads of the block. `transform` is applied to each vector on its way.
template <typename Transform>
__device__ __forceinline__ void run(const Spread& spread, const Transform& transform) {
  constexpr int kVectors = 4;  // loads in flight of a thread
  const bool isAlignedAll =
      isAligned<uint4>(spread.from) && (spread.to == nullptr || isAligned<uint4>(spread.to));
  const size_t whole = isAlignedAll ? spread.bytes / sizeof(uint4) : 0;
  const auto* from = reinterpret_cast<const uint4*>(spread.from);
  for (size_t base = threadIdx.x; base < whole; base += kVectors * blockDim.x) {
    uint4 values[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const size_t at = base + static_cast<size_t>(i) * blockDim.x;
      if (at < whole) values[i] = loadStaged(from + at);
    }
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const size_t at = base + static_cast<size_t>(i) * blockDim.x;
      if (at >= whole) break;
      values[i] = transform(values[i]);
      if (spread.to != nullptr) reinterpret_cast<uint4*>(spread.to)[at] = values[i];
      storeEach(spread, at, values[i]);
    }
  }
  for (size_t at = whole + threadIdx.x; at * sizeof(uint4) < spread.bytes; at += blockDim.x) {
    const size_t offset = at * sizeof(uint4);
    const auto rest = static_cast<int>(min(spread.bytes - offset, sizeof(uint4)));
    const uint4 value = transform(loadAny<uint4>(spread.from + offset, rest));
    if (spread.to != nullptr) storeAny(spread.to + offset, value, rest);
    storeEach(spread, at, value);
  }
}

}  // namespace tutti::kernels::cuda
