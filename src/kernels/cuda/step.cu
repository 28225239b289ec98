// What GPUs do for the host's executor: its steps on a GPU's memory (kernels/gpu_folder.h), one
// fold a launch, of each element type; and rounds of calls that it carries out in pinned memory
// (launch/staged_launcher.h), copied in, awaited and copied out by one launch. And what notes when
// a GPU comes to it (launch/gpu_profile.h).
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/memory.cuh"
#include "wire/gpu_fold.h"
#include "wire/gpu_staging.h"
#include "wire/gpu_stamp.h"

namespace tutti::kernels::cuda {
namespace {

using wire::GpuFold;

// Element by element, in lanes of which one is used: wherever the memory begins.
template <typename Element>
__device__ void foldOne(const GpuFold& fold, uint64_t at) {
  using Wide = Lanes<Element, uint4>;
  using Bits = typename Element::Bits;
  union {
    uint4 whole;
    Bits parts[Wide::kCount];
  } bits;
  bits.whole = {};
  bits.parts[0] = static_cast<const Bits*>(fold.sources[0])[at];
  Wide sum = Wide::widen(bits.whole);
  for (int i = 1; i < fold.sourceCount; ++i) {
    bits.parts[0] = static_cast<const Bits*>(fold.sources[i])[at];
    sum.fold(fold.op, Wide::widen(bits.whole));
  }
  if (fold.divisor != 0) sum.divide(fold.divisor, std::is_unsigned_v<typename Element::Bits>);
  bits.whole = sum.narrow();
  for (int i = 0; i < fold.destinationCount; ++i)
    static_cast<Bits*>(fold.destinations[i])[at] = bits.parts[0];
}

template <typename Element>
__device__ void foldVector(const GpuFold& fold, uint64_t at) {
  using Wide = Lanes<Element, uint4>;
  Wide sum = Wide::widen(static_cast<const uint4*>(fold.sources[0])[at]);
  for (int i = 1; i < fold.sourceCount; ++i)
    sum.fold(fold.op, Wide::widen(static_cast<const uint4*>(fold.sources[i])[at]));
  if (fold.divisor != 0) sum.divide(fold.divisor, std::is_unsigned_v<typename Element::Bits>);
  const uint4 result = sum.narrow();
  for (int i = 0; i < fold.destinationCount; ++i)
    static_cast<uint4*>(fold.destinations[i])[at] = result;
}

__device__ bool isAligned(const GpuFold& fold) {
  uint64_t bits = 0;
  for (int i = 0; i < fold.sourceCount; ++i) bits |= reinterpret_cast<uint64_t>(fold.sources[i]);
  for (int i = 0; i < fold.destinationCount; ++i)
    bits |= reinterpret_cast<uint64_t>(fold.destinations[i]);
  return bits % sizeof(uint4) == 0;
}

template <typename Element>
__device__ void runFold(const GpuFold& fold) {
  constexpr uint64_t kWidth = sizeof(uint4) / sizeof(typename Element::Bits);
  const uint64_t first = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const uint64_t threads = uint64_t{gridDim.x} * blockDim.x;
  const uint64_t vectors = isAligned(fold) ? fold.elementCount / kWidth : 0;
  for (uint64_t at = first; at < vectors; at += threads) foldVector<Element>(fold, at);
  for (uint64_t at = vectors * kWidth + first; at < fold.elementCount; at += threads)
    foldOne<Element>(fold, at);
}

template <typename Word>
__device__ void copyWords(const wire::GpuStagingCopy& copy) {
  const auto* from = static_cast<const Word*>(copy.from);
  auto* to = static_cast<Word*>(copy.to);
  const uint64_t words = copy.bytes / sizeof(Word);
  const uint64_t threads = uint64_t{gridDim.x} * blockDim.x;
  const uint64_t first = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
#pragma unroll 4
  for (uint64_t at = first; at < words; at += threads) to[at] = __ldcg(from + at);
  const uint64_t rest = words * sizeof(Word) + first;
  if (rest < copy.bytes)
    static_cast<char*>(copy.to)[rest] = __ldcg(static_cast<const char*>(copy.from) + rest);
}

__device__ void copyAll(const wire::GpuStagingCopy* copies, int count) {
  for (int i = 0; i < count; ++i) {
    const wire::GpuStagingCopy& copy = copies[i];
    const uint64_t bits =
        reinterpret_cast<uint64_t>(copy.from) | reinterpret_cast<uint64_t>(copy.to);
    if (bits % sizeof(uint4) == 0) {
      copyWords<uint4>(copy);
    } else if (bits % sizeof(uint32_t) == 0) {
      copyWords<uint32_t>(copy);
    } else {
      copyWords<char>(copy);
    }
  }
}

// By all threads of the block. The host raises the word whatever becomes of the calls, so this
// ends.
__device__ void awaitEnd(const wire::GpuStaging& staging, uint32_t round) {
  const auto* ended = reinterpret_cast<const uint32_t*>(&staging.words->ended);
  if (threadIdx.x == 0) {
    while (!wire::hasReached(loadAcquire(ended), round)) {
    }
  }
  __syncthreads();
}

__device__ void runRound(const wire::GpuStaging& round) {
  if (round.freed != 0) awaitEnd(round, round.freed);
  copyAll(round.copies, round.inCount);
  __syncthreads();
  if (threadIdx.x == 0) {
    fenceSystem();
    storeRelaxed(reinterpret_cast<uint32_t*>(round.words->begun) + blockIdx.x, round.round);
  }
  if (round.outCount == 0) return;
  awaitEnd(round, round.round);
  copyAll(round.copies + round.inCount, round.outCount);
}

__device__ void putStamp(const wire::GpuStamp& stamp) {
  if (stamp.word != nullptr && threadIdx.x == 0) storeRelaxed(stamp.word, nanoseconds());
}

}  // namespace
}  // namespace tutti::kernels::cuda

#define TUTTI_STEP_KERNEL(type)                                             \
  extern "C" __global__ void __launch_bounds__(256)                         \
      tuttiStep_##type(const __grid_constant__ tutti::wire::GpuFold fold) { \
    using namespace tutti::kernels::cuda;                                   \
    runFold<ElementOf<tutti::DataType::type>>(fold);                        \
  }

TUTTI_STEP_KERNEL(kInt8)
TUTTI_STEP_KERNEL(kUint8)
TUTTI_STEP_KERNEL(kInt32)
TUTTI_STEP_KERNEL(kUint32)
TUTTI_STEP_KERNEL(kInt64)
TUTTI_STEP_KERNEL(kUint64)
TUTTI_STEP_KERNEL(kFloat16)
TUTTI_STEP_KERNEL(kFloat32)
TUTTI_STEP_KERNEL(kFloat64)
TUTTI_STEP_KERNEL(kBfloat16)
TUTTI_STEP_KERNEL(kFloat8E4M3)
TUTTI_STEP_KERNEL(kFloat8E5M2)

extern "C" __global__ void __launch_bounds__(512)
    tuttiStage(const __grid_constant__ tutti::wire::GpuStaging round) {
  tutti::kernels::cuda::runRound(round);
}

extern "C" __global__ void tuttiStamp(const __grid_constant__ tutti::wire::GpuStamp stamp) {
  tutti::kernels::cuda::putStamp(stamp);
}
