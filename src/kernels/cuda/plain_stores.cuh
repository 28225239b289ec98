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

// A rank's block of each peer's, and of its own: from where to where; null: nothing to do. All are
// aligned.
template <int kMost>
struct PlainPlaces {
  const uint4* from[kMost] = {};
  uint4* to[kMost] = {};
};

// Loads of a thread under way are 4 where all places have one source, else 8. The blocks of the
// call take turns of a vector a thread, so that short vectors have work for all of them; and all
// places go at once: those of the own GPU cost nothing beside the link.
template <bool kHasOneSource, int kMost>
__device__ __forceinline__ void storeAll(const PlainPlaces<kMost>& places, uint64_t vectors,
                                         int blocks) {
  constexpr int kSources = kHasOneSource ? 1 : kMost;
  constexpr int kVectors = kHasOneSource ? 4 : 8 / kMost;
  const uint64_t stride = uint64_t{blockDim.x} * static_cast<unsigned>(blocks);
#pragma unroll 1
  for (uint64_t base = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; base < vectors;
       base += kVectors * stride) {
    uint4 values[kVectors][kSources];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const uint64_t at = base + i * stride;
#pragma unroll
      for (int j = 0; j < kSources; ++j)
        values[i][j] = loadStagedIf(at < vectors && places.from[j] != nullptr, places.from[j] + at);
    }
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const uint64_t at = base + i * stride;
      if (at >= vectors) break;
#pragma unroll
      for (int j = 0; j < kMost; ++j) {
        if (places.to[j] != nullptr) places.to[j][at] = values[i][kHasOneSource ? 0 : j];
      }
    }
  }
}

// Whether a call of shared outputs may go so; they are aligned.
__device__ __forceinline__ bool isPlain(const GpuCall& call) {
  const bool moves =
      call.collective == Collective::kAllGather || call.collective == Collective::kAllToAll;
  return moves && isAligned<uint4>(static_cast<const std::byte*>(call.input));
}

// By all threads of the block. Call is a SlotCall; peers are taken from the next one on, so that
// none is a hot spot.
template <int kMost, typename Call>
__device__ __forceinline__ void storePlainly(const Call& slots) {
  const GpuView& view = slots.view;
  const bool gathers = slots.call.collective == Collective::kAllGather;
  PlainPlaces<kMost> places;
#pragma unroll
  for (int j = 0; j < kMost; ++j) {
    if (j >= view.rankCount) break;
    const int peer = (view.rank + 1 + j) % view.rankCount;
    std::byte* to = peer == view.rank ? slots.output(peer, 0) : slots.theirs(peer, 0);
    const std::byte* from = slots.input(peer, 0);
    places.from[j] = reinterpret_cast<const uint4*>(from);
    places.to[j] = to != from ? reinterpret_cast<uint4*>(to) : nullptr;
  }
  const uint64_t vectors = slots.blockBytes / sizeof(uint4);
  if (gathers) {
    storeAll<true>(places, vectors, slots.call.blocks);
  } else {
    storeAll<false>(places, vectors, slots.call.blocks);
  }
}

}  // namespace tutti::kernels::cuda
