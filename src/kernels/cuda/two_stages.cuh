// Short collectives of more than two ranks in two stages: each part of the vector has an owner, who
// gets it by lines, folds or keeps it, and passes the result on by lines. Two trips, and n / 2
// times fewer bytes than in one (lines.cuh).
//
// Such a call is two collectives of its block, epoch e for the first stage and e + 1 for the
// second, so both sets of lines are in use.
//   Lines of e + 1 may be written to p once p has begun e: then it has read those of e - 1. Who
//   folds has a line of e from everybody it writes to; a broadcast's owner looks at p's entry. e +
//   1 is announced after a barrier behind the block's last read of the first stage: peers may then
//   write lines of e + 2 over them.
#pragma once

#include "kernels/cuda/lines.cuh"

namespace tutti::kernels::cuda {

template <int kMost, typename Policy>
class TwoStageCall : LineSession {
 public:
  __device__ TwoStageCall(const GpuView& view, const GpuCall& call)
      : LineSession(view, call),
        policy_(call, view.rank, view.rankCount),
        bytes_(call.count * sizeOf(call.type)) {}

  __device__ bool run() {
    const Entry entry = loadEntry();
    if (!begin(entry, 2)) return false;
    sendParts();
    const uint64_t seen = loadChecked();
    const bool isFine = workPart() && isSameCall(seen);
    if (__syncthreads_or(isFine ? 0 : 1) != 0) return false;
    const uint64_t second = epoch_ + 1;
    if (second % kClearEvery < 2) clearLines(view_, second);
    announce(view_, call_, static_cast<int>(threadIdx.x), {second, static_cast<int>(blockIdx.x)});
    return collect(second);
  }

 private:
  // ---- parts: in each block's share of the vector, one of chunkBytes an owner
  __device__ __forceinline__ size_t start(int part) const {
    const size_t block = blockIdx.x - call_.firstBlock;
    return (block * roles_.parts + part) * call_.chunkBytes;
  }
  // Bytes of the part from that line on.
  __device__ __forceinline__ int64_t rest(int part, size_t line) const {
    const auto all = static_cast<int64_t>(bytes_) - static_cast<int64_t>(start(part));
    const int64_t most = call_.chunkBytes;
    return (all < most ? all : most) - static_cast<int64_t>(line * wire::kGpuLinePayload);
  }
  __device__ __forceinline__ size_t lines() const {
    return call_.chunkBytes / wire::kGpuLinePayload;
  }
  __device__ __forceinline__ int part(int rank) const {
    return partOf(call_, rank, view_.rankCount);
  }
  __device__ __forceinline__ uint2 input(int part, size_t line, int64_t rest) const {
    const std::byte* from = static_cast<const std::byte*>(call_.input) + start(part);
    return policy_.outgoing(loadAny<uint2>(from + line * wire::kGpuLinePayload, clamped(rest)));
  }
  __device__ __forceinline__ void output(int part, size_t line, int64_t rest,
                                         const uint2& value) const {
    std::byte* to = static_cast<std::byte*>(call_.output) + start(part);
    storeAny(to + line * wire::kGpuLinePayload, value, clamped(rest));
  }
  static __device__ __forceinline__ int clamped(int64_t rest) {
    return static_cast<int>(rest < 8 ? rest : 8);
  }

  // First stage: to each owner its part of my input.
  __device__ __forceinline__ void sendParts() const {
    const uint32_t flag = lineFlag(epoch_);
#pragma unroll 1
    for (size_t line = threadIdx.x; line < lines(); line += blockDim.x) {
      uint2 values[kMost];
#pragma unroll
      for (int p = 0; p < kMost; ++p) {
        if ((roles_.sends & bit(p)) == 0 || rest(part(p), line) <= 0) continue;
        values[p] = input(part(p), line, rest(part(p), line));
      }
#pragma unroll
      for (int p = 0; p < kMost; ++p) {
        if ((roles_.sends & bit(p)) == 0 || rest(part(p), line) <= 0) continue;
        storeLine(linesOf(view_, epoch_, p, view_.rank) + line, values[p], flag);
      }
      if (roles_.copiesOwn && call_.input != call_.output) copyOwn(line);
    }
  }

  __device__ __forceinline__ void copyOwn(size_t line) const {
    for (int i = 0; i < roles_.parts; ++i) {
      if (rest(i, line) > 0) output(i, line, rest(i, line), input(i, line, rest(i, line)));
    }
  }

  // What I own: made of what comes, kept, and passed on.
  __device__ __forceinline__ bool workPart() const {
    if (!roles_.works) return true;
    const int mine = part(view_.rank);
    const uint32_t flag = lineFlag(epoch_ + 1);
    bool mayForward = Policy::kFolds;
#pragma unroll 1
    for (size_t line = threadIdx.x; line < lines(); line += blockDim.x) {
      const int64_t left = rest(mine, line);
      if (left <= 0) break;
      Arrivals<kMost> arrivals;
      arrivals.load(view_, epoch_, roles_.receives, line);
      uint2 value = make_uint2(0, 0);
      if constexpr (Policy::kFolds) value = input(mine, line, left);
      if (!arrivals.await(view_, call_, epoch_, roles_.receives, line)) return false;
      if constexpr (Policy::kFolds) {
        const uint2 own = value;
        value = policy_.template fold<kMost>(
            [&](int rank) { return pick(rank == view_.rank, own, arrivals.payload(rank)); });
      } else {
#pragma unroll
        for (int p = 0; p < kMost; ++p) {
          if (p == call_.root) value = arrivals.payload(p);
        }
      }
      if (!mayForward && !awaitForwards()) return false;
      mayForward = true;
#pragma unroll
      for (int p = 0; p < kMost; ++p) {
        if ((roles_.forwards & bit(p)) == 0) continue;
        storeLine(linesOf(view_, epoch_ + 1, p, view_.rank) + line, value, flag);
      }
      if (roles_.writes) output(mine, line, left, value);
    }
    return true;
  }

  __device__ __noinline__ bool awaitForwards() const {
    for (int p = 0; p < view_.rankCount; ++p) {
      if ((roles_.forwards & bit(p)) == 0) continue;
      if (!awaitEntry(view_, awaited(p, epoch_),
                      loadRelaxed(entryOf(view_, epoch_, p, static_cast<int>(blockIdx.x))))) {
        return false;
      }
    }
    return true;
  }

  // Second stage: the other owners' parts.
  __device__ __forceinline__ bool collect(uint64_t second) const {
    if (roles_.collects == 0) return true;
#pragma unroll 1
    for (size_t line = threadIdx.x; line < lines(); line += blockDim.x) {
      uint32_t peers = 0;
#pragma unroll
      for (int p = 0; p < kMost; ++p) {
        if ((roles_.collects & bit(p)) != 0 && rest(part(p), line) > 0) peers |= bit(p);
      }
      Arrivals<kMost> arrivals;
      arrivals.load(view_, second, peers, line);
      if (!arrivals.await(view_, call_, second, peers, line)) return false;
#pragma unroll
      for (int p = 0; p < kMost; ++p) {
        if ((peers & bit(p)) == 0) continue;
        output(part(p), line, rest(part(p), line), arrivals.payload(p));
      }
    }
    return true;
  }

  const Policy policy_;
  const size_t bytes_;  // of the vector
};

}  // namespace tutti::kernels::cuda
