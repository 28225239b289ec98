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
  const size_t first = area * wire::gpuLinesPerBlock(view.rankCount) +
                       source * wire::gpuLinesPerPeer(view.rankCount);
  return reinterpret_cast<uint4*>(view.segments[at] + wire::kGpuLineOffset) + first;
}

// The set that peers will write next. They wait until this rank has begun `epoch`, so clearing goes
// before announcing.
__device__ inline void clearLines(const GpuView& view, uint64_t epoch) {
  uint4* lines = linesOf(view, epoch + 1, view.rank, view.rank == 0 ? 1 : 0);  // the first
  for (size_t i = threadIdx.x; i < wire::gpuLinesPerBlock(view.rankCount); i += blockDim.x) {
    lines[i] = make_uint4(0, 0, 0, 0);
  }
  fenceSystem();
  __syncthreads();
}
inline constexpr uint64_t kClearEvery = uint64_t{1} << 24;

// The lines of up to kMost ranks at one place, loaded together so that their latencies overlap,
// then waited for one by one.
template <int kMost>
class Arrivals {
 public:
  __device__ __forceinline__ void load(const GpuView& view, uint64_t epoch, uint32_t peers,
                                       size_t line) {
#pragma unroll
    for (int p = 0; p < kMost; ++p) {
      if ((peers & bit(p)) != 0) lines_[p] = loadLine(linesOf(view, epoch, view.rank, p) + line);
    }
  }

  // Waits for all of them; false when that ended without.
  __device__ __forceinline__ bool await(const GpuView& view, const GpuCall& call, uint64_t epoch,
                                        uint32_t peers, size_t line) {
    const uint32_t flag = lineFlag(epoch);
#pragma unroll
    for (int p = 0; p < kMost; ++p) {
      if ((peers & bit(p)) == 0) continue;
      Patience patience;
      while (lines_[p].y != flag || lines_[p].w != flag) {
        if (patience.isOver(view, {p, epoch, call.signature, call.collective,
                                   static_cast<uint32_t>(epoch), static_cast<int>(blockIdx.x)}))
          return false;
        lines_[p] = loadLine(linesOf(view, epoch, view.rank, p) + line);
      }
    }
    return true;
  }

  __device__ __forceinline__ uint2 payload(int p) const {
    return make_uint2(lines_[p].x, lines_[p].z);
  }

 private:
  uint4 lines_[kMost];
};

// The beginning of a call by lines.
class LineSession {
 protected:
  __device__ LineSession(const GpuView& view, const GpuCall& call)
      : view_(view),
        call_(call),
        roles_(rolesOf(call, view.rank, view.rankCount)),
        written_(roles_.sends) {}

  struct Entry {
    uint64_t epoch;
    uint64_t seen[2];  // the peer's words of both sets
    uint32_t dead;
  };

  __device__ __forceinline__ Awaited awaited(int peer, uint64_t number) const {
    return {peer,
            number,
            call_.signature,
            call_.collective,
            static_cast<uint32_t>(epoch_),
            static_cast<int>(blockIdx.x)};
  }
  __device__ __forceinline__ bool writesTo(int peer) const {
    return peer < view_.rankCount && (written_ & bit(peer)) != 0;
  }

  __device__ __forceinline__ Entry loadEntry() const {
    const GpuControl* own = controlOf(view_, view_.rank);
    Entry entry{};
    entry.epoch = loadRelaxed(&own->epoch[blockIdx.x]) + 1;
    entry.dead = loadRelaxed(&own->dead);
    const int peer = static_cast<int>(threadIdx.x);
    if (writesTo(peer)) {
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
    if (isFine)
      announce(view_, call_, static_cast<int>(threadIdx.x), {epoch_, static_cast<int>(blockIdx.x)});
    const int peer = static_cast<int>(threadIdx.x);
    if (isFine && writesTo(peer)) {
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
    return checks() ? loadRelaxed(entryOf(view_, epoch_, static_cast<int>(threadIdx.x),
                                          static_cast<int>(blockIdx.x)))
                    : 0;
  }
  __device__ __forceinline__ bool isSameCall(uint64_t seen) const {
    if (!checks() || seen == stamped(call_.signature, epoch_)) return true;
    return awaitSameCall(view_, awaited(static_cast<int>(threadIdx.x), epoch_), seen);
  }

  const GpuView& view_;
  const GpuCall& call_;
  const Roles roles_;
  uint32_t written_;  // ranks to which lines of the call's first epoch go
  uint64_t epoch_ = 0;
};

inline constexpr uint32_t kLineThreads = 512;  // of a block, as the catalogue launches it

// One call of up to kMost ranks, as the policy (Folding or Moving) finishes it. All threads of the
// block; false when the communicator is over.
//
// All lines of a thread are under way together: their inputs are loaded before the first goes out,
// and all are out before the first is waited for. One after the other, each cost a trip to memory
// (2 × H200, graph, 512 KB: all-reduce 10.1 µs, now 8.3; broadcast 7.7, 5.1; 2026-11-22).
template <int kMost, typename Policy>
class LineCall : LineSession {
 public:
  __device__ LineCall(const GpuView& view, const GpuCall& call)
      : LineSession(view, call),
        policy_(call, view.rank, view.rankCount),
        blockBytes_(call.count * sizeOf(call.type)),
        start_(static_cast<size_t>(blockIdx.x - call.firstBlock) * call.chunkBytes) {
    const size_t rest = blockBytes_ > start_ ? blockBytes_ - start_ : 0;
    bytes_ = static_cast<uint32_t>(min(rest, static_cast<size_t>(call.chunkBytes)));
    lines_ = (bytes_ + wire::kGpuLinePayload - 1) / wire::kGpuLinePayload;
  }

  __device__ bool run() {
    // The loads that the beginning needs and those of the lines go out together.
    const Entry entry = loadEntry();
    Contribution mine[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (line(i) < lines_) load(mine[i], line(i));
    }
    if (!begin(entry)) return false;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (line(i) < lines_) push(mine[i], line(i));
    }
    const uint64_t seen = loadChecked();
    Arrivals<kMost> theirs[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (line(i) < lines_) theirs[i].load(view_, epoch_, roles_.receives, line(i));
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (line(i) >= lines_) break;
      if (!theirs[i].await(view_, call_, epoch_, roles_.receives, line(i))) return false;
      finish(mine[i], theirs[i], line(i));
    }
    return isSameCall(seen);
  }

 private:
  // Lines of a thread: all that a block has from one rank.
  static constexpr int kLeastRanks = kMost == 2 ? 2 : kMost / 2 + 1;
  static constexpr int kBatch =
      static_cast<int>((wire::gpuLinesPerPeer(kLeastRanks) + kLineThreads - 1) / kLineThreads);

  // This rank's input at one line: for whom each part is.
  struct Contribution {
    uint2 all;  // for everyone, where the input is not by peer
    uint2 byPeer[kMost];
  };

  static __device__ __forceinline__ uint32_t line(int i) { return threadIdx.x + i * kLineThreads; }
  __device__ __forceinline__ int rest(uint32_t line) const {
    return static_cast<int>(min(bytes_ - line * uint32_t{wire::kGpuLinePayload}, 8U));
  }
  __device__ __forceinline__ size_t offset(uint32_t line) const {
    return start_ + line * wire::kGpuLinePayload;
  }
  const __device__ __forceinline__ std::byte* input(int peer, uint32_t line) const {
    const size_t block = roles_.inputByPeer ? static_cast<size_t>(peer) * blockBytes_ : 0;
    return static_cast<const std::byte*>(call_.input) + block + offset(line);
  }
  __device__ __forceinline__ std::byte* output(int peer, uint32_t line) const {
    const size_t block = roles_.outputByPeer ? static_cast<size_t>(peer) * blockBytes_ : 0;
    return static_cast<std::byte*>(call_.output) + block + offset(line);
  }

  __device__ __forceinline__ bool needsOwn() const {
    return Policy::kFolds ? roles_.works : roles_.copiesOwn;
  }

  __device__ __forceinline__ void load(Contribution& mine, uint32_t line) const {
    if (!roles_.inputByPeer) {
      if (roles_.sends == 0 && !needsOwn()) return;
      mine.all = policy_.outgoing(loadAny<uint2>(input(0, line), rest(line)));
      return;
    }
    const uint32_t peers = roles_.sends | (needsOwn() ? bit(view_.rank) : 0);
#pragma unroll
    for (int p = 0; p < kMost; ++p) {
      if ((peers & bit(p)) == 0) continue;
      mine.byPeer[p] = policy_.outgoing(loadAny<uint2>(input(p, line), rest(line)));
    }
  }

  __device__ __forceinline__ void push(const Contribution& mine, uint32_t line) const {
    const uint32_t flag = lineFlag(epoch_);
#pragma unroll
    for (int p = 0; p < kMost; ++p) {
      if ((roles_.sends & bit(p)) == 0) continue;
      storeLine(linesOf(view_, epoch_, p, view_.rank) + line,
                pick(roles_.inputByPeer, mine.byPeer[p], mine.all), flag);
    }
  }

  __device__ __forceinline__ uint2 own(const Contribution& mine) const {
    uint2 own = mine.all;
#pragma unroll
    for (int p = 0; p < kMost; ++p) {
      own = pick(roles_.inputByPeer && p == view_.rank, mine.byPeer[p], own);
    }
    return own;
  }

  __device__ __forceinline__ void finish(const Contribution& mine, const Arrivals<kMost>& theirs,
                                         uint32_t line) const {
    if constexpr (Policy::kFolds) {
      if (!roles_.works) return;
      const uint2 ours = own(mine);
      const auto value = [&](int rank) {
        return pick(rank == view_.rank, ours, theirs.payload(rank));
      };
      storeAny(output(0, line), policy_.template fold<kMost>(value), rest(line));
    } else {
#pragma unroll
      for (int p = 0; p < kMost; ++p) {
        if ((roles_.receives & bit(p)) == 0) continue;
        storeAny(output(p, line), theirs.payload(p), rest(line));
      }
      if (roles_.copiesOwn && output(view_.rank, line) != input(view_.rank, line)) {
        storeAny(output(view_.rank, line), own(mine), rest(line));
      }
    }
  }

  const Policy policy_;
  const size_t blockBytes_;  // of the call: what one rank sends another
  const size_t start_;       // of this thread block's share of it
  uint32_t bytes_;
  uint32_t lines_;
};

}  // namespace tutti::kernels::cuda
