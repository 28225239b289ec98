// The general executor on GPUs: runs the program of any proved schedule, a block for each slice of
// the chunks. A step waits until every message it reads is there and every ring it writes has room,
// folds, and tells the peers; as kernels/execution.h does on CPUs.
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

#include "kernels/cuda/policies.cuh"
#include "wire/gpu_program.h"

namespace tutti::kernels::cuda {

using wire::GpuMessages;
using wire::GpuProgramCall;
using wire::GpuProgramRing;
using wire::GpuProgramView;

inline constexpr int kProgramThreads = 512;
// So that the blocks of many transfers are on the GPU at once.
inline constexpr int kProgramTransferThreads = 256;
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

// One block's run of one program.
template <typename Policy, int kThreads>
class ProgramRun {
 public:
  struct Parts {
    const GpuProgramView& view;
    const GpuProgramCall& call;
    const uint16_t* words;
    int block;  // of the call
    ProgramShared& shared;
  };
  __device__ ProgramRun(const Parts& parts, const Policy& policy)
      : view_(parts.view),
        call_(parts.call),
        words_(parts.words),
        block_(parts.block),
        shared_(parts.shared),
        policy_(policy),
        isAligned_(findAlignment()) {}

  // False when it ended without.
  __device__ bool run() {
    load();
    for (uint32_t piece = 0; piece < call_.pieceCount; ++piece) {
      for (uint32_t at = 0; at < call_.wordCount;) {
        const Step step = readStep(at, piece);
        at += 2 + step.sources + step.destinations;
        if (step.elements > 0 && !runStep(step)) return false;
      }
    }
    store();
    return true;
  }

 private:
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

  // Whether all that the call touches begins on vectors.
  __device__ bool findAlignment() const {
    const uint64_t bits = reinterpret_cast<uintptr_t>(call_.input) |
                          reinterpret_cast<uintptr_t>(call_.output) |
                          call_.blockElements * call_.elementBytes;
    return bits % sizeof(uint4) == 0;
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

  __device__ bool runStep(const Step& step) {
    const int t = static_cast<int>(threadIdx.x);
    Told told;
    bool isReady = true;
    if (t < step.sources + step.destinations) isReady = prepare(step, t, told);
    if (!__syncthreads_and(isReady)) return false;
    bool isWhole = true;
    switch (call_.messages) {
      case GpuMessages::kSlots: foldSlots(step); break;
      case GpuMessages::kLines: isWhole = foldLines(step); break;
      case GpuMessages::kWideLines: isWhole = foldWideLines(step); break;
    }
    if (!__syncthreads_and(isWhole)) return false;
    tell(told);
    return true;
  }

  // Finds an operand's place; of a link, waits for its message or room.
  __device__ bool prepare(const Step& step, int operand, Told& told) {
    const uint16_t word = step.operands[operand];
    const int index = word & ~wire::kGpuProgramPlace;
    shared_.isScaled[operand] = false;
    switch (word & wire::kGpuProgramPlace) {
      case wire::kGpuProgramInput:
        shared_.places[operand] =
            const_cast<std::byte*>(call_.input) + offsetOf(step, index, call_.firstInputBlock);
        if constexpr (Policy::kFolds) shared_.isScaled[operand] = policy_.scales();
        return true;
      case wire::kGpuProgramOutput:
        shared_.places[operand] = call_.output + offsetOf(step, index, call_.firstOutputBlock);
        return true;
      default: break;
    }
    const bool isSender = operand >= step.sources;
    const uint64_t number = isSender ? shared_.sent[index]++ : shared_.received[index]++;
    told = {.ring = ringOf(index, view_.rank), .number = number, .isSender = isSender};
    shared_.places[operand] =
        isSender ? slotOf(index, view_.rank, number) : slotOf(view_.rank, index, number);
    if (byLines()) shared_.flags[operand] = static_cast<uint32_t>(number) + 1;
    if (isSender) return awaitRoom(index, told);
    return byLines() ? awaitOpening(index, number) : awaitMark(index, number);
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

  // ---- the folds

  // One source, and nothing to apply to it.
  __device__ bool isCopy(const Step& step) const {
    if constexpr (!Policy::kFolds) {
      return true;
    } else {
      return step.sources == 1 && !shared_.isScaled[0] && !(step.post && policy_.divides());
    }
  }

  // load(source) gives that source's word.
  template <typename W, typename Load>
  __device__ __forceinline__ W foldWord(const Step& step, const Load& load) const {
    if constexpr (!Policy::kFolds) {
      return load(0);
    } else {
      auto sum = policy_.template lanesOf<W>(load(0), shared_.isScaled[0]);
      for (int source = 1; source < step.sources; ++source)
        policy_.add(sum, policy_.template lanesOf<W>(load(source), shared_.isScaled[source]));
      return policy_.resultOf(sum, step.post);
    }
  }

  __device__ bool foldLines(const Step& step) const {
    const int words = static_cast<int>((step.bytes + 7) / 8);
    bool isWhole = true;
    for (int i = static_cast<int>(threadIdx.x); i < words; i += kThreads) {
      const int left = static_cast<int>(step.bytes) - 8 * i;
      const auto load = [&](int source) -> uint2 {
        const std::byte* from = shared_.places[source];
        if (!isLink(step, source)) return loadAny<uint2>(from + 8 * i, left);
        uint2 word = make_uint2(0, 0);
        if (isWhole) isWhole = awaitLine(step, source, i, word);
        return word;
      };
      const uint2 word = isCopy(step) ? load(0) : foldWord<uint2>(step, load);
      if (!isWhole) return false;
      for (int d = step.sources; d < step.sources + step.destinations; ++d) {
        if (isLink(step, d)) {
          storeLine(reinterpret_cast<uint4*>(shared_.places[d]) + i, word, shared_.flags[d]);
        } else {
          storeAny(shared_.places[d] + 8 * i, word, left);
        }
      }
    }
    return true;
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

  // A warp takes groups of four lines, a thread two words of each: of every eighth the second is
  // the line's flag.
  __device__ bool foldWideLines(const Step& step) const {
    constexpr int kGroupWords = 4 * static_cast<int>(wire::kGpuWideLineWords);
    const int words = static_cast<int>((step.bytes + 7) / 8);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const bool hasFlag = lane % 8 == 7;
    const int word = lane / 8 * static_cast<int>(wire::kGpuWideLineWords) + lane % 8 * 2;
    bool isWhole = true;
    for (int group = static_cast<int>(threadIdx.x) / 32; group * kGroupWords < words;
         group += kThreads / 32) {
      const int at = 8 * (group * kGroupWords + word);
      const int left = static_cast<int>(step.bytes) - at;
      const int index = group * 32 + lane;
      const auto load = [&](int source) -> uint4 {
        const std::byte* from = shared_.places[source];
        if (!isLink(step, source)) return loadPair(from + at, left, hasFlag);
        uint4 pair = make_uint4(0, 0, 0, 0);
        if (isWhole) isWhole = awaitWideLines(step, source, index, hasFlag, pair);
        return pair;
      };
      const uint4 pair = isCopy(step) ? load(0) : foldWord<uint4>(step, load);
      if (!isWhole) return false;
      for (int d = step.sources; d < step.sources + step.destinations; ++d) {
        std::byte* to = shared_.places[d];
        if (isLink(step, d)) {
          const uint32_t flag = shared_.flags[d];
          storePart(reinterpret_cast<uint4*>(to) + index,
                    hasFlag ? make_uint4(pair.x, pair.y, flag, flag) : pair);
        } else {
          storeAny(to + at, make_uint2(pair.x, pair.y), left);
          if (!hasFlag) storeAny(to + at + 8, make_uint2(pair.z, pair.w), left - 8);
        }
      }
    }
    return true;
  }

  // Two words, of which `left` bytes are there; one where the line's flag comes next.
  __device__ __forceinline__ static uint4 loadPair(const std::byte* from, int left, bool hasFlag) {
    const auto first = loadAny<uint2>(from, left);
    uint2 second = make_uint2(0, 0);
    if (!hasFlag) second = loadAny<uint2>(from + 8, left - 8);
    return make_uint4(first.x, first.y, second.x, second.y);
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

  __device__ void foldSlots(const Step& step) const {
    const int whole = isAligned_ ? static_cast<int>(step.bytes / sizeof(uint4)) : 0;
    if (isCopy(step)) {
      copyVectors(step, whole);
    } else if constexpr (Policy::kFolds) {
      foldVectors(step, whole);
    }
    // What is no whole vector, or lies somewhere.
    const int all = static_cast<int>((step.bytes + sizeof(uint4) - 1) / sizeof(uint4));
    for (int i = whole + static_cast<int>(threadIdx.x); i < all; i += kThreads) {
      const int at = i * static_cast<int>(sizeof(uint4));
      const int left = static_cast<int>(step.bytes) - at;
      const auto load = [&](int source) {
        return loadAny<uint4>(shared_.places[source] + at, left);
      };
      const uint4 value = isCopy(step) ? load(0) : foldWord<uint4>(step, load);
      for (int d = step.sources; d < step.sources + step.destinations; ++d)
        storeAny(shared_.places[d] + at, value, left);
    }
  }

  // So many loads of a thread are under way; bytes take four registers each while they are folded.
  static constexpr int kUnroll = Policy::kElementBytes == 1 ? 2 : 4;

  template <typename Body>
  __device__ __forceinline__ void eachGroup(int vectors, const Body& body) const {
    for (int i = static_cast<int>(threadIdx.x); i < vectors; i += kThreads * kUnroll) body(i);
  }

  __device__ __forceinline__ void storeGroup(const Step& step, int first, int vectors,
                                             const uint4 (&values)[kUnroll]) const {
    for (int d = step.sources; d < step.sources + step.destinations; ++d) {
      auto* to = reinterpret_cast<uint4*>(shared_.places[d]);
#pragma unroll
      for (int k = 0; k < kUnroll; ++k) {
        if (first + k * kThreads < vectors) to[first + k * kThreads] = values[k];
      }
    }
  }

  __device__ __forceinline__ void loadGroup(int source, int first, int vectors,
                                            uint4 (&values)[kUnroll]) const {
    const auto* from = reinterpret_cast<const uint4*>(shared_.places[source]);
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) {
      const int at = first + k * kThreads;
      values[k] = loadStagedIf(at < vectors, from + at);
    }
  }

  __device__ void copyVectors(const Step& step, int vectors) const {
    eachGroup(vectors, [&](int first) {
      uint4 values[kUnroll];
      loadGroup(0, first, vectors, values);
      storeGroup(step, first, vectors, values);
    });
  }

  __device__ void foldVectors(const Step& step, int vectors) const {
    using Wide = decltype(policy_.template lanesOf<uint4>(uint4{}, false));
    eachGroup(vectors, [&](int first) {
      uint4 values[kUnroll];
      Wide sums[kUnroll];
      for (int source = 0; source < step.sources; ++source) {
        loadGroup(source, first, vectors, values);
        const bool isScaled = shared_.isScaled[source];
#pragma unroll
        for (int k = 0; k < kUnroll; ++k) {
          const Wide next = policy_.template lanesOf<uint4>(values[k], isScaled);
          if (source == 0) {
            sums[k] = next;
          } else {
            policy_.add(sums[k], next);
          }
        }
      }
#pragma unroll
      for (int k = 0; k < kUnroll; ++k) {
        values[k] = policy_.resultOf(sums[k], step.post);
      }
      storeGroup(step, first, vectors, values);
    });
  }

  const GpuProgramView& view_;
  const GpuProgramCall& call_;
  const uint16_t* const words_;
  const int block_;
  ProgramShared& shared_;
  const Policy& policy_;
  const bool isAligned_;
  // Of the rank that the thread looks after.
  uint64_t sentBefore_ = 0;
  uint64_t receivedBefore_ = 0;
};

// An earlier call has failed: nothing more is run.
__device__ __forceinline__ bool isOver(const GpuProgramView& view) {
  return loadRelaxed(&ownControl(view)->dead) != 0;
}

template <typename Policy>
__device__ __forceinline__ void runProgram(const wire::GpuProgramLaunch& launch,
                                           ProgramShared& shared) {
  if (launch.call.wordCount == 0 || isOver(launch.view)) return;
  GpuCall reduction{};
  reduction.type = launch.call.type;
  reduction.op = launch.call.op;
  reduction.scalar = launch.call.scalar;
  reduction.scalarAddress = launch.call.scalarAddress;
  const Policy policy(reduction, launch.view.rank, launch.view.rankCount);
  ProgramRun<Policy, kProgramThreads>({.view = launch.view,
                                       .call = launch.call,
                                       .words = launch.words,
                                       .block = static_cast<int>(blockIdx.x),
                                       .shared = shared},
                                      policy)
      .run();
}

// A program of one step, which each block finds for itself.
struct TransferProgram {
  GpuProgramCall call;
  uint16_t words[4];
};

__device__ inline void makeTransfer(const wire::GpuProgramTransfers& launch,
                                    const wire::GpuProgramTransfer& transfer,
                                    TransferProgram& program) {
  const int peer = transfer.peerAndKind & ~wire::kGpuProgramSends;
  const bool isSend = (transfer.peerAndKind & wire::kGpuProgramSends) != 0;
  const bool isLocal = peer == launch.view.rank;
  const uint16_t link = wire::kGpuProgramLink | static_cast<uint16_t>(peer);
  program.words[0] = 0;
  program.words[1] = 1 | 1 << 8;
  program.words[2] = isSend || isLocal ? wire::kGpuProgramInput : link;
  program.words[3] = isSend ? link : wire::kGpuProgramOutput;
  const size_t byLines = wire::kGpuProgramLinePayload;
  GpuProgramCall& call = program.call;
  call = {};
  call.messages = !isLocal && transfer.bytes <= byLines * transfer.blocks ? GpuMessages::kLines
                                                                          : GpuMessages::kSlots;
  const auto cut = wire::cutForGpu(transfer.bytes, 1, transfer.blocks,
                                   wire::gpuMessageBytes(call.messages, launch.view.rankCount));
  call.input = isLocal ? launch.source : transfer.buffer;
  call.output = transfer.buffer;
  call.blockElements = call.chunkElements = transfer.bytes;
  call.sliceElements = cut.sliceElements;
  call.pieceElements = cut.pieceElements;
  call.pieceCount = cut.pieceCount;
  call.chunksPerBlock = 1;
  call.signature = transfer.signature;
  call.wordCount = 4;
  call.elementBytes = 1;
  call.collective = isSend ? Collective::kSend : Collective::kRecv;
}

__device__ __forceinline__ void runProgramTransfers(const wire::GpuProgramTransfers& launch,
                                                    ProgramShared& shared,
                                                    TransferProgram& program) {
  if (launch.transferCount == 0 || isOver(launch.view)) return;
  const int block = static_cast<int>(blockIdx.x);
  for (int i = 0; i < launch.transferCount; ++i) {
    const wire::GpuProgramTransfer& transfer = launch.transfers[i];
    if (block < transfer.firstBlock || block >= transfer.firstBlock + transfer.blocks) continue;
    if (threadIdx.x == 0) makeTransfer(launch, transfer, program);
    __syncthreads();
    const Moving policy(GpuCall{}, 0, 0);
    ProgramRun<Moving, kProgramTransferThreads>({.view = launch.view,
                                                 .call = program.call,
                                                 .words = program.words,
                                                 .block = block - transfer.firstBlock,
                                                 .shared = shared},
                                                policy)
        .run();
    return;
  }
}

}  // namespace tutti::kernels::cuda
