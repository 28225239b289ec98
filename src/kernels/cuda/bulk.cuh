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
inline constexpr int kBulkParts = wire::kGpuBulkParts;  // of a message
inline constexpr int kBulkThreads = kBulkMovers + kKeepers;  // of a lane's part

__device__ __forceinline__ uint32_t sharedAddress(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

// One thread's bytes: parts of messages, each through the next of kBulkParts buffers. While one part
// is stored the next is loaded.
class BulkCopier {
 public:
  // `buffers`: kBulkParts of `stride` bytes, and as many barriers that say that a load has come.
  __device__ BulkCopier(std::byte* buffers, uint32_t stride, uint64_t* loaded)
      : buffers_(buffers), stride_(stride), loaded_(loaded) {}

  // Once in a launch; a barrier of all that use it follows.
  __device__ __forceinline__ void prepare() const {
#if __CUDA_ARCH__ >= 900
    for (int i = 0; i < kBulkParts; ++i) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(sharedAddress(loaded_ + i))
                   : "memory");
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
  }

  // The stores of the part before begin, and this part's load: a multiple of 16 bytes. What is no
  // part has a turn, too.
  template <typename To>
  __device__ __forceinline__ void push(const std::byte* from, uint32_t bytes, const To& to, To& last) {
    awaitRead<kBulkParts - 2>();
    if (bytes != 0) load(from, bytes);
    drain(last);
    last = to;
    bytes_ = bytes;
    pending_ = next_;
    next_ = next_ + 1 == kBulkParts ? 0 : next_ + 1;
  }
  template <typename To>
  __device__ __forceinline__ void drain(const To& last) {
    if (bytes_ != 0) {
      awaitLoad();
      last.each([&](std::byte* to) { store(to); });
    }
    bytes_ = 0;
    commit();
  }
  // All turns but so many are where they belong.
  template <int kTurns>
  static __device__ __forceinline__ void awaitStored() {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kTurns) : "memory");
#endif
  }

 private:
#if __CUDA_ARCH__ >= 900
  template <int kTurns>
  static __device__ __forceinline__ void awaitRead() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kTurns) : "memory");
  }
  static __device__ __forceinline__ void commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  }
  __device__ __forceinline__ void load(const std::byte* from, uint32_t bytes) const {
    const uint32_t loaded = sharedAddress(loaded_ + next_);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(loaded), "r"(bytes)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
        ::"r"(sharedAddress(buffers_ + next_ * stride_)),
        "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(loaded)
        : "memory");
  }
  __device__ __forceinline__ void awaitLoad() {
    uint32_t isThere = 0;
    while (isThere == 0) {
      asm volatile(
          "{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
          " selp.u32 %0, 1, 0, p;\n}"
          : "=r"(isThere)
          : "r"(sharedAddress(loaded_ + pending_)), "r"(phases_ >> pending_ & 1)
          : "memory");
    }
    phases_ ^= 1U << pending_;
  }
  __device__ __forceinline__ void store(std::byte* to) const {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                     __cvta_generic_to_global(to)),
                 "r"(sharedAddress(buffers_ + pending_ * stride_)), "r"(bytes_)
                 : "memory");
  }
#else  // never run (GpuRequest::hasBulk)
  template <int kTurns>
  static __device__ __forceinline__ void awaitRead() {}
  static __device__ __forceinline__ void commit() {}
  __device__ __forceinline__ void load(const std::byte*, uint32_t) const {}
  __device__ __forceinline__ void awaitLoad() {}
  __device__ __forceinline__ void store(std::byte*) const {}
#endif

  std::byte* buffers_;
  uint32_t stride_;
  uint64_t* loaded_;
  uint32_t phases_ = 0;  // a bit a buffer
  uint32_t bytes_ = 0;   // that are being loaded, into buffer pending_
  int pending_ = 0;
  int next_ = 0;
};

// A warp's threads, the first kPeers of which move: each the message of one place of the table.
template <int kPeers>
class BulkMovers {
 public:
  // `buffers`: of the lane, BulkCopier's of each thread.
  __device__ BulkMovers(std::byte* buffers, uint32_t stride, uint64_t* loaded, int lane)
      : lane_(lane),
        copier_(buffers + lane * kBulkParts * stride, stride, loaded + lane * kBulkParts),
        stride_(stride) {}

  __device__ __forceinline__ void prepare() const {
    if (lane_ < kPeers) copier_.prepare();
  }

  // All of the warp. A step's last stores begin with the next step, but nothing is kept from the
  // closer while there is no next one.
  template <typename Step>
  __device__ __forceinline__ void run(const Step (&tables)[2], Pump& pump, PumpBarrier barrier,
                                      int64_t steps) {
    bool isPending = false;
    for (int64_t step = 0; step < steps; ++step) {
      const unsigned opened = *static_cast<volatile unsigned*>(&pump.opened);
      const bool isThere = opened > static_cast<unsigned>(step);
      if (isPending && __all_sync(0xffffffff, isThere ? 1 : 0) == 0) {
        finish(pump);
        isPending = false;
      }
      barrier.meet();
      const Step& table = tables[step & 1];
      if (!table.isFine) break;
      if (lane_ < kPeers) move(table);
      if (isPending) {
        BulkCopier::awaitStored<kBulkParts - 1>();
        raiseMoved(pump);
      }
      isPending = true;
    }
    if (isPending) finish(pump);
  }

 private:
  // Where a part goes.
  struct To {
    std::byte* to = nullptr;
    std::byte* slots[kPeers] = {};
    template <typename Store>
    __device__ __forceinline__ void each(const Store& store) const {
      if (to != nullptr) store(to);
#pragma unroll
      for (int j = 0; j < kPeers; ++j) {
        if (slots[j] != nullptr) store(slots[j]);
      }
    }
  };

  __device__ __forceinline__ void finish(Pump& pump) {
    copier_.drain(last_);
    BulkCopier::awaitStored<0>();
    raiseMoved(pump);
  }

  // kBulkParts turns of each that there is in the step, for all threads.
  template <typename Step>
  __device__ __forceinline__ void move(const Step& step) {
    if (step.same.bytes != 0) spread(step.same, lane_ == 0);
    if (step.hasEach) copy(step.each[lane_]);
    if (step.hasOwn) copy(step.own[lane_]);
    if (step.hasCollects) copy(step.collects[lane_]);
  }

  template <int kAll>
  __device__ __forceinline__ void spread(const Spread<kAll>& range, bool isMine) {
    const uint32_t whole = isMine ? range.bytes & ~15U : 0;
#pragma unroll 1
    for (uint32_t at = 0; at < kBulkParts * stride_; at += stride_) {
      To to;
      to.to = range.to == nullptr ? nullptr : range.to + at;
#pragma unroll
      for (int j = 0; j < kPeers; ++j) {
        auto* slot = reinterpret_cast<std::byte*>(range.slots[j]);
        to.slots[j] = slot == nullptr ? nullptr : slot + at;
      }
      copier_.push(range.from + at, at < whole ? min(whole - at, stride_) : 0, to, last_);
    }
    const uint32_t rest = isMine ? range.bytes - whole : 0;
    if (rest == 0) return;
    const uint4 value = loadAny<uint4>(range.from + whole, static_cast<int>(rest));
#pragma unroll
    for (int j = 0; j < kPeers; ++j) {
      if (range.slots[j] != nullptr) range.slots[j][whole / sizeof(uint4)] = value;
    }
    if (range.to != nullptr) storeAny(range.to + whole, value, static_cast<int>(rest));
  }

  __device__ __forceinline__ void copy(const Range& range) {
    const uint32_t whole = range.bytes & ~15U;
#pragma unroll 1
    for (uint32_t at = 0; at < kBulkParts * stride_; at += stride_) {
      To to;
      to.to = range.to + at;
      copier_.push(range.from + at, at < whole ? min(whole - at, stride_) : 0, to, last_);
    }
    const uint32_t rest = range.bytes - whole;
    if (rest == 0) return;
    storeAny(range.to + whole, loadAny<uint4>(range.from + whole, static_cast<int>(rest)),
             static_cast<int>(rest));
  }

  const int lane_;
  BulkCopier copier_;
  const uint32_t stride_;
  To last_;
};

}  // namespace tutti::kernels::cuda
