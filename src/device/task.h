// A resumable piece of work. One thread can drive many: a task never blocks, it says what it waits
// for.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/home_cpu.h"
#include "base/status.h"

namespace tutti::device {

// The memory words whose change lets waiting tasks go on. A sleeper announces itself in `sleeper`,
// so that the other side, in this process or another, knows to wake the futex at `word`.
struct WaitPoint {
  std::atomic<uint64_t>* word = nullptr;  // the low half is the futex
  uint64_t seen = 0;                      // the value that made the task wait
  std::atomic<uint32_t>* sleeper = nullptr;
};

// A few wait points; when more are added than fit, `overflowed` tells the driver to sleep only
// briefly.
struct WaitSet {
  static constexpr size_t kCapacity = 64;
  std::array<WaitPoint, kCapacity> points;
  size_t count = 0;
  bool overflowed = false;

  void add(const WaitPoint& point) {
    if (count == kCapacity) {
      overflowed = true;
      return;
    }
    points[count++] = point;
  }
};

// Driven by one thread at a time. poll() until kDone or an error, then complete() once, by the
// driver.
class Task {
 public:
  virtual Result<Progress> poll() = 0;
  // What must change before poll() can advance. Adding nothing makes the driver poll again soon (at
  // most 1 ms later).
  virtual void addWaits(WaitSet& waits) = 0;
  // Called often while idle, with the time since the task last advanced: the place for slow-path
  // checks. An error ends the task.
  virtual Status idle(int64_t idleNanoseconds) = 0;
  // The task may be reused, or freed, from inside this call on.
  virtual void complete(Status status) noexcept = 0;
  virtual ~Task() = default;

  // How often poll() may look for what it waits for before it says kIdle. More than one while the
  // task is its thread's only one and has a CPU of its own: the answer is probably on its way, and
  // the shortest loop sees it first.
  uint32_t looks = 1;

  // How many polls of memory one poll() costs: a task that asks the system, too, gives the CPU away
  // after as long as others, not after as many.
  uint32_t pollCost = 1;

  // Where its thread belongs; null: anywhere. Outlives the task.
  HomeCpu* home = nullptr;

  // For the queue and the driver that hold the task; not for its author.
  Task* next = nullptr;
  bool endsGroup = false;  // the last of the tasks that were enqueued together
  int64_t idleSince = 0;   // clock nanoseconds; 0: it advanced since the driver last looked at the
                           // clock
};

}  // namespace tutti::device
