// The general executor on GPUs: runs the program of any proved schedule, a block for each slice of
// the chunks. A step waits until every message it reads is there and every ring it writes has room,
// folds, and tells the peers; as kernels/execution.h does on CPUs.
#pragma once

#include "kernels/cuda/policies.cuh"
#include "kernels/cuda/program_messages.cuh"

namespace tutti::kernels::cuda {

inline constexpr int kProgramThreads = 512;
// So that the blocks of many transfers are on the GPU at once.
inline constexpr int kProgramTransferThreads = 256;

// One block's run of one program.
template <typename Policy, int kThreads>
class ProgramRun : private ProgramMessages {
 public:
  using ProgramMessages::Parts;

  __device__ ProgramRun(const Parts& parts, const Policy& policy)
      : ProgramMessages(parts), policy_(policy), isAligned_(findAlignment()) {}

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
  // Whether all that the call touches begins on vectors.
  __device__ bool findAlignment() const {
    const uint64_t bits = reinterpret_cast<uintptr_t>(call_.input) |
                          reinterpret_cast<uintptr_t>(call_.output) |
                          call_.blockElements * call_.elementBytes;
    return bits % sizeof(uint4) == 0;
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

  const Policy& policy_;
  const bool isAligned_;
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
