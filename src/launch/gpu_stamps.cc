#include "launch/gpu_stamps.h"

#include <algorithm>

#include "kernels/gpu_catalog.h"
#include "wire/gpu_stamp.h"

namespace tutti::launch {
namespace {

// At first; each narrows what is known of the GPU's clock.
constexpr int kFirstRounds = 32;
// Within this, clocks drift apart by 5 µs at most (GpuClock::kDriftDivisor).
constexpr Nanoseconds kComparisonInterval = std::chrono::milliseconds(100);
// A stamp of the clock's takes some 10 µs where the GPU has room. One that comes later tells less,
// and is heard at the next look.
constexpr Nanoseconds kPatience = std::chrono::microseconds(100);
constexpr Nanoseconds kLastPatience = std::chrono::milliseconds(100);

}  // namespace

Result<std::unique_ptr<GpuStamps>> GpuStamps::open(const Parts& parts) {
  std::unique_ptr<GpuStamps> stamps(new GpuStamps(parts));
  TUTTI_TRY(stamps->initialise());
  return stamps;
}

Status GpuStamps::initialise() {
  device::Accelerator& accelerator = parts_.accelerator;
  TUTTI_TRY_ASSIGN(
      kernel_, accelerator.findKernel(kernels::cuda::stepImage(), kernels::cuda::kStampKernel, 0));
  TUTTI_TRY_ASSIGN(words_, accelerator.makeWords(sizeof(Words)));
  TUTTI_TRY_ASSIGN(stream_, accelerator.createUrgentStream());
  for (int round = 0; round < kFirstRounds; ++round) {
    TUTTI_TRY(askClock());
    if (hearClock(parts_.timeout)) continue;
    return internalError(
        "GPU {} has not run a kernel of one thread within {} ms (TUTTI_TIMEOUT_MS): what else runs "
        "there?",
        parts_.accelerator.busId(),
        std::chrono::duration_cast<std::chrono::milliseconds>(parts_.timeout).count());
  }
  return {};
}

// What the GPU may still write to stays.
GpuStamps::~GpuStamps() {
  bool isQuiet = !isAsked_ || hearClock(kLastPatience);
  for (uint64_t stamp = released_.load(std::memory_order_relaxed) + 1; stamp <= last_; ++stamp)
    isQuiet &= word(offsetOf(stamp)).load(std::memory_order_relaxed) != 0;
  parts_.accelerator.destroyStream(stream_);
  if (!isQuiet) parts_.accelerator.keepForGood(std::move(words_));
}

std::atomic_ref<uint64_t> GpuStamps::word(size_t offset) const {
  auto* bytes = static_cast<std::byte*>(words_->hostAddress());
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(bytes + offset));
}

size_t GpuStamps::offsetOf(uint64_t stamp) {
  return offsetof(Words, stamps) + stamp % kMost * sizeof(uint64_t);
}

Status GpuStamps::launch(size_t offset, void* stream) {
  auto* bytes = static_cast<std::byte*>(words_->deviceAddress());
  const wire::GpuStamp stamp{.word = reinterpret_cast<uint64_t*>(bytes + offset)};
  return parts_.accelerator.launch({.kernel = kernel_, .argument = &stamp}, stream);
}

Result<uint64_t> GpuStamps::put(void* stream) {
  TUTTI_TRY(launch(offsetOf(last_ + 1), stream));
  return ++last_;
}

uint64_t GpuStamps::read(uint64_t stamp, Instant after) {
  const uint64_t timer = word(offsetOf(stamp)).load(std::memory_order_relaxed);
  if (timer != 0) gpuClock_.learn(after, timer, parts_.clock.now());
  return timer;
}

void GpuStamps::release(uint64_t last) {
  for (uint64_t stamp = released_.load(std::memory_order_relaxed) + 1; stamp <= last; ++stamp)
    word(offsetOf(stamp)).store(0, std::memory_order_relaxed);
  released_.store(last, std::memory_order_release);
}

Status GpuStamps::askClock() {
  word(offsetof(Words, clock)).store(0, std::memory_order_relaxed);
  askedAt_ = parts_.clock.now();
  TUTTI_TRY(launch(offsetof(Words, clock), stream_));
  isAsked_ = true;
  return {};
}

// False: not within that time.
bool GpuStamps::hearClock(Nanoseconds bound) {
  const Instant start = parts_.clock.now();
  for (;;) {
    const uint64_t timer = word(offsetof(Words, clock)).load(std::memory_order_relaxed);
    const Instant now = parts_.clock.now();
    if (timer != 0) {
      gpuClock_.learn(askedAt_, timer, now);
      isAsked_ = false;
      heardAt_ = now;
      return true;
    }
    if (now - start > bound) return false;
  }
}

void GpuStamps::compareClocks() {
  if (isAsked_) {
    hearClock({});
  } else if (!isLost_ && parts_.clock.now() - heardAt_ >= kComparisonInterval) {
    isLost_ = !askClock().ok();
    if (!isLost_) hearClock(kPatience);
  }
}

}  // namespace tutti::launch
