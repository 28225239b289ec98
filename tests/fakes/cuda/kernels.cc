// Kernels: what they do for the host's executor, and stamps of a timer that is FAKE_CUDA_TIMER_NS
// ahead of the host's clock.
#include "kernels/kernels.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/clock.h"
#include "fakes/cuda/entry.h"
#include "fakes/cuda/stream.h"
#include "kernels/gpu_catalog.h"
#include "wire/gpu_fold.h"
#include "wire/gpu_staging.h"
#include "wire/gpu_stamp.h"

namespace fakes::cuda {
namespace {

struct LaunchShape {
  unsigned grid[3], block[3], sharedBytes;
  void* stream;
};

void runStep(tutti::DataType type, const tutti::wire::GpuFold& fold) {
  tutti::kernels::fold(
      {.type = type, .op = fold.op, .rankCount = fold.divisor},
      {.sources = {fold.sources, static_cast<size_t>(fold.sourceCount)},
       .destinations = {fold.destinations, static_cast<size_t>(fold.destinationCount)},
       .elementCount = fold.elementCount,
       .post = fold.divisor != 0});
}

void copyAll(const tutti::wire::GpuStagingCopy* copies, int count) {
  for (int i = 0; i < count; ++i) std::memmove(copies[i].to, copies[i].from, copies[i].bytes);
}

void awaitEnd(const tutti::wire::GpuStaging& staging, uint32_t round) {
  const auto& ended = staging.words->ended;
  while (!tutti::wire::hasReached(ended.load(std::memory_order_acquire), round))
    std::this_thread::sleep_for(std::chrono::microseconds(20));
}

void runRound(const tutti::wire::GpuStaging& round, unsigned blocks) {
  if (round.freed != 0) awaitEnd(round, round.freed);
  copyAll(round.copies, round.inCount);
  for (unsigned block = 0; block < blocks; ++block)
    round.words->begun[block].store(round.round, std::memory_order_release);
  if (round.outCount == 0) return;
  awaitEnd(round, round.round);
  copyAll(round.copies + round.inCount, round.outCount);
}

int64_t timerOffset() {
  static const char* text = std::getenv("FAKE_CUDA_TIMER_NS");
  return text == nullptr ? 0 : std::strtoll(text, nullptr, 10);
}

void putStamp(uint64_t* word) {
  const auto now = static_cast<int64_t>(tutti::steadyClock().now());
  if (word != nullptr) std::atomic_ref(*word).store(static_cast<uint64_t>(now + timerOffset()));
}

// A function is the number of its type, from 1 on; others are kUnknownKernel.
void* const kUnknownKernel = reinterpret_cast<void*>(intptr_t{1000});
void* const kStage = reinterpret_cast<void*>(intptr_t{1001});
void* const kStamp = reinterpret_cast<void*>(intptr_t{1002});

}  // namespace

FAKE_CUDA cuModuleLoadData(void** module, const void* image) {
  FAKE_CUDA_ENTER;
  *module = const_cast<void*>(image);
  return kSuccess;
}
FAKE_CUDA cuModuleGetFunction(void** function, void*, const char* name) {
  FAKE_CUDA_ENTER;
  for (int type = 0; type < tutti::kDataTypeCount; ++type) {
    if (std::strcmp(name, tutti::kernels::cuda::stepKernel(tutti::DataType(type))) != 0) continue;
    *function = reinterpret_cast<void*>(static_cast<intptr_t>(type) + 1);
    return kSuccess;
  }
  const bool isStage = std::strcmp(name, tutti::kernels::cuda::kStageKernel) == 0;
  const bool isStamp = std::strcmp(name, tutti::kernels::cuda::kStampKernel) == 0;
  *function = isStage ? kStage : isStamp ? kStamp : kUnknownKernel;
  return kSuccess;
}
FAKE_CUDA cuFuncGetAttribute(int* value, int, void*) {
  FAKE_CUDA_ENTER;
  *value = 0;
  return kSuccess;
}
FAKE_CUDA cuFuncSetAttribute(void*, int, int) {
  FAKE_CUDA_ENTER;
  return kSuccess;
}
FAKE_CUDA cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int, size_t) {
  FAKE_CUDA_ENTER;
  *blocks = 1;
  return kSuccess;
}
FAKE_CUDA cuLaunchKernelEx(const LaunchShape* shape, void* function, void** parameters, void**) {
  FAKE_CUDA_ENTER;
  if (function == kUnknownKernel) return streamOf(shape->stream).put([] {});
  if (function == kStamp) {
    uint64_t* word = static_cast<const tutti::wire::GpuStamp*>(parameters[0])->word;
    return streamOf(shape->stream).put([word] { putStamp(word); });
  }
  if (function == kStage) {
    const auto round = *static_cast<const tutti::wire::GpuStaging*>(parameters[0]);
    const unsigned blocks = shape->grid[0];
    return streamOf(shape->stream).put([round, blocks] { runRound(round, blocks); });
  }
  const auto type = tutti::DataType(reinterpret_cast<intptr_t>(function) - 1);
  const auto fold = *static_cast<const tutti::wire::GpuFold*>(parameters[0]);
  return streamOf(shape->stream).put([type, fold] { runStep(type, fold); });
}

}  // namespace fakes::cuda
