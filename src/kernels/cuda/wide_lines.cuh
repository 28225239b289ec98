// Collectives by wide lines: 128 bytes that eight threads of a warp store at once, of which the
// last 8 are a number. Nothing between GPUs of NVLink takes such a store apart, so the number says
// that all is there: no fence, and a sixteenth of the link instead of a half (lines.cuh).
//
// A warp's store is a row, 4 lines: 480 bytes of payload. Threads 0 … 6 of each eight carry 16
// bytes each, in order, and the last ones the 8 bytes each that are left, so that aligned buffers
// are loaded and stored by whole words. Warp w of block b takes every so-manieth row of the call
// through all its stages, and talks to warp w of block b of its peers only: no barrier. Row k of a
// warp: it sends the row of its input to the peers (A), folds or keeps what comes and passes it on
// (B), takes what its peers passed on to the output (C), and goes to the next.
//
// A row's place: written by a warp of a peer, polled by the warp of the same number here. Its
//   number, of the block's collective (epoch), the row and the stage, is another in every row that
//   ever was, so a row that has it is the one awaited. No memory model says that a line stays
//   whole: GPUs whose links do are asked for (GpuRequest::keepsLines).
// A warp has two places for rows from each peer, and in the next collective two others (by the
//   epoch's parity, guarded by `entered` as lines are, session.cuh). Of an all-reduce in two stages
//   each stage has one, else rows take them in turn. When a place is written again, its row has
//   been read, since something that has come says so:
//     all-reduce in two stages: the peer's C of row k is here, so it has read the A of row k; and a
//       peer's A of row k + 1 is here only when that peer has done C of row k.
//     others: before row k + 2 this warp has a row k + 1 of that peer, sent after it was done with
//       row k. (The root of a reduction in two stages sends a row ahead, so that the owners need
//       not wait for its C: it has then their row k itself, made of what it had sent.) Who gets no
//       rows from a peer that it sends to gets acknowledgements: the numbers of a row, without
//       payload.
//   Loads of a row have returned before anything that follows them is stored. All threads of a warp
//   load a row at once (loadPart): one that took its share before the number's would have what the
//   place held before. tests/models/rows.pml
//   goes through all orders.
#pragma once

#include "kernels/cuda/lines.cuh"
#include "kernels/cuda/rows.cuh"

namespace tutti::kernels::cuda {

static_assert(kLineThreads == 32 * wire::kGpuRowWarps);

template <int kMost, typename Policy>
class WideCall : LineSession {
 public:
  __device__ WideCall(const GpuView& view, const GpuCall& call)
      : LineSession(view, call),
        policy_(call, view.rank, view.rankCount),
        blockBytes_(call.count * sizeOf(call.type)),
        warp_(static_cast<int>(threadIdx.x) / 32) {
    const auto all = reinterpret_cast<uintptr_t>(call.input) |
                     reinterpret_cast<uintptr_t>(call.output) |
                     (roles_.inputByPeer || roles_.outputByPeer ? blockBytes_ : 0);
    isAligned_ = all % sizeof(uint4) == 0;
    const uint32_t to = roles_.sends | roles_.forwards;
    const uint32_t from = roles_.receives | roles_.collects;
    awaitsAcks_ = to & ~from;
    givesAcks_ = from & ~to;
    written_ = to | givesAcks_;
    hasTwoPlaces_ = (roles_.receives & roles_.collects) == 0;
  }

  __device__ bool run() {
    const Entry entry = loadEntry();
    if (!begin(entry)) return false;
    const uint64_t seen = loadChecked();
    const int rows = static_cast<int>(call_.chunkBytes / wire::kGpuRowPayload);  // of a part
    const int block = static_cast<int>(blockIdx.x) - call_.firstBlock;
    const int stride = call_.blocks * wire::kGpuRowWarps;
    int k = 0;
    int row = warp_ * call_.blocks + block;
    uint4 mine[kMost];
    if (row < rows) loadInput(mine, row);
    // Whose results all come from peers, the root of a reduction, sends a row ahead.
    const int ahead = roles_.collects != 0 && !roles_.works ? 1 : 0;
    if (ahead != 0 && row < rows) {
      send(mine, row, 0);
      if (row + stride < rows) loadInput(mine, row + stride);
    }
#pragma unroll 1
    for (; row < rows; row += stride, ++k) {
      if (awaitsAcks_ != 0 && k >= 2 && !awaitAcks(k - 2)) return false;
      const int next = row + ahead * stride;
      if (next < rows) send(mine, next, k + ahead);
      // Under way while this row goes through its stages.
      if (next + stride < rows) loadInput(mine, next + stride);
      if (roles_.works && !work(row, k)) return false;
      if (roles_.collects != 0 && !collect(row, k)) return false;
      if (givesAcks_ != 0 && row + 2 * stride < rows) giveAcks(k);
    }
    return isSameCall(seen);
  }

 private:
  // ---- where rows lie
  // Of the payload's share of this thread: its place, from a rank's block of a buffer on.
  __device__ __forceinline__ size_t at(int part, int row) const {
    return static_cast<size_t>(part) * call_.chunkBytes + row * wire::kGpuRowPayload + part_.offset;
  }
  __device__ __forceinline__ int part(int rank) const {
    return roles_.isSplit ? partOf(call_, rank, view_.rankCount) : 0;
  }
  __device__ __forceinline__ int peer(int j) const {
    const int p = view_.rank + j;
    return p < view_.rankCount ? p : p - view_.rankCount;
  }
  __device__ __forceinline__ uint4 load(int peer, size_t at) const {
    const size_t block = roles_.inputByPeer ? static_cast<size_t>(peer) * blockBytes_ : 0;
    const std::byte* from = static_cast<const std::byte*>(call_.input) + block + at;
    return part_.load(from, part_.rest(at, blockBytes_), isAligned_);
  }
  __device__ __forceinline__ void store(int peer, size_t at, const uint4& value) const {
    const size_t block = roles_.outputByPeer ? static_cast<size_t>(peer) * blockBytes_ : 0;
    std::byte* to = static_cast<std::byte*>(call_.output) + block + at;
    part_.store(to, value, part_.rest(at, blockBytes_), isAligned_);
  }

  // ---- places
  __device__ __forceinline__ uint64_t numberOf(int k, int stage) const {
    return epoch_ << 24 | static_cast<uint64_t>(2 * k + stage + 1);
  }
  // This thread's vector of the row that rank `from` writes in rank `at`'s segment.
  __device__ __forceinline__ uint4* placeOf(int at, int from, int k, int stage) const {
    const int place = hasTwoPlaces_ ? k & 1 : stage;
    const auto source = static_cast<size_t>(from < at ? from : from - 1);
    const size_t set = ((epoch_ & 1) * wire::kGpuMaxBlocks + blockIdx.x) *
                           static_cast<size_t>(view_.rankCount - 1) +
                       source;
    const size_t row = (set * 2 + place) * wire::kGpuRowWarps + warp_;
    return reinterpret_cast<uint4*>(view_.segments[at] + wire::gpuRowOffset(view_.rankCount)) +
           row * 32 + part_.lane;
  }
  __device__ __forceinline__ void storeRow(int to, const uint4& value, int k, int stage) const {
    storePart(placeOf(to, view_.rank, k, stage), part_.numbered(value, numberOf(k, stage)));
  }
  // By all threads of the warp; `value` is what the place held a while ago.
  __device__ __forceinline__ bool await(uint4& value, const uint4* place, int from,
                                        uint64_t number) const {
    constexpr unsigned kWarp = 0xffffffff;
    Patience patience;
    while (__all_sync(kWarp, part_.isThere(value, number)) == 0) {
      const bool isOver = patience.isOver(view_, awaited(from, epoch_));
      if (__any_sync(kWarp, isOver) != 0) return false;
      value = loadPart(place);
    }
    return true;
  }

  // ---- acknowledgements
  __device__ __forceinline__ bool awaitAcks(int k) const {
#pragma unroll 1
    for (int p = 0; p < view_.rankCount; ++p) {
      if ((awaitsAcks_ & bit(p)) == 0) continue;
      const uint4* place = placeOf(view_.rank, p, k, 0);
      uint4 value = loadPart(place);
      if (!await(value, place, p, numberOf(k, 0))) return false;
    }
    return true;
  }
  __device__ __forceinline__ void giveAcks(int k) const {
#pragma unroll 1
    for (int p = 0; p < view_.rankCount; ++p) {
      if ((givesAcks_ & bit(p)) == 0 || !part_.hasNumber) continue;
      const uint64_t number = numberOf(k, 0);
      storeLine(placeOf(p, view_.rank, k, 0), make_uint4(0, 0, static_cast<uint32_t>(number),
                                                         static_cast<uint32_t>(number >> 32)));
    }
  }

  // ---- the stages of a row
  // What goes to the peers, j after this rank; at 0 what is the same to all, or the own block.
  __device__ __forceinline__ void loadInput(uint4 (&values)[kMost], int row) const {
    const bool isSame = !roles_.inputByPeer && !roles_.isSplit;
#pragma unroll
    for (int j = 0; j < kMost; ++j) {
      values[j] = j == 0 ? make_uint4(0, 0, 0, 0) : values[0];
      const int p = peer(j);
      const bool isOwn = j == 0 && (isSame ? roles_.sends != 0 || roles_.copiesOwn
                                           : roles_.copiesOwn && !roles_.isSplit);
      if (j < view_.rankCount && (isOwn || (!isSame && (roles_.sends & bit(p)) != 0)))
        values[j] = load(p, at(part(p), row));
    }
  }

  __device__ __forceinline__ void send(const uint4 (&values)[kMost], int row, int k) const {
#pragma unroll
    for (int j = 1; j < kMost; ++j) {
      const int p = peer(j);
      if (j < view_.rankCount && (roles_.sends & bit(p)) != 0)
        storeRow(p, policy_.outgoing(values[j]), k, 0);
    }
    if (roles_.copiesOwn && call_.input != call_.output) copyOwn(values[0], row);
  }

  // Of the root of a vector in parts, all parts.
  __device__ __forceinline__ void copyOwn(const uint4& value, int row) const {
    if (!roles_.isSplit) {
      store(view_.rank, at(0, row), value);
      return;
    }
#pragma unroll 1
    for (int i = 0; i < roles_.parts; ++i) {
      store(view_.rank, at(i, row), load(view_.rank, at(i, row)));
    }
  }

  __device__ __forceinline__ bool work(int row, int k) const {
    const size_t mine = at(part(view_.rank), row);
    uint4 values[kMost];
    const uint4* places[kMost];
#pragma unroll
    for (int p = 0; p < kMost; ++p) {
      values[p] = make_uint4(0, 0, 0, 0);
      places[p] = placeOf(view_.rank, p, k, 0);
      if ((roles_.receives & bit(p)) != 0) values[p] = loadPart(places[p]);
      if (Policy::kFolds && p == view_.rank) values[p] = policy_.outgoing(load(p, mine));
    }
#pragma unroll
    for (int p = 0; p < kMost; ++p) {
      if ((roles_.receives & bit(p)) == 0) continue;
      if (!await(values[p], places[p], p, numberOf(k, 0))) return false;
    }
    if (!Policy::kFolds && roles_.outputByPeer) {
#pragma unroll
      for (int p = 0; p < kMost; ++p) {
        if ((roles_.receives & bit(p)) != 0) store(p, at(0, row), values[p]);
      }
      return true;
    }
    uint4 value = values[0];
    if constexpr (Policy::kFolds) {
      const auto valueOf = [&](int p) { return values[p]; };
      value = policy_.isSum() ? policy_.template sum<kMost>(valueOf)
                              : policy_.template fold<kMost>(valueOf);
    } else {
#pragma unroll
      for (int p = 1; p < kMost; ++p) value = pick(p == call_.root, values[p], value);
    }
#pragma unroll 1
    for (int j = 1; j < view_.rankCount; ++j) {
      if ((roles_.forwards & bit(peer(j))) != 0) storeRow(peer(j), value, k, 1);
    }
    if (roles_.writes) store(view_.rank, mine, value);
    return true;
  }

  __device__ __forceinline__ bool collect(int row, int k) const {
    uint4 values[kMost];
#pragma unroll
    for (int j = 1; j < kMost; ++j) {
      values[j] = make_uint4(0, 0, 0, 0);
      if (j < view_.rankCount && (roles_.collects & bit(peer(j))) != 0)
        values[j] = loadPart(placeOf(view_.rank, peer(j), k, 1));
    }
#pragma unroll
    for (int j = 1; j < kMost; ++j) {
      const int p = peer(j);
      if (j >= view_.rankCount || (roles_.collects & bit(p)) == 0) continue;
      if (!await(values[j], placeOf(view_.rank, p, k, 1), p, numberOf(k, 1))) return false;
      store(p, at(part(p), row), values[j]);
    }
    return true;
  }

  const Policy policy_;
  const size_t blockBytes_;  // of the call: what one rank sends another, or the vector
  const int warp_;
  const RowPart part_;
  bool isAligned_;
  bool hasTwoPlaces_;  // for rows of one stage, in turn
  uint32_t awaitsAcks_;
  uint32_t givesAcks_;
};

}  // namespace tutti::kernels::cuda
