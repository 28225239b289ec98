// GpuWatcher: the thread that looks after kernels. A kernel that waits for a peer cannot find out
// that the peer is dead; this thread can, and ends it.
//
// One a process. It sleeps while nothing runs, and looks ten times a second while something does.
// Where only replays of graphs may run, of which nobody tells, it looks ever less often. A word
// that the replays themselves write was the alternative: a host function in the graph would wake
// us, but holds its stream up for some 10 µs a replay, and what kernels write wakes nobody.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace tutti::launch {

class GpuWatcher {
 public:
  static constexpr Nanoseconds kInterval = std::chrono::milliseconds(100);

  class Watched {
   public:
    // At most so long until the next look; kUntilWoken: there is nothing to look at.
    static constexpr Nanoseconds kSoon{0};
    static constexpr Nanoseconds kUntilWoken = Nanoseconds::max();
    // On the watcher's thread. Must not add or remove.
    virtual Nanoseconds look() = 0;

   protected:
    ~Watched() = default;
  };

  // `interval`: between two looks at what runs; then the first of the pauses that grow.
  // `name`: of its thread.
  explicit GpuWatcher(Nanoseconds interval = kInterval, const char* name = "tutti-gpu-watch")
      : interval_(interval), name_(name) {}
  ~GpuWatcher();
  GpuWatcher(const GpuWatcher&) = delete;
  GpuWatcher& operator=(const GpuWatcher&) = delete;

  void add(Watched& watched);
  // Afterwards nobody looks at it. Waits for a look that goes on.
  void remove(Watched& watched);

  // There is something to look at. One load while the watcher looks every interval.
  void wake() {
    if (isAsleep_.load(std::memory_order_seq_cst)) [[unlikely]]
      wakeSleeper();
  }

 private:
  void run();
  Nanoseconds lookAtAll();
  bool sleep(Nanoseconds pause);
  bool pauseOrEnd();
  void wakeSleeper();

  const Nanoseconds interval_;
  const char* const name_;
  std::mutex mutex_;  // guards the next, and holds off remove() during a look
  std::vector<Watched*> watched_;
  // Guards the next, and the way to sleep. Another than for looks: who wakes us may hold what a
  // look waits for.
  std::mutex sleepMutex_;
  bool isEnding_ = false;
  std::condition_variable changed_;
  // Set by the watcher before its last look ahead of a sleep or a longer pause, cleared by whoever
  // has work for it. Both sides are sequentially consistent: either the look sees the work, or
  // wake() the sleeper.
  std::atomic<bool> isAsleep_{false};
  std::thread thread_;
};

}  // namespace tutti::launch
