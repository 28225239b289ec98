// The keepers of slots.cuh's pumps: what each of its steps waits for, where its bytes lie, and what
// the peers are told afterwards.
#pragma once

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

}  // namespace tutti::kernels::cuda
