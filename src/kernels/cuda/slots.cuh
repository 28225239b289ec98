// Collectives of any length through rings of slots: of two ranks, and of more where outputs are
// shared; else those of more have their parts apart (apart.cuh).
//
// A call is cut into chunks; block b takes chunks b, b + blocks, … and has two pumps that run by
// themselves. The sender sends chunk k of the input (first stage) and, where the schedule has a
// second stage, copies chunk k - lag of what comes of it to the output. The worker folds or keeps
// chunk k of the first stage's messages and passes it on where there is a second stage. First and
// second stage have rings of their own.
//
// No deadlock. A pump that waits for step k's needs has told its peers of all steps before k, or is
// about to without a wait. Take the least step k that any worker waits in: what it needs is that
// all senders have sent chunk k, and (second stage, T slots a ring) that the message of k - T was
// collected, in some sender's step k - T + lag. A sender's step j up to k needs credit for chunk
// j - S (first stage, S slots), and what the workers made of chunk j - lag: of both the workers
// have told. This takes S >= 1, lag >= 1 and T >= lag; the longer, the less waits.
//
// In place, the worker's output is the sender's input: the worker waits until the sender is through
// with the chunk (SlotShared::sent).
//
// Where the ranks share their outputs (sharing.cuh), what only moves bytes, in one stage, goes
// there instead of into slots. Kernels of their own (kShares) do that on a rank that shares, since
// what both ways need costs registers: the others took 2 % longer with it (2026-11-22, 4 × H200).
#pragma once

#include "kernels/cuda/plain_stores.cuh"
#include "kernels/cuda/pump.cuh"
#include "kernels/cuda/ranges.cuh"
#include "kernels/cuda/rings.cuh"
#include "kernels/cuda/session.cuh"
#include "kernels/cuda/sharing.cuh"

namespace tutti::kernels::cuda {

// How far the sender's second stage is behind.
__device__ __forceinline__ constexpr int lagOf(int rankCount) {
  return wire::gpuSecondSlots(rankCount);
}
inline constexpr int kSlotThreads = 2 * kPumpThreads;
inline constexpr unsigned long long kAllSent = 1ULL << 62;

// What a pump's movers do in one step, where bytes say so. Entry j is the peer j + 1 after this
// rank, so that each begins with another and none is a hot spot.
struct SlotStep {
  Spread<wire::kGpuMaxRanks - 1> same;  // sender: input to all; worker: the fold or what it passes
                                        // on
  Range each[wire::kGpuMaxRanks - 1];   // sender: input to each; worker: messages to the output
  Range own[wire::kGpuMaxRanks - 1];    // sender: input to the output, part by part
  Range collects[wire::kGpuMaxRanks - 1];      // sender: second stage's messages to the output
  const std::byte* folds[wire::kGpuMaxRanks];  // worker: at foldPlace, the own input too
  bool hasEach, hasOwn, hasCollects;
  bool isFine;
};

// Where SlotStep::folds has that rank's contribution: by rank. Among two ranks, whose fold is the
// same either way round, the own input comes first.
__device__ __forceinline__ int foldPlace(const GpuView& view, int rank) {
  if (view.rankCount != 2) return rank;
  return rank == view.rank ? 0 : 1;
}

// What the threads of a block share.
struct SlotShared {
  SlotStep sender[2];
  SlotStep worker[2];
  Pump pumps[2];  // of the sender, of the worker
  // Chunks that the sender is through with; kAllSent where it has none, or failed.
  unsigned long long sent;
  Sharing sharing;
};

// A call as the keepers see it: who, and which bytes.
struct SlotCall {
  const GpuView& view;
  const GpuCall& call;
  const Sharing& sharing;
  Roles roles;
  bool isDirect = false;    // the one stage there is writes peers' outputs
  const size_t blockBytes;  // of the call: a rank's block, or the whole vector
  int64_t chunks;           // of this lane
  uint64_t epoch;
  const int lane;  // of the call's: which rings and chunks

  __device__ SlotCall(const GpuView& itsView, const GpuCall& itsCall, uint64_t itsEpoch,
                      const Sharing& itsSharing, int itsLane)
      : view(itsView),
        call(itsCall),
        sharing(itsSharing),
        roles(rolesOf(itsCall, itsView.rank, itsView.rankCount)),
        blockBytes(itsCall.count * sizeOf(itsCall.type)),
        epoch(itsEpoch),
        lane(itsLane) {
    const size_t stride = static_cast<size_t>(call.chunkBytes) * roles.parts;
    const size_t all = (blockBytes + stride - 1) / stride;
    const size_t blocks = call.blocks;
    chunks = static_cast<int64_t>((all + blocks - 1 - lane) / blocks);
  }

  // What remains to do where peers write here and this rank there.
  __device__ __forceinline__ void writeDirectly() {
    isDirect = true;
    roles.receives = 0;
    roles.works = false;
  }

  __device__ __forceinline__ bool sends() const { return roles.sends != 0 || roles.copiesOwn; }
  __device__ __forceinline__ int64_t lag() const {
    return sends() && roles.collects != 0 ? lagOf(view.rankCount) : 0;
  }
  __device__ __forceinline__ int64_t senderSteps() const {
    return sends() || roles.collects != 0 ? chunks + lag() : 0;
  }
  __device__ __forceinline__ int64_t workerSteps() const { return roles.works ? chunks : 0; }

  __device__ __forceinline__ Awaited awaited(int peer) const {
    return {peer, 0, call.signature, call.collective, static_cast<uint32_t>(epoch), lane};
  }
  // Where a step's table has that peer.
  __device__ __forceinline__ int place(int peer) const {
    const int place = peer - view.rank - 1;
    return place < 0 ? place + view.rankCount : place;
  }
  __device__ __forceinline__ int firstRing() const { return lane; }
  __device__ __forceinline__ int secondRing() const { return wire::kGpuMaxBlocks + lane; }

  // ---- ranges, in bytes of one rank's block (or of the whole vector)
  __device__ __forceinline__ size_t offset(int64_t chunk, int part) const {
    const size_t number = static_cast<size_t>(chunk) * call.blocks + lane;
    return (number * roles.parts + part) * call.chunkBytes;
  }
  __device__ __forceinline__ uint32_t bytesAt(size_t offset) const {
    const size_t rest = blockBytes > offset ? blockBytes - offset : 0;
    return static_cast<uint32_t>(min(rest, static_cast<size_t>(call.chunkBytes)));
  }
  __device__ __forceinline__ int part(int rank) const {
    return roles.isSplit ? partOf(call, rank, view.rankCount) : 0;
  }
  const __device__ __forceinline__ std::byte* input(int peer, size_t offset) const {
    const size_t block = roles.inputByPeer ? static_cast<size_t>(peer) * blockBytes : 0;
    return static_cast<const std::byte*>(call.input) + block + offset;
  }
  __device__ __forceinline__ std::byte* output(int peer, size_t offset) const {
    const size_t block = roles.outputByPeer ? static_cast<size_t>(peer) * blockBytes : 0;
    return static_cast<std::byte*>(call.output) + block + offset;
  }
  // Where this rank's bytes belong in a peer's output.
  __device__ __forceinline__ std::byte* theirs(int peer, size_t offset) const {
    const size_t block = roles.outputByPeer ? static_cast<size_t>(view.rank) * blockBytes : 0;
    return sharing.outputs[peer] + block + offset;
  }
};

// How far the sender is, for the worker of the same block.
// sent: raised by the sender's closer once its movers are through, whose loads have returned;
//   looked at by the worker's opener before the barrier that lets its movers write. By atomics,
//   with a fence of the block between them and the barriers. It only grows, and a sender that gives
//   up raises it to the end, so the wait ends when the sender does.
class BlockProgress {
 public:
  __device__ explicit BlockProgress(unsigned long long& sent) : sent_(sent) {}

  __device__ void raise(int64_t chunks) const {
    __threadfence_block();
    atomicExch(&sent_, static_cast<unsigned long long>(chunks));
  }
  __device__ bool await(const SlotCall&, int64_t step) const {
    while (atomicAdd(&sent_, 0ULL) <= static_cast<unsigned long long>(step)) {
    }
    __threadfence_block();
    return true;
  }

 private:
  unsigned long long& sent_;
};

// The first pump's opener and closer: input to peers; and second-stage messages to the output.
template <typename Progress>
class SenderKeeper {
 public:
  __device__ SenderKeeper(const SlotCall& call, const Progress& progress, int lane)
      : call_(call),
        progress_(progress),
        lane_(lane),
        lag_(call.lag()),
        sendsHere_((call.roles.sends >> lane & 1) != 0),
        collectsHere_((call.roles.collects >> lane & 1) != 0) {
    if (sendsHere_ && !call.isDirect)
      out_ = OutRing(call.view, call.awaited(lane), call.firstRing());
    if (collectsHere_) {
      in_ = InRing(call.view, call.awaited(lane), call.secondRing(), call.chunks);
    }
  }

  __device__ void begin() const {
    if (collectsHere_) in_.begin(call_.view);
  }

  __device__ bool prepare(int64_t step, SlotStep& table) {
    const bool sends = call_.sends() && step < call_.chunks;
    const bool collects = call_.roles.collects != 0 && step >= lag_;
    const bool isSame = !call_.roles.inputByPeer && !call_.roles.isSplit;
    const bool copies = sends && !isSame && call_.roles.copiesOwn;
    if (lane_ == 0) {
      table.same.bytes = 0;
      table.hasEach = sends && !isSame;
      table.hasOwn = copies;
      table.hasCollects = collects;
      if (sends && isSame) prepareSame(step, table);
    }
    if (copies) prepareOwn(step, table);
    bool isFine = true;
    if (sends && sendsHere_ && collects) out_.refresh(call_.view, step);
    if (collects && collectsHere_) {
      const std::byte* message = in_.await(call_.view, step - lag_);
      isFine = message != nullptr;
      const size_t at = call_.offset(step - lag_, call_.part(lane_));
      table.collects[call_.place(lane_)] = {message, call_.output(lane_, at), call_.bytesAt(at)};
    }
    if (isFine && sends && sendsHere_) {
      const size_t at = call_.offset(step, call_.part(lane_));
      std::byte* slot = call_.isDirect ? call_.theirs(lane_, at) : out_.awaitSlot(call_.view, step);
      isFine = slot != nullptr;
      table.same.slots[call_.place(lane_)] = reinterpret_cast<uint4*>(slot);
      table.each[call_.place(lane_)] = {call_.input(lane_, at), slot, call_.bytesAt(at)};
    }
    return isFine;
  }

  __device__ void complete(int64_t step) {
    if (collectsHere_ && step >= lag_) in_.take(call_.view, step - lag_);
    if (call_.sends() && step < call_.chunks) {
      if (lane_ == 0) progress_.raise(step + 1);
      if (call_.isDirect) return;
      if (call_.roles.sends != 0) fenceSystem();
      if (sendsHere_) out_.mark(call_.view, step);
    }
  }

  __device__ void save() const {
    if (sendsHere_ && !call_.isDirect) out_.save(call_.view, call_.chunks);
    if (collectsHere_) in_.save(call_.view);
  }

 private:
  // Lane 0.
  __device__ void prepareSame(int64_t chunk, SlotStep& table) const {
    const size_t at = call_.offset(chunk, 0);
    const std::byte* from = call_.input(0, at);
    std::byte* own = call_.output(call_.view.rank, at);
    table.same.from = from;
    table.same.to = call_.roles.copiesOwn && own != from ? own : nullptr;
    table.same.bytes = call_.bytesAt(at);
  }
  __device__ void prepareOwn(int64_t chunk, SlotStep& table) const {
    if (lane_ >= call_.roles.parts) return;
    const size_t at = call_.offset(chunk, lane_);
    const std::byte* from = call_.input(call_.view.rank, at);
    std::byte* to = call_.output(call_.view.rank, at);
    table.own[lane_] = {from, to, from == to ? 0 : call_.bytesAt(at)};
  }

  const SlotCall& call_;
  const Progress& progress_;
  const int lane_;
  const int64_t lag_;
  const bool sendsHere_;
  const bool collectsHere_;
  OutRing out_;
  InRing in_;
};

// The second pump's opener and closer: what comes in the first stage is folded or kept, and passed
// on.
template <bool kFolds, typename Progress>
class WorkerKeeper {
 public:
  __device__ WorkerKeeper(const SlotCall& call, const Progress& progress, int lane)
      : call_(call),
        progress_(progress),
        lane_(lane),
        receivesHere_((call.roles.receives >> lane & 1) != 0),
        forwardsHere_((call.roles.forwards >> lane & 1) != 0) {
    if (receivesHere_) {
      in_ = InRing(call.view, call.awaited(lane), call.firstRing(), call.chunks);
    }
    if (forwardsHere_) out_ = OutRing(call.view, call.awaited(lane), call.secondRing());
  }

  __device__ void begin() const {
    if (receivesHere_) in_.begin(call_.view);
  }

  __device__ bool prepare(int64_t step, SlotStep& table) {
    const size_t at = call_.offset(step, call_.part(call_.view.rank));
    const uint32_t bytes = call_.bytesAt(at);
    const bool isSame = kFolds || call_.roles.forwards != 0;
    bool isFine = true;
    if (forwardsHere_) out_.refresh(call_.view, step);
    if (lane_ == 0) {
      table.same.bytes = isSame ? bytes : 0;
      table.hasEach = !isSame;
      if (kFolds) table.same.to = call_.roles.writes ? call_.output(call_.view.rank, at) : nullptr;
    }
    if (kFolds && lane_ == call_.view.rank) {
      const std::byte* own = call_.input(lane_, at);
      table.folds[foldPlace(call_.view, lane_)] = own;
      table.same.from = own;  // whose alignment counts
    }
    if (receivesHere_) {
      const std::byte* message = in_.await(call_.view, step);
      isFine = message != nullptr;
      std::byte* to = call_.output(lane_, at);
      if (kFolds) {
        table.folds[foldPlace(call_.view, lane_)] = message;
      } else if (isSame) {  // from one rank, to all
        table.same.from = message;
        table.same.to = to;
      } else {
        table.each[call_.place(lane_)] = {message, to, bytes};
      }
    }
    if (isFine && forwardsHere_) {
      std::byte* slot = out_.awaitSlot(call_.view, step);
      isFine = slot != nullptr;
      table.same.slots[call_.place(lane_)] = reinterpret_cast<uint4*>(slot);
    }
    if (lane_ == 0 && !progress_.await(call_, step)) isFine = false;
    return isFine;
  }

  __device__ void complete(int64_t step) {
    if (receivesHere_) in_.take(call_.view, step);
    if (call_.roles.forwards == 0) return;
    fenceSystem();
    if (forwardsHere_) out_.mark(call_.view, step);
  }

  __device__ void save() const {
    if (receivesHere_) in_.save(call_.view);
    if (forwardsHere_) out_.save(call_.view, call_.chunks);
  }

 private:
  const SlotCall& call_;
  const Progress& progress_;
  const int lane_;
  const bool receivesHere_;
  const bool forwardsHere_;
  InRing in_;
  OutRing out_;
};

// The movers. kMost bounds the rank count, so that what is done for each peer is unrolled.
template <int kMost, typename Policy>
class Movers {
 public:
  static constexpr int kPeers = kMost - 1;
  // Loads under way, of each peer's bytes.
  static constexpr int kVectors = kMost == 2 ? 8 : kMost == 4 ? 5 : 1;
  static constexpr int kFoldVectors = kMost > 4 || Policy::kElementBytes == 1 ? 1
                                      : kMost == 2                            ? 4
                                                                              : 3;
  static constexpr int kSumVectors = kMost == 2 ? 8 : kMost == 4 ? 5 : 2;

  __device__ Movers(const GpuCall& call, const GpuView& view, uint32_t mover)
      : policy_(call, view.rank, view.rankCount),
        mover_(mover),
        own_(foldPlace(view, view.rank)),
        rankCount_(view.rankCount) {}

  __device__ __forceinline__ void send(const SlotStep& table) const {
    const auto outgoing = [&](const uint4& raw) { return policy_.outgoing(raw); };
    if (table.same.bytes != 0) spread<8>(peersOf(table.same), mover_, outgoing);
    if (table.hasEach) copy<kVectors, kPeers>(table.each, mover_, outgoing);
    if (table.hasOwn) copyOwn(table);
    if (table.hasCollects) copy<kVectors, kPeers>(table.collects, mover_, AsIs());
  }

  // The input to one peer; what came from it folded. Also of tables with no more than that.
  __device__ __forceinline__ void sendOne(const Spread<1>& range) const {
    spread<8>(range, mover_, [&](const uint4& raw) { return policy_.outgoing(raw); });
  }

  template <typename Table>
  __device__ __forceinline__ void work(const Table& table) const {
    if constexpr (Policy::kFolds) {
      fold(table);
    } else {
      if (table.same.bytes != 0) spread<4>(peersOf(table.same), mover_, AsIs());
      if (table.hasEach) copy<kVectors, kPeers>(table.each, mover_, AsIs());
    }
  }

 private:
  template <int kAll>
  static __device__ __forceinline__ Spread<kPeers> peersOf(const Spread<kAll>& all) {
    Spread<kPeers> some{all.from, all.to, all.bytes, {}};
#pragma unroll
    for (int j = 0; j < kPeers; ++j) some.slots[j] = all.slots[j];
    return some;
  }

  __device__ __forceinline__ void copyOwn(const SlotStep& table) const {
#pragma unroll 1
    for (int part = 0; part < kPeers; ++part) {
      const Range& own = table.own[part];
      spread<8>(Spread<1>{own.from, own.to, own.bytes, {}}, mover_, AsIs());
    }
  }

  // Folds a chunk of all ranks: all are loaded before the first is folded. Sums have code of their
  // own, which leaves registers for more loads under way (2 × H200, 64 MB of floats: reduce-scatter
  // 116.5 -> 114.5 µs, 4 MB 17.5 -> 16.6; 2026-11-22).
  template <typename Table>
  __device__ __forceinline__ void fold(const Table& table) const {
    const Spread<kPeers> result = peersOf(table.same);
    const uint4* folds[kMost];
#pragma unroll
    for (int p = 0; p < kMost; ++p) folds[p] = reinterpret_cast<const uint4*>(table.folds[p]);
    const uint32_t whole = result.wholeVectors();
    if (policy_.isSum()) {
      foldVectors<kSumVectors>(result, folds, whole, [&](uint4(&raw)[kSumVectors][kMost], int i) {
        return policy_.template sum<kMost>([&](int p) { return raw[i][p]; });
      });
    } else {
      foldVectors<kFoldVectors>(result, folds, whole, [&](uint4(&raw)[kFoldVectors][kMost], int i) {
        if (policy_.scales()) scaleOwn(raw[i]);
        return foldAll(raw[i]);
      });
    }
    // What is left at the end, and everything where a buffer is not aligned.
#pragma unroll 1
    for (uint32_t at = whole + mover_; at * sizeof(uint4) < result.bytes; at += kMovers) {
      foldOne(table, result, at);
    }
  }

  // Whole vectors; made(raw, i) is what becomes of a thread's i-th of a batch.
  template <int kVectors, typename Made>
  __device__ __forceinline__ void foldVectors(const Spread<kPeers>& result,
                                              const uint4* const (&folds)[kMost], uint32_t whole,
                                              const Made& made) const {
    auto* to = reinterpret_cast<uint4*>(result.to);
    eachBatch<kVectors>(whole, mover_, [&](uint32_t base, auto isWhole) {
      uint4 raw[kVectors][kMost];
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const bool isThere = isWhole || base + i * kMovers < whole;
#pragma unroll
        for (int p = 0; p < kMost; ++p) {
          raw[i][p] = loadStagedIf(isThere && p < rankCount_, (folds[p] + base) + i * kMovers);
        }
      }
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        if (!isWhole && base + i * kMovers >= whole) break;
        const uint4 value = made(raw, i);
        result.template storeSlots<kMovers>(base, i, value);
        if (to != nullptr) (to + base)[i * kMovers] = value;
      }
    });
  }

  template <typename Table>
  __device__ __noinline__ void foldOne(const Table& table, const Spread<kPeers>& result,
                                       uint32_t at) const {
    const size_t start = at * sizeof(uint4);
    const auto rest = static_cast<int>(min(result.bytes - start, sizeof(uint4)));
    uint4 raw[kMost];
#pragma unroll
    for (int p = 0; p < kMost; ++p) {
      if (p < rankCount_) raw[p] = loadAny<uint4>(table.folds[p] + start, rest);
    }
    if (policy_.scales()) scaleOwn(raw);
    const uint4 value = foldAll(raw);
    result.template storeSlots<0>(at, 0, value);
    if (result.to != nullptr) storeAny(result.to + start, value, rest);
  }

  __device__ __forceinline__ uint4 foldAll(const uint4 (&raw)[kMost]) const {
    return policy_.template fold<kMost>([&](int p) { return raw[p]; });
  }

  // By selects: an index that is known only here would keep raw in local memory.
  __device__ __forceinline__ void scaleOwn(uint4 (&raw)[kMost]) const {
    if constexpr (kMost == 2) {
      raw[0] = policy_.outgoing(raw[0]);
    } else {
      uint4 own = raw[0];
#pragma unroll
      for (int p = 1; p < kMost; ++p) own = pick(p == own_, raw[p], own);
      own = policy_.outgoing(own);
#pragma unroll
      for (int p = 0; p < kMost; ++p) raw[p] = pick(p == own_, own, raw[p]);
    }
  }

  const Policy policy_;
  const uint32_t mover_;
  const int own_;  // this rank's place among the folds
  const int rankCount_;
};

// What no step writes stays zero: no peer, no bytes.
__device__ __forceinline__ void clearSteps(SlotShared& shared, bool sends) {
  auto* words = reinterpret_cast<uint32_t*>(&shared);
  for (uint32_t i = threadIdx.x; i < offsetof(SlotShared, pumps) / 4; i += blockDim.x) words[i] = 0;
  if (threadIdx.x != 0) return;
  for (Pump& pump : shared.pumps) clearPump(pump);
  shared.sent = sends ? 0 : kAllSent;
}

// All threads of the block: movers of the sender, movers of the worker, then opener and closer of
// the one and of the other. False when the communicator is over, to those at least.
template <int kMost, typename Policy>
__device__ __forceinline__ bool runPumps(const SlotCall& slots, SlotShared& shared) {
  const int thread = static_cast<int>(threadIdx.x);
  const int keeper = thread - 2 * kMovers;
  if (keeper < 0) {
    const Movers<kMost, Policy> movers(slots.call, slots.view,
                                       static_cast<uint32_t>(thread % kMovers));
    if (thread < kMovers) {
      move([&](const SlotStep& table) { movers.send(table); }, shared.sender, shared.pumps[0],
           PumpBarrier{1}, slots.senderSteps());
    } else {
      move([&](const SlotStep& table) { movers.work(table); }, shared.worker, shared.pumps[1],
           PumpBarrier{2}, slots.workerSteps());
    }
    return true;
  }
  const BlockProgress progress(shared.sent);
  const int lane = keeper % 32;
  const bool isOpener = keeper % kKeepers < kOpeners;
  if (keeper < kKeepers) {
    SenderKeeper<BlockProgress> sender(slots, progress, lane);
    if (!isOpener) return close(sender, shared.pumps[0], slots.senderSteps());
    const bool isFine =
        open(sender, shared.sender, shared.pumps[0], PumpBarrier{1}, slots.senderSteps());
    // The worker must not wait for a sender that gave up.
    if (!isFine && keeper == 0) atomicExch(&shared.sent, kAllSent);
    return isFine;
  }
  WorkerKeeper<Policy::kFolds, BlockProgress> worker(slots, progress, lane);
  if (!isOpener) return close(worker, shared.pumps[1], slots.workerSteps());
  return open(worker, shared.worker, shared.pumps[1], PumpBarrier{2}, slots.workerSteps());
}

// False, to all threads, when the communicator is over.
template <int kMost, typename Policy, bool kShares>
__device__ __forceinline__ bool runSlotCall(const wire::GpuLaunch& launch, const GpuCall& call,
                                            SlotShared& shared) {
  const GpuView& view = launch.view;
  GpuControl* own = controlOf(view, view.rank);
  const uint64_t epoch = loadRelaxed(&own->epoch[blockIdx.x]) + 1;
  const uint32_t dead = loadRelaxed(&own->dead);
  SlotCall slots(view, call, epoch, shared.sharing, static_cast<int>(blockIdx.x));
  clearSteps(shared, slots.sends());
  const int keeper = static_cast<int>(threadIdx.x) - 2 * kMovers;
  const bool isSpeaker = keeper >= 0 && keeper < kOpeners;
  bool isFine = dead == 0;
  if (isSpeaker && isFine) {
    if constexpr (kShares) {
      isFine = agree(launch, call, epoch, keeper, shared.sharing);
    } else {
      announce(view, call, keeper, {epoch, slots.lane});
    }
  }
  if (__syncthreads_and(isFine ? 1 : 0) == 0) return false;
  if (threadIdx.x == 0) own->epoch[blockIdx.x] = epoch;
  const bool isDirect = kShares && shared.sharing.isDirect;
  // Whose outputs this rank writes then, and who writes this rank's.
  const uint32_t written = slots.roles.sends;
  const uint32_t writers = slots.roles.receives;
  if (isDirect) slots.writeDirectly();
  isFine = true;
  if (kShares && isDirect && isPlain(call)) {
    storePlainly<kMost>(slots);
  } else {
    isFine = runPumps<kMost, Policy>(slots, shared);
  }
  if (__syncthreads_and(isFine ? 1 : 0) == 0) return false;
  if (!isDirect) return true;
  if (isSpeaker) isFine = finish(view, slots.awaited(keeper), written, writers, keeper);
  return __syncthreads_and(isFine ? 1 : 0) != 0;
}

}  // namespace tutti::kernels::cuda
