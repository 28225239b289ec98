#include "base/futex.h"

#include <errno.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>

namespace tutti {
namespace {

// futex_waitv, added in Linux 5.16; the C library may be older than the kernel. The number is the
// same on all architectures, the layout is the kernel's struct futex_waitv.
constexpr long kFutexWaitvCall = 449;
constexpr uint32_t kFutex32 = 2;
struct FutexWaitv {
  uint64_t value;
  uint64_t address;
  uint32_t flags;
  uint32_t reserved;
};
static_assert(sizeof(FutexWaitv) == 24);

timespec toTimespec(Nanoseconds span) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(span);
  timespec time{};
  time.tv_sec = static_cast<time_t>(seconds.count());
  time.tv_nsec = static_cast<long>((span - seconds).count());
  return time;
}

uint32_t* futexOf(std::atomic<uint64_t>& word) { return reinterpret_cast<uint32_t*>(&word); }

}  // namespace

// No FUTEX_PRIVATE_FLAG anywhere: the words may lie in memory shared with other processes.
// syscall() is no cancellation point, unlike the C library's functions (base/uncancelled.h).

void wakeAll(std::atomic<uint64_t>& word) {
  ::syscall(SYS_futex, futexOf(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void allowFences() { ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0); }

bool fenceOthers() { return ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0; }

bool canFenceOthers() {
  static const bool can = (allowFences(), fenceOthers());
  return can;
}

void sleepOn(const FutexPoint& point, Nanoseconds bound) {
  const timespec timeout = toTimespec(std::max(bound, Nanoseconds{0}));
  ::syscall(SYS_futex, futexOf(*point.word), FUTEX_WAIT, static_cast<uint32_t>(point.seen),
            bound == kUnbounded ? nullptr : &timeout, nullptr, 0);
}

Sleep sleepOnAny(std::span<const FutexPoint> points, Nanoseconds bound) {
  if (points.size() == 1) {
    sleepOn(points[0], bound);
    return Sleep::kEnded;
  }
  std::array<FutexWaitv, kMaxFutexPoints> waiters;
  const size_t count = std::min(points.size(), waiters.size());
  for (size_t i = 0; i < count; ++i) {
    waiters[i] = {.value = static_cast<uint32_t>(points[i].seen),
                  .address = reinterpret_cast<uintptr_t>(futexOf(*points[i].word)),
                  .flags = kFutex32,
                  .reserved = 0};
  }
  // This call, unlike FUTEX_WAIT, takes the end of the sleep, not its length.
  const timespec until = toTimespec(Nanoseconds(static_cast<int64_t>(steadyClock().now())) + bound);
  const long result = ::syscall(kFutexWaitvCall, waiters.data(), count, 0,
                                bound == kUnbounded ? nullptr : &until, CLOCK_MONOTONIC);
  // Sandboxes that do not know the call answer EPERM.
  const bool refused = result < 0 && (errno == ENOSYS || errno == EPERM || errno == EINVAL);
  return refused ? Sleep::kUnsupported : Sleep::kEnded;
}

void sleepFor(Nanoseconds bound) {
  const timespec time = toTimespec(std::max(bound, Nanoseconds{0}));
  ::syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &time, nullptr);
}

}  // namespace tutti
