// Messages of the general executor (program.cuh): the rings with the other ranks as one block has
// them, what is awaited there and what is told.
//
// mark[n % slots] of a ring: written by the sending block with the message's number + 1 and the
//   call's signature, relaxed, after a block barrier behind the stores of its threads and a
//   system-wide fence; polled with acquire by one thread of the receiving block, and a barrier
//   hands that on to those that read the slot. 32 bits of the number, compared for equality: what
//   the slot held before is kGpuProgramSlots less. A flag in the data is what lines are.
// credit, lineCredit: written by the receiving block, relaxed, after the barrier behind its loads;
//   read by one thread of the sending block before the slot is filled again: loads that have
//   returned cannot see later stores. 32 bits, compared modulo 2^32. A mark's slot read back would
//   cost a trip to the peer.
// lines: each half (a word, the low half of the number + 1) is one 8-byte store; the thread that
//   takes the word polls it. 32 bits, compared for equality: a line holds older numbers only, and a
//   stale one would have to be 2^32 messages old.
// wide lines: eight threads of a warp store one, with the number + 1 in its last 8 bytes, and eight
//   load it, each time in one instruction. No memory model says that it stays whole; NVLink and
//   the caches behind it keep 128 aligned bytes of one store together (NCCL's LL128 relies on it,
//   too), so they are for such GPUs alone.
// opened: written with the call's signature and first number before its first lines, relaxed;
//   polled by the receiving block, which compares it: lines have no room for a signature.
// sent, received …: this rank's block only, at the ends of a call; so a replayed graph goes on
//   where the last launch stopped.
#pragma once

#include "kernels/cuda/memory.cuh"
#include "kernels/cuda/session.cuh"
#include "wire/gpu_program.h"

namespace tutti::kernels::cuda {

using wire::GpuMessages;
using wire::GpuProgramCall;
using wire::GpuProgramRing;
using wire::GpuProgramView;

inline constexpr int kProgramOperands = 2 * (wire::kGpuProgramRanks + 1);  // of a step, at most

struct ProgramShared {
  std::byte* areas[wire::kGpuProgramRanks];
  // Messages of the ring with each rank, as the call goes: through slots or by lines of any width.
  uint64_t sent[wire::kGpuProgramRanks];
  uint64_t received[wire::kGpuProgramRanks];
  // The step's operands.
  std::byte* places[kProgramOperands];
  uint32_t flags[kProgramOperands];  // by lines, of either width: of a link's message
  bool isScaled[kProgramOperands];   // an input of a pre-multiplied sum
};

// A block's share of a program's messages.
class ProgramMessages {
 public:
  struct Parts {
    const GpuProgramView& view;
    const GpuProgramCall& call;
    const uint16_t* words;
    int block;  // of the call
    ProgramShared& shared;
  };
  __device__ explicit ProgramMessages(const Parts& parts)
      : view_(parts.view),
        call_(parts.call),
        words_(parts.words),
        block_(parts.block),
        shared_(parts.shared) {}

 protected:
  struct Step {
    const uint16_t* operands;
    int sources;
    int destinations;
    bool post;
    int chunk;
    uint64_t first;  // element of the chunk
    int elements;
    size_t bytes;
  };
  // What a thread does for its operand of a step once the step's data is there, or gone.
  struct Told {
    GpuProgramRing* ring = nullptr;  // of the peer; null: nothing
    uint64_t number = 0;
    bool isSender = false;
  };

  __device__ GpuProgramRing* ringOf(int rank, int peer) const {
    auto* rings =
        reinterpret_cast<GpuProgramRing*>(shared_.areas[rank] + wire::kGpuProgramTableBytes);
    return rings + peer * wire::gpuProgramBlocks(view_.rankCount) + block_;
  }
  // Where rank `at` has message `number` from rank `from`.
  __device__ std::byte* slotOf(int at, int from, uint64_t number) const {
    const int32_t n = view_.rankCount;
    const size_t ring = static_cast<size_t>(from * wire::gpuProgramBlocks(n) + block_);
    const size_t slot = ring * wire::kGpuProgramSlots + number % wire::kGpuProgramSlots;
    switch (call_.messages) {
      case GpuMessages::kLines:
        return shared_.areas[at] + wire::gpuProgramLinesOffset(n) +
               slot * 2 * wire::kGpuProgramLinePayload;
      case GpuMessages::kWideLines:
        return shared_.areas[at] + wire::gpuProgramWideOffset(n) +
               slot * wire::gpuProgramWideBytes(n);
      case GpuMessages::kSlots: break;
    }
    return shared_.areas[at] + wire::gpuProgramSlotsOffset(n) + slot * wire::gpuProgramSlotBytes(n);
  }

  __device__ void load() {
    const std::byte* area = view_.own + wire::gpuProgramOffset(view_.rankCount);
    const int t = static_cast<int>(threadIdx.x);
    if (t < view_.rankCount) {
      shared_.areas[t] = reinterpret_cast<std::byte* const*>(area)[t];
      const auto* rings =
          reinterpret_cast<const GpuProgramRing*>(area + wire::kGpuProgramTableBytes);
      const GpuProgramRing& ring = rings[t * wire::gpuProgramBlocks(view_.rankCount) + block_];
      sentBefore_ = loadRelaxed(byLines() ? &ring.linesSent : &ring.sent);
      receivedBefore_ = loadRelaxed(byLines() ? &ring.linesReceived : &ring.received);
      shared_.sent[t] = sentBefore_;
      shared_.received[t] = receivedBefore_;
    }
    __syncthreads();
  }

  // What this run has changed alone: a send and a receive of one launch may have a ring each way
  // between the same ranks.
  __device__ void store() const {
    __syncthreads();
    const int t = static_cast<int>(threadIdx.x);
    if (t >= view_.rankCount) return;
    GpuProgramRing* ring = ringOf(view_.rank, t);
    if (shared_.sent[t] != sentBefore_)
      storeRelaxed(byLines() ? &ring->linesSent : &ring->sent, shared_.sent[t]);
    if (shared_.received[t] != receivedBefore_)
      storeRelaxed(byLines() ? &ring->linesReceived : &ring->received, shared_.received[t]);
  }

  __device__ Step readStep(uint32_t at, uint32_t piece) const {
    Step step;
    step.chunk = words_[at];
    const uint32_t counts = words_[at + 1];
    step.sources = static_cast<int>(wire::gpuSourceCount(counts));
    step.destinations = static_cast<int>(wire::gpuDestinationCount(counts));
    step.post = (counts & wire::kGpuProgramPost) != 0;
    step.operands = words_ + at + 2;
    const wire::GpuProgramRange range = wire::gpuRangeOf(call_, step.chunk, block_, piece);
    step.first = range.first;
    step.elements = static_cast<int>(range.elements);
    step.bytes = static_cast<size_t>(step.elements) * call_.elementBytes;
    return step;
  }

  __device__ size_t offsetOf(const Step& step, int chunk, int firstBlock) const {
    return static_cast<size_t>(wire::gpuChunkOffset(call_, chunk, firstBlock) + step.first) *
           call_.elementBytes;
  }

  __device__ Awaited awaitedOf(int peer, uint64_t number) const {
    return {.peer = peer,
            .number = number,
            .signature = call_.signature,
            .collective = call_.collective,
            .epoch = 0,
            .block = static_cast<int>(blockIdx.x)};
  }

  __device__ bool awaitRoom(int peer, const Told& told) const {
    const GpuProgramRing* own = ringOf(view_.rank, peer);
    const uint64_t* credit = byLines() ? &own->lineCredit : &own->credit;
    const auto least = static_cast<uint32_t>(told.number) + 1 - wire::kGpuProgramSlots;
    Patience patience;
    while (!hasReached(static_cast<uint32_t>(loadRelaxed(credit)), least)) {
      if (patience.isOver(view_, awaitedOf(peer, told.number))) return false;
    }
    if (byLines() && told.number == loadRelaxed(&own->linesSent))
      storeRelaxed(&told.ring->opened, stamped(call_.signature, told.number + 1));
    return true;
  }

  __device__ bool awaitMark(int peer, uint64_t number) const {
    const uint64_t* mark = &ringOf(view_.rank, peer)->mark[number % wire::kGpuProgramSlots];
    Patience patience;
    for (;;) {
      const uint64_t seen = loadAcquire(mark);
      if (static_cast<uint32_t>(seen) == static_cast<uint32_t>(number + 1))
        return isOurs(peer, number, seen);
      if (patience.isOver(view_, awaitedOf(peer, number))) return false;
      if (patience.hasLooked() && isSentOtherwise(peer, number)) return false;
    }
  }

  // By the first message of a call.
  __device__ bool awaitOpening(int peer, uint64_t number) const {
    const GpuProgramRing* own = ringOf(view_.rank, peer);
    if (number != loadRelaxed(&own->linesReceived)) return true;
    Patience patience;
    for (;;) {
      const uint64_t seen = loadRelaxed(&own->opened);
      // A sender that has gone on to its next calls says nothing of this one any more.
      if (static_cast<uint32_t>(seen) == static_cast<uint32_t>(number + 1))
        return isOurs(peer, number, seen);
      if (hasReached(static_cast<uint32_t>(seen), static_cast<uint32_t>(number + 1))) return true;
      if (patience.isOver(view_, awaitedOf(peer, number))) return false;
      if (patience.hasLooked() && isSentOtherwise(peer, number)) return false;
    }
  }

  // The peer has sent by lines where this call receives through slots, or the other way round: it
  // is in another call. A later call of its comes behind what is awaited, which is looked for
  // again.
  __device__ bool isSentOtherwise(int peer, uint64_t number) const {
    const GpuProgramRing* own = ringOf(view_.rank, peer);
    const auto wanted = static_cast<uint32_t>(number + 1);
    const uint64_t next = loadRelaxed(byLines() ? &own->received : &own->linesReceived);
    const uint64_t other =
        loadAcquire(byLines() ? &own->mark[next % wire::kGpuProgramSlots] : &own->opened);
    if (static_cast<uint32_t>(other) != static_cast<uint32_t>(next + 1)) return false;
    const uint64_t ours =
        loadRelaxed(byLines() ? &own->opened : &own->mark[number % wire::kGpuProgramSlots]);
    if (byLines() ? hasReached(static_cast<uint32_t>(ours), wanted)
                  : static_cast<uint32_t>(ours) == wanted) {
      return false;
    }
    report(view_, awaitedOf(peer, number), GpuFault::kMismatch, static_cast<uint32_t>(other >> 32));
    return true;
  }

  __device__ bool isOurs(int peer, uint64_t number, uint64_t seen) const {
    const auto theirs = static_cast<uint32_t>(seen >> 32);
    if (theirs == call_.signature) return true;
    report(view_, awaitedOf(peer, number), GpuFault::kMismatch, theirs);
    return false;
  }

  __device__ void tell(const Told& told) const {
    if (told.ring == nullptr) return;
    const auto next = static_cast<uint32_t>(told.number + 1);
    if (!told.isSender) {
      storeRelaxed(byLines() ? &told.ring->lineCredit : &told.ring->credit, uint64_t{next});
    } else if (!byLines()) {
      fenceSystem();
      storeRelaxed(&told.ring->mark[told.number % wire::kGpuProgramSlots],
                   stamped(call_.signature, told.number + 1));
    }
  }

  // Lines of either width have their counters in common.
  __device__ __forceinline__ bool byLines() const { return call_.messages != GpuMessages::kSlots; }

  __device__ __forceinline__ static int peerOf(const Step& step, int operand) {
    return step.operands[operand] & ~wire::kGpuProgramPlace;
  }
  __device__ __forceinline__ static bool isLink(const Step& step, int operand) {
    return (step.operands[operand] & wire::kGpuProgramPlace) == wire::kGpuProgramLink;
  }

  __device__ bool awaitLine(const Step& step, int source, int i, uint2& word) const {
    const auto* line = reinterpret_cast<const uint4*>(shared_.places[source]) + i;
    const uint32_t flag = shared_.flags[source];
    Patience patience;
    for (;;) {
      const uint4 seen = loadLine(line);
      if (seen.y == flag && seen.w == flag) {
        word = make_uint2(seen.x, seen.z);
        return true;
      }
      if (patience.isOver(view_, awaitedOf(peerOf(step, source), flag - 1))) return false;
    }
  }

  // All threads of the warp.
  __device__ bool awaitWideLines(const Step& step, int source, int index, bool hasFlag,
                                 uint4& pair) const {
    constexpr uint32_t kWarp = 0xffffffffu;
    const auto* line = reinterpret_cast<const uint4*>(shared_.places[source]) + index;
    const uint32_t flag = shared_.flags[source];
    Patience patience;
    for (;;) {
      pair = loadPart(line);
      if (__all_sync(kWarp, !hasFlag || (pair.z == flag && pair.w == flag))) break;
      const bool isOver = patience.isOver(view_, awaitedOf(peerOf(step, source), flag - 1));
      if (__any_sync(kWarp, isOver)) return false;
    }
    if (hasFlag) pair.z = pair.w = 0;
    return true;
  }

  const GpuProgramView& view_;
  const GpuProgramCall& call_;
  const uint16_t* const words_;
  const int block_;
  ProgramShared& shared_;

 private:
  // Of the rank that the thread looks after.
  uint64_t sentBefore_ = 0;
  uint64_t receivedBefore_ = 0;
};

}  // namespace tutti::kernels::cuda
