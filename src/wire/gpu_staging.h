// What the host tells a GPU of one round of staged calls (launch/staging.h): the parameter of the
// kernel tuttiStage in kernels/cuda/step.cu.
#pragma once

#include <atomic>
#include <cstdint>

namespace tutti::wire {

inline constexpr int32_t kGpuStagingBlocks = 16;
inline constexpr int32_t kGpuStagingCopies = 64;

// In pinned memory, polled from both sides. Rounds are numbered from 1, around 2^32.
struct GpuStagingWords {
  // By block: the last round whose copies in have ended, of the first block that of any kind.
  // Stored with release by the device.
  alignas(64) std::atomic<uint32_t> begun[kGpuStagingBlocks]{};
  // The last round whose calls have ended, stored with release by the host.
  alignas(64) std::atomic<uint32_t> ended{0};
};

struct GpuStagingCopy {
  void* to;
  const void* from;
  uint64_t bytes;
};

struct GpuStaging {
  GpuStagingWords* words;  // as the device reaches them
  uint32_t round;
  uint32_t freed;    // the round that must have ended before this one copies in; 0: none
  int32_t inCount;   // of the copies, the first: into the slot
  int32_t outCount;  // those after them: out of it, once the round has ended; 0: nobody waits for
                     // it
  GpuStagingCopy copies[kGpuStagingCopies]{};
};
static_assert(sizeof(GpuStaging) < 4096);  // a kernel's parameters

// Whether a word that counts rounds has come to this one.
constexpr bool hasReached(uint32_t word, uint32_t round) {
  return static_cast<int32_t>(word - round) >= 0;
}

}  // namespace tutti::wire
