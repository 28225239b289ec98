// GpuStamps: when a GPU comes to points of streams, by the host's clock.
//
// A stamp is a kernel of one thread that stores the GPU's timer in pinned memory. Events of the
// driver were the alternative: they tell lengths only, by 0.5 µs and in floats of milliseconds, and
// host functions hold their stream up for some 10 µs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "base/status.h"
#include "device/accelerator.h"
#include "launch/gpu_clock.h"

namespace tutti::launch {

// put() and hasRoom() are one thread's at a time, all else another's.
class GpuStamps {
 public:
  static constexpr uint64_t kMost = 4096;  // that are not released yet

  struct Parts {
    device::Accelerator& accelerator;
    Clock& clock;
    Nanoseconds timeout{};  // for the first look at the GPU's clock
  };
  // REQUIRES: nothing on the GPU waits for this rank.
  static Result<std::unique_ptr<GpuStamps>> open(const Parts& parts);
  ~GpuStamps();
  GpuStamps(const GpuStamps&) = delete;
  GpuStamps& operator=(const GpuStamps&) = delete;

  const device::Kernel& kernel() const { return *kernel_; }

  bool hasRoom(uint64_t stamps) const {
    return last_ + stamps - released_.load(std::memory_order_acquire) <= kMost;
  }
  // The stamp's number, from 1 on. Neither allocates nor waits. REQUIRES: there is room.
  Result<uint64_t> put(void* stream);
  uint64_t last() const { return last_; }

  // What the GPU's timer was there; 0: it has not come there yet. REQUIRES: put later than `after`.
  uint64_t read(uint64_t stamp, Instant after);
  // Those up to this one have all been read, and are not any more.
  void release(uint64_t last);

  Instant instantOf(uint64_t timer) const { return gpuClock_.instantOf(timer); }
  Nanoseconds uncertainty() const { return gpuClock_.uncertainty(); }
  // To be called while anything is read: clocks drift. Takes some 10 µs now and then.
  void compareClocks();

 private:
  // In pinned memory: 0 until the GPU has been there.
  struct Words {
    alignas(64) uint64_t clock;
    alignas(64) uint64_t stamps[kMost];
  };

  explicit GpuStamps(const Parts& parts) : parts_(parts) {}
  Status initialise();
  Status launch(size_t offset, void* stream);
  Status askClock();
  bool hearClock(Nanoseconds bound);
  std::atomic_ref<uint64_t> word(size_t offset) const;
  static size_t offsetOf(uint64_t stamp);

  const Parts parts_;
  const device::Kernel* kernel_ = nullptr;
  std::unique_ptr<device::SharedWords> words_;
  void* stream_ = nullptr;  // for the clock's stamps: they do not wait for calls

  uint64_t last_ = 0;  // by who puts
  // Stored with release by who reads, once the words are 0 again.
  std::atomic<uint64_t> released_{0};

  // By who reads.
  GpuClock gpuClock_;
  bool isAsked_ = false;  // the clock's stamp is on its way
  bool isLost_ = false;   // the driver takes none any more
  Instant askedAt_{};
  Instant heardAt_{};
};

}  // namespace tutti::launch
