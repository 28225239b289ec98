// How one warp moves messages: by the copy engine of its multiprocessor (cp.async.bulk), through
// shared memory. A thread for each message of a step: it starts the load, waits for it and starts
// the stores. What is under way takes shared memory instead of registers and threads, so that a
// multiprocessor carries several lanes' parts at once.
//
// A peer's stores reached this GPU before its mark, which the opener has acquired; its fence stands
// between that and the engine's loads here. A store of the engine's that has completed is to its
// thread as one of its own, so the closer's fence and mark may follow.
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

// Between what this thread has acquired and the loads of its block's engine behind a barrier.
__device__ __forceinline__ void fenceForEngine() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}

// One thread's: a buffer in shared memory, and the barrier that says that a load has come.
class BulkCopier {
 public:
  __device__ BulkCopier(std::byte* buffer, uint64_t* loaded) : buffer_(buffer), loaded_(loaded) {}

#if __CUDA_ARCH__ >= 900
  // Once in a launch; a barrier of all that use it follows.
  __device__ __forceinline__ void prepare() const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(sharedAddress(loaded_)) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }

  // Into the buffer, once what was stored from there has been read.
  __device__ __forceinline__ void load(const std::byte* from, uint32_t bytes) {
    asm volatile("cp.async.bulk.commit_group;\n cp.async.bulk.wait_group.read 0;" ::: "memory");
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(sharedAddress(loaded_)),
        "r"(bytes)
        : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(sharedAddress(buffer_)),
        "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(sharedAddress(loaded_))
        : "memory");
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

  // What was loaded last.
  __device__ __forceinline__ void store(std::byte* to, uint32_t bytes) const {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                     __cvta_generic_to_global(to)),
                 "r"(sharedAddress(buffer_)), "r"(bytes)
                 : "memory");
  }

  // The thread's stores since the last time are a group.
  static __device__ __forceinline__ void commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  }
  // All groups but the last so many have come where they go.
  template <int kGroups>
  static __device__ __forceinline__ void awaitStored() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kGroups) : "memory");
  }
#else  // never run (canBulk())
  __device__ __forceinline__ void prepare() const {}
  __device__ __forceinline__ void load(const std::byte*, uint32_t) {}
  __device__ __forceinline__ void store(std::byte*, uint32_t) const {}
  static __device__ __forceinline__ void commit() {}
  template <int kGroups>
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
  // `buffers`: a slot's bytes for each peer.
  __device__ BulkMovers(std::byte* buffers, int rankCount, uint64_t* loaded, int lane)
      : lane_(lane), copier_(buffers + lane * wire::gpuSlotBytes(rankCount), loaded + lane) {}

  __device__ __forceinline__ void prepare() const {
    if (lane_ < kPeers) copier_.prepare();
  }

  // All of the warp. A step's stores are under way while the next one's loads are, but nothing is
  // kept from the closer while there is no next one.
  template <typename Step>
  __device__ __forceinline__ void run(const Step (&tables)[2], Pump& pump,
                                      const PumpBarrier& barrier, int64_t steps) {
    bool isPending = false;
    for (int64_t step = 0; step < steps; ++step) {
      if (isPending && !isOpen(pump, step)) {
        BulkCopier::awaitStored<0>();
        raiseMoved(pump);
        isPending = false;
      }
      barrier.meet();
      const Step& table = tables[step & 1];
      if (!table.isFine) break;
      if (lane_ < kPeers) move(table);
      BulkCopier::commit();
      if (isPending) {
        BulkCopier::awaitStored<1>();
        raiseMoved(pump);
      }
      isPending = true;
    }
    BulkCopier::awaitStored<0>();
    if (isPending) raiseMoved(pump);
  }

 private:
  // For all threads of the warp alike.
  static __device__ __forceinline__ bool isOpen(const Pump& pump, int64_t step) {
    const unsigned opened = *static_cast<const volatile unsigned*>(&pump.opened);
    return __all_sync(0xffffffff, opened > static_cast<unsigned>(step) ? 1 : 0) != 0;
  }

  template <typename Step>
  __device__ __forceinline__ void move(const Step& step) {
    if (step.same.bytes != 0 && lane_ == 0) spread(step.same);
    if (step.hasEach) copy(step.each[lane_]);
    if (step.hasOwn) copy(step.own[lane_]);
    if (step.hasCollects) copy(step.collects[lane_]);
  }

  template <int kAll>
  __device__ __forceinline__ void spread(const Spread<kAll>& range) {
    const uint32_t whole = range.bytes & ~15U;
    if (whole != 0) {
      copier_.load(range.from, whole);
#pragma unroll
      for (int j = 0; j < kPeers; ++j) {
        if (range.slots[j] != nullptr)
          copier_.store(reinterpret_cast<std::byte*>(range.slots[j]), whole);
      }
      if (range.to != nullptr) copier_.store(range.to, whole);
    }
    if (whole == range.bytes) return;
    const auto rest = static_cast<int>(range.bytes - whole);
    const uint4 value = loadAny<uint4>(range.from + whole, rest);
#pragma unroll
    for (int j = 0; j < kPeers; ++j) {
      if (range.slots[j] != nullptr) range.slots[j][whole / sizeof(uint4)] = value;
    }
    if (range.to != nullptr) storeAny(range.to + whole, value, rest);
  }

  __device__ __forceinline__ void copy(const Range& range) {
    const uint32_t whole = range.bytes & ~15U;
    if (whole != 0) {
      copier_.load(range.from, whole);
      copier_.store(range.to, whole);
    }
    if (whole == range.bytes) return;
    const auto rest = static_cast<int>(range.bytes - whole);
    storeAny(range.to + whole, loadAny<uint4>(range.from + whole, rest), rest);
  }

  const int lane_;
  BulkCopier copier_;
};

}  // namespace tutti::kernels::cuda
