// Collectives of any length through rings of slots.
//
// A call is cut into chunks; block b takes chunks b, b + blocks, … and is a pipeline over them. In
// step k it sends chunk k of its input (first stage), folds or keeps chunk k-L of what came and
// passes it on where the schedule has a second stage, and copies chunk k-2L of the second stage to
// its output. One pair of barriers and one fence a step serve all three.
//
// No deadlock: with two stages (L = 1) step k waits only for what peers do in step k-1, their
// messages and, with four slots, their credits; a ring's messages are made and taken in the same
// order, first stage before second. With one stage L is 2, so that a step rarely has to wait.
#pragma once

#include <new>

#include "kernels/cuda/rings.cuh"
#include "kernels/cuda/session.cuh"
#include "kernels/cuda/spread.cuh"

namespace tutti::kernels::cuda {

static_assert(wire::kGpuSlotCount >= 4, "two stages keep four messages of a pair under way");

// What the threads of a block share.
struct SlotShared {
  RingTable table;
  alignas(Ring) unsigned char rings[wire::kGpuMaxRanks][sizeof(Ring)];
};

template <typename Policy>
class SlotCall {
 public:
  __device__ SlotCall(const GpuView& view, const GpuCall& call, SlotShared& shared)
      : view_(view),
        call_(call),
        shared_(shared),
        roles_(rolesOf(call, view.rank, view.rankCount)),
        policy_(call, view.rank, view.rankCount),
        blockBytes_(call.count * sizeOf(call.type)) {
    const size_t stride = static_cast<size_t>(call.chunkBytes) * roles_.parts;
    const size_t chunks = (blockBytes_ + stride - 1) / stride;
    const size_t blocks = call.blocks;
    steps_ = static_cast<int64_t>((chunks + blocks - 1 - blockIdx.x) / blocks);
  }

  // All threads of the block; false when the communicator is over.
  __device__ bool run() {
    if (!begin()) return false;
    const int lag = roles_.isSplit ? 1 : 2;
    const int64_t last = steps_ + (roles_.isSplit ? 2 : 1) * lag;
    for (int64_t k = 0; k < last; ++k) {
      if (!step({.send = k, .work = k - lag, .collect = roles_.isSplit ? k - 2 * lag : -1})) {
        return false;
      }
    }
    if (hasRing()) ring().save();
    return true;
  }

 private:
  // The chunks that a step handles; those outside of 0 … steps_-1 do not exist.
  struct Step {
    int64_t send;
    int64_t work;
    int64_t collect;
  };

  __device__ __forceinline__ bool exists(int64_t chunk) const {
    return chunk >= 0 && chunk < steps_;
  }
  __device__ __forceinline__ bool hasRing() const {
    const int peer = static_cast<int>(threadIdx.x);
    return peer < view_.rankCount && peer != view_.rank;
  }
  __device__ __forceinline__ Ring& ring() const {
    return *reinterpret_cast<Ring*>(shared_.rings[threadIdx.x]);
  }
  __device__ __forceinline__ bool isMine(uint32_t mask) const {
    return (mask & bit(static_cast<int>(threadIdx.x))) != 0;
  }

  __device__ bool begin() {
    GpuControl* own = controlOf(view_, view_.rank);
    const uint64_t epoch = loadRelaxed(&own->epoch[blockIdx.x]) + 1;
    const uint32_t dead = loadRelaxed(&own->dead);
    if (hasRing()) {  // loads first, so that their latencies overlap
      const int peer = static_cast<int>(threadIdx.x);
      new (&ring()) Ring(view_, {peer, 0, call_.signature, call_.collective},
                         static_cast<int>(blockIdx.x), Ring::Side::kBoth);
    }
    if (dead == 0) announce(view_, call_, epoch);
    if (hasRing()) {
      const int64_t messages =
          (isMine(roles_.receives) ? steps_ : 0) + (isMine(roles_.collects) ? steps_ : 0);
      ring().begin(static_cast<uint64_t>(messages));
    }
    if (__syncthreads_or(static_cast<int>(dead)) != 0) return false;
    if (threadIdx.x == 0) own->epoch[blockIdx.x] = epoch;
    return true;
  }

  __device__ bool step(const Step& at) {
    const bool sends = exists(at.send) && (roles_.sends != 0 || roles_.copiesOwn);
    const bool works = exists(at.work) && roles_.works;
    const bool collects = exists(at.collect) && roles_.collects != 0;
    if (!sends && !works && !collects) return true;
    const bool isFine = !hasRing() || prepare(at);
    if (works && threadIdx.x == static_cast<unsigned>(view_.rank)) {
      shared_.table.in[0][view_.rank] = ownWork(at.work);
    }
    if (__syncthreads_or(isFine ? 0 : 1) != 0) return false;
    if (sends) sendChunk(at.send);
    if (works) workOn(at.work);
    if (collects) collectChunk(at.collect);
    __syncthreads();
    if (hasRing()) complete(at);
    return true;
  }

  // Thread p: waits for rank p's messages and free slots.
  __device__ bool prepare(const Step& at) {
    const int peer = static_cast<int>(threadIdx.x);
    RingTable& table = shared_.table;
    int out = 0;
    int in = 0;
    bool isFine = true;
    if (exists(at.send) && isMine(roles_.sends)) {
      table.out[0][peer] = ring().awaitSlot(out++);
      isFine = table.out[0][peer] != nullptr;
    }
    if (isFine && exists(at.work) && isMine(roles_.forwards)) {
      table.out[1][peer] = ring().awaitSlot(out++);
      isFine = table.out[1][peer] != nullptr;
    }
    if (isFine && exists(at.work) && isMine(roles_.receives)) {
      table.in[0][peer] = ring().awaitMessage(in++);
      isFine = table.in[0][peer] != nullptr;
    }
    if (isFine && exists(at.collect) && isMine(roles_.collects)) {
      table.in[1][peer] = ring().awaitMessage(in++);
      isFine = table.in[1][peer] != nullptr;
    }
    return isFine;
  }

  // Thread p: tells rank p what the block has written to it and read from it.
  __device__ void complete(const Step& at) {
    const int made = (exists(at.send) && isMine(roles_.sends) ? 1 : 0) +
                     (exists(at.work) && isMine(roles_.forwards) ? 1 : 0);
    const int taken = (exists(at.work) && isMine(roles_.receives) ? 1 : 0) +
                      (exists(at.collect) && isMine(roles_.collects) ? 1 : 0);
    if (made > 0) fenceSystem();
    for (int i = 0; i < made; ++i) ring().mark();
    ring().take(taken);
  }

  // ---- ranges, in bytes of one rank's block (or of the whole vector)
  __device__ __forceinline__ size_t offset(int64_t chunk, int part) const {
    const size_t number = static_cast<size_t>(chunk) * call_.blocks + blockIdx.x;
    return (number * roles_.parts + part) * call_.chunkBytes;
  }
  __device__ __forceinline__ size_t bytesAt(size_t offset) const {
    const size_t rest = blockBytes_ > offset ? blockBytes_ - offset : 0;
    return min(rest, static_cast<size_t>(call_.chunkBytes));
  }
  __device__ __forceinline__ int part(int rank) const {
    return roles_.isSplit ? partOf(call_, rank, view_.rankCount) : 0;
  }
  const __device__ __forceinline__ std::byte* input(int peer, size_t offset) const {
    const size_t block = roles_.inputByPeer ? static_cast<size_t>(peer) * blockBytes_ : 0;
    return static_cast<const std::byte*>(call_.input) + block + offset;
  }
  __device__ __forceinline__ std::byte* output(int peer, size_t offset) const {
    const size_t block = roles_.outputByPeer ? static_cast<size_t>(peer) * blockBytes_ : 0;
    return static_cast<std::byte*>(call_.output) + block + offset;
  }
  const __device__ __forceinline__ std::byte* ownWork(int64_t chunk) const {
    return input(view_.rank, offset(chunk, part(view_.rank)));
  }
  __device__ __forceinline__ int next() const {
    return view_.rank + 1 < view_.rankCount ? view_.rank + 1 : 0;
  }

  __device__ void sendChunk(int64_t chunk) {
    const auto outgoing = [&](const uint4& raw) { return policy_.outgoing(raw); };
    if (!roles_.inputByPeer && !roles_.isSplit) {
      const size_t at = offset(chunk, 0);
      cuda::run({input(0, at), bytesAt(at), nullptr, roles_.sends, shared_.table.out[0], next(),
                 view_.rankCount},
                outgoing);
    } else {
      for (int step = 1; step < view_.rankCount; ++step) {
        int peer = view_.rank + step;
        if (peer >= view_.rankCount) peer -= view_.rankCount;
        if ((roles_.sends & bit(peer)) == 0) continue;
        const size_t at = offset(chunk, part(peer));
        cuda::run({input(peer, at), bytesAt(at), nullptr, bit(peer), shared_.table.out[0], peer,
                   view_.rankCount},
                  outgoing);
      }
    }
    if (roles_.copiesOwn) copyOwn(chunk);
  }

  __device__ void copyOwn(int64_t chunk) {
    for (int p = 0; p < roles_.parts; ++p) {
      const size_t at = offset(chunk, p);
      const std::byte* from = input(view_.rank, at);
      std::byte* to = output(view_.rank, at);
      if (from != to) cuda::run({from, bytesAt(at), to, 0, nullptr, 0, 0}, Keep());
    }
  }

  __device__ void collectChunk(int64_t chunk) {
    for (int step = 1; step < view_.rankCount; ++step) {
      int peer = view_.rank + step;
      if (peer >= view_.rankCount) peer -= view_.rankCount;
      if ((roles_.collects & bit(peer)) == 0) continue;
      const size_t at = offset(chunk, part(peer));
      cuda::run({shared_.table.in[1][peer], bytesAt(at), output(peer, at), 0, nullptr, 0, 0},
                Keep());
    }
  }

  __device__ void workOn(int64_t chunk) {
    if constexpr (Policy::kFolds) {
      if (view_.rankCount <= 2) {
        fold<2, 4>(chunk);
      } else if (view_.rankCount <= 4) {
        fold<4, 2>(chunk);
      } else {
        fold<wire::kGpuMaxRanks, 1>(chunk);
      }
    } else {
      for (int step = 1; step < view_.rankCount; ++step) {
        int peer = view_.rank + step;
        if (peer >= view_.rankCount) peer -= view_.rankCount;
        if ((roles_.receives & bit(peer)) == 0) continue;
        const size_t at = offset(chunk, part(view_.rank));
        cuda::run({shared_.table.in[0][peer], bytesAt(at), output(peer, at), roles_.forwards,
                   shared_.table.out[1], next(), view_.rankCount},
                  Keep());
      }
    }
  }

  // Folds a chunk of all ranks, kMost of them at most: all are loaded before the first is folded,
  // kVectors of each a thread.
  template <int kMost, int kVectors>
  __device__ __forceinline__ void fold(int64_t chunk) {
    const size_t at = offset(chunk, part(view_.rank));
    const size_t bytes = bytesAt(at);
    const std::byte* own = shared_.table.in[0][view_.rank];
    const Spread result{nullptr,
                        bytes,
                        roles_.writes ? output(view_.rank, at) : nullptr,
                        roles_.forwards,
                        shared_.table.out[1],
                        next(),
                        view_.rankCount};
    const bool isAlignedAll =
        isAligned<uint4>(own) && (result.to == nullptr || isAligned<uint4>(result.to));
    const size_t whole = isAlignedAll ? bytes / sizeof(uint4) : 0;
    for (size_t base = threadIdx.x; base < whole; base += kVectors * blockDim.x) {
      uint4 raw[kVectors][kMost];
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const size_t vector = base + static_cast<size_t>(i) * blockDim.x;
        if (vector < whole) loadAll<kMost>(raw[i], vector);
      }
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const size_t vector = base + static_cast<size_t>(i) * blockDim.x;
        if (vector >= whole) break;
        const uint4 value = foldAll<kMost>(raw[i]);
        if (result.to != nullptr) reinterpret_cast<uint4*>(result.to)[vector] = value;
        storeEach(result, vector, value);
      }
    }
    foldRest<kMost>(result, own, whole);
  }

  // What is left at the end, and everything where a buffer is not aligned.
  template <int kMost>
  __device__ __forceinline__ void foldRest(const Spread& result, const std::byte* own,
                                           size_t whole) {
    for (size_t vector = whole + threadIdx.x; vector * sizeof(uint4) < result.bytes;
         vector += blockDim.x) {
      const size_t start = vector * sizeof(uint4);
      const auto rest = static_cast<int>(min(result.bytes - start, sizeof(uint4)));
      uint4 raw[kMost];
#pragma unroll
      for (int p = 0; p < kMost; ++p) {
        if (p >= view_.rankCount) break;
        raw[p] = p == view_.rank
                     ? loadAny<uint4>(own + start, rest)
                     : loadStaged(reinterpret_cast<const uint4*>(shared_.table.in[0][p]) + vector);
      }
      const uint4 value = foldAll<kMost>(raw);
      if (result.to != nullptr) storeAny(result.to + start, value, rest);
      storeEach(result, vector, value);
    }
  }

  template <int kMost>
  __device__ __forceinline__ void loadAll(uint4 (&raw)[kMost], size_t vector) const {
#pragma unroll
    for (int p = 0; p < kMost; ++p) {
      if (p < view_.rankCount) {
        raw[p] = loadStaged(reinterpret_cast<const uint4*>(shared_.table.in[0][p]) + vector);
      }
    }
  }

  template <int kMost>
  __device__ __forceinline__ uint4 foldAll(const uint4 (&raw)[kMost]) const {
    return policy_.template fold<kMost>(
        [&](int p) { return p == view_.rank ? policy_.outgoing(raw[p]) : raw[p]; });
  }

  struct Keep {
    __device__ __forceinline__ uint4 operator()(const uint4& raw) const { return raw; }
  };

  const GpuView& view_;
  const GpuCall& call_;
  SlotShared& shared_;
  const Roles roles_;
  const Policy policy_;
  const size_t blockBytes_;  // of the call: a rank's block, or the whole vector
  int64_t steps_;            // chunks of this thread block
};

}  // namespace tutti::kernels::cuda
