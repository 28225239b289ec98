// All-gathers and all-to-alls into outputs that all ranks share (sharing.cuh), without pumps: a
// rank that writes there needs no slot and no credit, so all threads of the block store, and nobody
// waits between the agreement and the end.
//
// How a rank divides its stores among its blocks is its own affair: the call ends when each block
// of each writer has said that it is through (finish). So ranks that store so and ranks whose pumps
// do may meet.
#pragma once

#include "kernels/cuda/memory.cuh"
#include "kernels/cuda/session.cuh"

namespace tutti::kernels::cuda {

inline constexpr int kPlainVectors = 4;  // loads of a thread under way

// One source to several places; null: none. All are aligned. The blocks of the call take turns
// of a vector a thread, so that short vectors have work for all of them.
template <int kPlaces>
__device__ __forceinline__ void storeTo(uint4* const (&places)[kPlaces], const uint4* from,
                                        uint64_t vectors, int blocks) {
  const uint64_t stride = uint64_t{blockDim.x} * static_cast<unsigned>(blocks);
#pragma unroll 1
  for (uint64_t base = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; base < vectors;
       base += kPlainVectors * stride) {
    uint4 values[kPlainVectors];
#pragma unroll
    for (int i = 0; i < kPlainVectors; ++i)
      values[i] = loadStagedIf(base + i * stride < vectors, from + base + i * stride);
#pragma unroll
    for (int i = 0; i < kPlainVectors; ++i) {
      if (base + i * stride >= vectors) break;
#pragma unroll
      for (int j = 0; j < kPlaces; ++j) {
        if (places[j] != nullptr) places[j][base + i * stride] = values[i];
      }
    }
  }
}

// Whether a call of shared outputs may go so; they are aligned.
__device__ __forceinline__ bool isPlain(const GpuCall& call) {
  const bool moves =
      call.collective == Collective::kAllGather || call.collective == Collective::kAllToAll;
  return call.storesPlainly && moves && isAligned<uint4>(static_cast<const std::byte*>(call.input));
}

// By all threads of the block. Call is a SlotCall; peers are taken from the next one on, so that
// none is a hot spot.
template <int kMost, typename Call>
__device__ __forceinline__ void storePlainly(const Call& slots) {
  const GpuView& view = slots.view;
  const auto vectorsAt = [](std::byte* at) { return reinterpret_cast<uint4*>(at); };
  const auto sourceAt = [](const std::byte* at) { return reinterpret_cast<const uint4*>(at); };
  const uint64_t vectors = slots.blockBytes / sizeof(uint4);
  const int blocks = slots.call.blocks;
  if (slots.call.collective == Collective::kAllGather) {
    uint4* places[kMost] = {};
    const uint4* from = sourceAt(slots.input(view.rank, 0));
#pragma unroll
    for (int j = 0; j < kMost; ++j) {
      const int peer = (view.rank + 1 + j) % view.rankCount;
      if (j + 1 < view.rankCount) places[j] = vectorsAt(slots.theirs(peer, 0));
    }
    uint4* own = vectorsAt(slots.output(view.rank, 0));
    if (own != from) places[kMost - 1] = own;
    storeTo(places, from, vectors, blocks);
    return;
  }
#pragma unroll 1
  for (int j = 1; j <= view.rankCount; ++j) {
    const int peer = (view.rank + j) % view.rankCount;
    std::byte* to = peer == view.rank ? slots.output(peer, 0) : slots.theirs(peer, 0);
    uint4* const places[1] = {vectorsAt(to)};
    storeTo(places, sourceAt(slots.input(peer, 0)), vectors, blocks);
  }
}

}  // namespace tutti::kernels::cuda
