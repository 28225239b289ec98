// How one warp moves messages: by the copy engine of its multiprocessor (cp.async.bulk), through
// shared memory. A thread for each message of a step: it starts the load, waits for it, starts the
// stores, and waits until they are where they belong. Bytes under way then take shared memory
// instead of registers and threads, so that a multiprocessor carries several lanes' parts at once.
//
// Of the generic proxy's writes the loads here see those that came before the barrier with the
// opener, who acquired the message's mark: a proxy fence stands between. A store that has completed
// is visible to its thread as any other, so the closer's fence and mark may follow.
//
// Addresses are multiples of 16 bytes (GpuLaunch::isBulk); what is left of a message at the end of
// a vector goes by plain stores.
#pragma once

#include "kernels/cuda/ranges.cuh"

namespace tutti::kernels::cuda {

inline constexpr int kBulkLanes = wire::kGpuBulkLanes;  // of a block
inline constexpr int kBulkMovers = 32;
inline constexpr int kBulkThreads = kBulkMovers + kKeepers;  // of a lane's part

__device__ __forceinline__ uint32_t sharedAddress(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

// One thread's: a buffer in shared memory and the barrier that says that a load has come.
class BulkCopier {
 public:
  __device__ BulkCopier(std::byte* buffer, uint64_t* loaded) : buffer_(buffer), loaded_(loaded) {}

#if __CUDA_ARCH__ >= 900
  // Once in a launch; a barrier of all that use it follows.
  static __device__ __forceinline__ void prepare(uint64_t* loaded) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(sharedAddress(loaded)) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  static __device__ __forceinline__ void fence() {
    asm volatile("fence.proxy.async;" ::: "memory");
  }
  __device__ __forceinline__ void load(const std::byte* from, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     sharedAddress(loaded_)),
                 "r"(bytes)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
        ::"r"(sharedAddress(buffer_)),
        "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(sharedAddress(loaded_))
        : "memory");
  }
  __device__ __forceinline__ void awaitLoad() {
    uint32_t isThere = 0;
    while (isThere == 0) {
      asm volatile(
          "{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
          " selp.u32 %0, 1, 0, p;\n}"
          : "=r"(isThere)
          : "r"(sharedAddress(loaded_)), "r"(phase_)
          : "memory");
    }
    phase_ ^= 1;
  }
  __device__ __forceinline__ void store(std::byte* to, uint32_t bytes) const {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                     __cvta_generic_to_global(to)),
                 "r"(sharedAddress(buffer_)), "r"(bytes)
                 : "memory");
  }
  // What the thread has stored so far is read, or is where it belongs.
  static __device__ __forceinline__ void awaitRead() {
    asm volatile("cp.async.bulk.commit_group;\n cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
  static __device__ __forceinline__ void awaitStored() {
    asm volatile("cp.async.bulk.commit_group;\n cp.async.bulk.wait_group 0;" ::: "memory");
  }
#else  // never run (GpuChoice::isBulk)
  static __device__ __forceinline__ void prepare(uint64_t*) {}
  static __device__ __forceinline__ void fence() {}
  __device__ __forceinline__ void load(const std::byte*, uint32_t) {}
  __device__ __forceinline__ void awaitLoad() {}
  __device__ __forceinline__ void store(std::byte*, uint32_t) const {}
  static __device__ __forceinline__ void awaitRead() {}
  static __device__ __forceinline__ void awaitStored() {}
#endif

 private:
  std::byte* buffer_;
  uint64_t* loaded_;
  uint32_t phase_ = 0;
};

// A warp's threads, the first kPeers of which move: each the message of one place of the table.
template <int kPeers>
class BulkMovers {
 public:
  // `buffers`: of the lane, kPeers of `stride` bytes.
  __device__ BulkMovers(std::byte* buffers, uint32_t stride, uint64_t* loaded, int lane)
      : lane_(lane), copier_(buffers + lane * stride, loaded + lane) {}

  // All of the warp.
  template <typename Step>
  __device__ __forceinline__ void move(const Step& step) {
    if (lane_ < kPeers) {
      BulkCopier::fence();
      if (step.same.bytes != 0) {
        if (lane_ == 0) spread(step.same);
      }
      if (step.hasEach) copy(step.each[lane_]);
      if (step.hasOwn) copy(step.own[lane_]);
      if (step.hasCollects) copy(step.collects[lane_]);
      BulkCopier::awaitStored();
    }
    __syncwarp();
  }

 private:
  static __device__ __forceinline__ uint32_t wholeOf(uint32_t bytes) { return bytes & ~15U; }

  template <int kAll>
  __device__ __forceinline__ void spread(const Spread<kAll>& range) {
    const uint32_t whole = wholeOf(range.bytes);
    if (whole != 0) {
      copier_.load(range.from, whole);
      copier_.awaitLoad();
#pragma unroll
      for (int j = 0; j < kPeers; ++j) {
        if (range.slots[j] != nullptr)
          copier_.store(reinterpret_cast<std::byte*>(range.slots[j]), whole);
      }
      if (range.to != nullptr) copier_.store(range.to, whole);
    }
    const uint32_t rest = range.bytes - whole;
    if (rest == 0) return;
    const uint4 value = loadAny<uint4>(range.from + whole, static_cast<int>(rest));
#pragma unroll
    for (int j = 0; j < kPeers; ++j) {
      if (range.slots[j] != nullptr) range.slots[j][whole / sizeof(uint4)] = value;
    }
    if (range.to != nullptr) storeAny(range.to + whole, value, static_cast<int>(rest));
  }

  __device__ __forceinline__ void copy(const Range& range) {
    const uint32_t whole = wholeOf(range.bytes);
    if (whole != 0) {
      BulkCopier::awaitRead();
      copier_.load(range.from, whole);
      copier_.awaitLoad();
      copier_.store(range.to, whole);
    }
    const uint32_t rest = range.bytes - whole;
    if (rest == 0) return;
    storeAny(range.to + whole, loadAny<uint4>(range.from + whole, static_cast<int>(rest)),
             static_cast<int>(rest));
  }

  const int lane_;
  BulkCopier copier_;
};

}  // namespace tutti::kernels::cuda
