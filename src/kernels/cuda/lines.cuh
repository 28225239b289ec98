// Short collectives: every 8 bytes of payload travel in a 16-byte line with the call's epoch beside
// each half, and the receiver polls the data itself. No fence, one trip.
//
// A line: written by one thread of rank p's block b, read by the thread of the same number of the
//   receiver's block b. The flag is the epoch (never 0), in both halves, because only 8 bytes are
//   sure to become visible together; no other ordering is needed, the flag is the data's own.
// A line may be written again two collectives later: `entered` (session.cuh) guards that.
// The flag wraps after 2^32 collectives of a block. Lines that only long calls use could then hold
//   one that is current again, so every 2^24 collectives the receiver clears both sets
//   (clearLines).
#pragma once

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/session.cuh"

namespace tutti::kernels::cuda {

__device__ __forceinline__ uint32_t lineFlag(uint64_t epoch) {
  return static_cast<uint32_t>(epoch % 0xffffffffu) + 1;
}

// Lines of this block that rank `from`, another one, writes in rank `at`'s segment.
__device__ __forceinline__ uint4* linesOf(const GpuView& view, uint64_t epoch, int at, int from) {
  const size_t area = (epoch & 1) * wire::kGpuMaxBlocks + blockIdx.x;
  const auto source = static_cast<size_t>(from < at ? from : from - 1);
  const size_t first =
      area * wire::kGpuLinesPerBlock + source * wire::gpuLinesPerPeer(view.rankCount);
  return reinterpret_cast<uint4*>(view.segments[at] + wire::kGpuLineOffset) + first;
}

// The set that peers will write next. They wait until this rank has begun `epoch`, so clearing goes
// before announcing.
__device__ inline void clearLines(const GpuView& view, uint64_t epoch) {
  uint4* lines = linesOf(view, epoch + 1, view.rank, view.rank == 0 ? 1 : 0);  // the first
  for (size_t i = threadIdx.x; i < wire::kGpuLinesPerBlock; i += blockDim.x) {
    lines[i] = make_uint4(0, 0, 0, 0);
  }
  fenceSystem();
  __syncthreads();
}
inline constexpr uint64_t kClearEvery = uint64_t{1} << 24;

// The lines of all peers at one place, loaded together so that their latencies overlap, then
// waited for one by one.
class Arrivals {
 public:
  __device__ Arrivals(const GpuView& view, const GpuCall& call, uint64_t epoch)
      : view_(view), call_(call), epoch_(epoch), flag_(lineFlag(epoch)) {}

  __device__ __forceinline__ void load(uint32_t peers, size_t line) {
#pragma unroll
    for (int p = 0; p < wire::kGpuMaxRanks; ++p) {
      if ((peers & bit(p)) != 0) lines_[p] = loadLine(at(p, line));
    }
  }

  // Waits for all of them; false when that ended without.
  __device__ __forceinline__ bool await(uint32_t peers, size_t line) {
#pragma unroll
    for (int p = 0; p < wire::kGpuMaxRanks; ++p) {
      if ((peers & bit(p)) == 0) continue;
      Patience patience;
      while (!isHere(lines_[p])) {
        if (patience.isOver(view_, {p, epoch_, call_.signature, call_.collective, epoch_}))
          return false;
        lines_[p] = loadLine(at(p, line));
      }
    }
    return true;
  }

  __device__ __forceinline__ uint2 payload(int p) const {
    return make_uint2(lines_[p].x, lines_[p].z);
  }

 private:
  const __device__ __forceinline__ uint4* at(int p, size_t line) const {
    return linesOf(view_, epoch_, view_.rank, p) + line;
  }
  __device__ __forceinline__ bool isHere(const uint4& line) const {
    return line.y == flag_ && line.w == flag_;
  }

  const GpuView& view_;
  const GpuCall& call_;
  const uint64_t epoch_;
  const uint32_t flag_;
  uint4 lines_[wire::kGpuMaxRanks];
};

// The beginning of a call by lines.
class LineSession {
 protected:
  __device__ LineSession(const GpuView& view, const GpuCall& call)
      : view_(view), call_(call), roles_(rolesOf(call, view.rank, view.rankCount)) {}

  struct Entry {
    uint64_t epoch;
    uint64_t seen[2];  // the peer's words of both sets
    uint32_t dead;
  };

  __device__ __forceinline__ Awaited awaited(int peer, uint64_t number) const {
    return {peer, number, call_.signature, call_.collective, epoch_};
  }
  __device__ __forceinline__ bool sendsTo(int peer) const {
    return peer < view_.rankCount && (roles_.sends & bit(peer)) != 0;
  }

  __device__ __forceinline__ Entry loadEntry() const {
    const GpuControl* own = controlOf(view_, view_.rank);
    Entry entry{};
    entry.epoch = loadRelaxed(&own->epoch[blockIdx.x]) + 1;
    entry.dead = loadRelaxed(&own->dead);
    const int peer = static_cast<int>(threadIdx.x);
    if (sendsTo(peer)) {
      entry.seen[0] = loadRelaxed(&own->entered[0][blockIdx.x][peer]);
      entry.seen[1] = loadRelaxed(&own->entered[1][blockIdx.x][peer]);
    }
    return entry;
  }

  // `epochs` of the block are this call's.
  __device__ bool begin(const Entry& entry, int epochs = 1) {
    epoch_ = entry.epoch;
    bool isFine = entry.dead == 0;
    if (epoch_ % kClearEvery < 2) clearLines(view_, epoch_);
    if (isFine) announce(view_, call_, epoch_, static_cast<int>(threadIdx.x));
    const int peer = static_cast<int>(threadIdx.x);
    if (isFine && sendsTo(peer)) {
      const uint64_t before = epoch_ - 1;
      isFine = awaitEntry(view_, awaited(peer, before),
                          (before & 1) == 0 ? entry.seen[0] : entry.seen[1]);
    }
    if (__syncthreads_or(!isFine ? 1 : 0) != 0) return false;
    if (threadIdx.x == 0) controlOf(view_, view_.rank)->epoch[blockIdx.x] = epoch_ + epochs - 1;
    return true;
  }

  // Who called something else sends the wrong lines or none: its entry tells. A thread a peer.
  __device__ __forceinline__ bool checks() const {
    const int peer = static_cast<int>(threadIdx.x);
    return peer < view_.rankCount && ((roles_.receives | roles_.collects) & bit(peer)) != 0;
  }
  __device__ __forceinline__ uint64_t loadChecked() const {
    return checks() ? loadRelaxed(entryOf(view_, epoch_, static_cast<int>(threadIdx.x))) : 0;
  }
  __device__ __forceinline__ bool isSameCall(uint64_t seen) const {
    if (!checks() || seen == stamped(call_.signature, epoch_)) return true;
    return awaitSameCall(view_, awaited(static_cast<int>(threadIdx.x), epoch_), seen);
  }

  const GpuView& view_;
  const GpuCall& call_;
  const Roles roles_;
  uint64_t epoch_ = 0;
};

// One call, as the policy (Folding or Moving) finishes it. All threads of the block; false when the
// communicator is over.
template <typename Policy>
class LineCall : LineSession {
 public:
  __device__ LineCall(const GpuView& view, const GpuCall& call)
      : LineSession(view, call),
        policy_(call, view.rank, view.rankCount),
        blockBytes_(call.count * sizeOf(call.type)),
        start_(static_cast<size_t>(blockIdx.x - call.firstBlock) * call.chunkBytes) {
    const size_t rest = blockBytes_ > start_ ? blockBytes_ - start_ : 0;
    bytes_ = rest < call.chunkBytes ? rest : call.chunkBytes;
  }

  __device__ bool run() {
    const size_t lines = (bytes_ + wire::kGpuLinePayload - 1) / wire::kGpuLinePayload;
    const size_t first = threadIdx.x;
    // The loads that the beginning needs and those of the first line go out together.
    Contribution contribution;
    const Entry entry = loadEntry();
    if (first < lines) load(contribution, first);
    if (!begin(entry)) return false;
    if (first < lines) push(contribution, first);
    for (size_t i = first + blockDim.x; i < lines; i += blockDim.x) {
      Contribution more;
      load(more, i);
      push(more, i);
    }
    const uint64_t seen = loadChecked();
    bool isFine = first >= lines || finish(contribution, first);
    for (size_t i = first + blockDim.x; i < lines && isFine; i += blockDim.x) {
      Contribution more;
      load(more, i);
      isFine = finish(more, i);
    }
    return isFine && isSameCall(seen);
  }

 private:
  // This rank's input at one line: for whom each part is.
  struct Contribution {
    uint2 all;  // for everyone, where the input is not by peer
    uint2 byPeer[wire::kGpuMaxRanks];
  };
  __device__ __forceinline__ int rest(size_t line) const {
    return static_cast<int>(min(bytes_ - line * wire::kGpuLinePayload, size_t{8}));
  }
  __device__ __forceinline__ size_t offset(size_t line) const {
    return start_ + line * wire::kGpuLinePayload;
  }
  const __device__ __forceinline__ std::byte* input(int peer, size_t line) const {
    const size_t block = roles_.inputByPeer ? static_cast<size_t>(peer) * blockBytes_ : 0;
    return static_cast<const std::byte*>(call_.input) + block + offset(line);
  }
  __device__ __forceinline__ std::byte* output(int peer, size_t line) const {
    const size_t block = roles_.outputByPeer ? static_cast<size_t>(peer) * blockBytes_ : 0;
    return static_cast<std::byte*>(call_.output) + block + offset(line);
  }

  __device__ __forceinline__ bool needsOwn() const {
    return Policy::kFolds ? roles_.works : roles_.copiesOwn;
  }

  __device__ __forceinline__ void load(Contribution& contribution, size_t line) const {
    if (!roles_.inputByPeer) {
      if (roles_.sends == 0 && !needsOwn()) return;
      contribution.all = policy_.outgoing(loadAny<uint2>(input(0, line), rest(line)));
      return;
    }
    const uint32_t peers = roles_.sends | (needsOwn() ? bit(view_.rank) : 0);
#pragma unroll
    for (int p = 0; p < wire::kGpuMaxRanks; ++p) {
      if ((peers & bit(p)) == 0) continue;
      contribution.byPeer[p] = policy_.outgoing(loadAny<uint2>(input(p, line), rest(line)));
    }
  }

  __device__ __forceinline__ void push(const Contribution& contribution, size_t line) const {
    const uint32_t flag = lineFlag(epoch_);
#pragma unroll
    for (int p = 0; p < wire::kGpuMaxRanks; ++p) {
      if ((roles_.sends & bit(p)) == 0) continue;
      storeLine(linesOf(view_, epoch_, p, view_.rank) + line,
                roles_.inputByPeer ? contribution.byPeer[p] : contribution.all, flag);
    }
  }

  __device__ __forceinline__ uint2 own(const Contribution& contribution) const {
    uint2 own = contribution.all;
    if (roles_.inputByPeer) {
#pragma unroll
      for (int p = 0; p < wire::kGpuMaxRanks; ++p) {
        if (p == view_.rank) own = contribution.byPeer[p];
      }
    }
    return own;
  }

  __device__ __forceinline__ bool finish(const Contribution& contribution, size_t line) const {
    Arrivals arrivals(view_, call_, epoch_);
    arrivals.load(roles_.receives, line);
    if (!arrivals.await(roles_.receives, line)) return false;
    if constexpr (Policy::kFolds) {
      if (!roles_.works) return true;
      const uint2 mine = own(contribution);
      const auto value = [&](int rank) {
        return rank == view_.rank ? mine : arrivals.payload(rank);
      };
      storeAny(output(0, line), policy_.template fold<wire::kGpuMaxRanks>(value), rest(line));
    } else {
#pragma unroll
      for (int p = 0; p < wire::kGpuMaxRanks; ++p) {
        if ((roles_.receives & bit(p)) == 0) continue;
        storeAny(output(p, line), arrivals.payload(p), rest(line));
      }
      if (roles_.copiesOwn && output(view_.rank, line) != input(view_.rank, line)) {
        storeAny(output(view_.rank, line), own(contribution), rest(line));
      }
    }
    return true;
  }

  const Policy policy_;
  const size_t blockBytes_;  // of the call: what one rank sends another
  const size_t start_;       // of this thread block's share of it
  size_t bytes_;
};

}  // namespace tutti::kernels::cuda
