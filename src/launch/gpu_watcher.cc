#include "launch/gpu_watcher.h"

#include <pthread.h>

#include <algorithm>

namespace tutti::launch {

GpuWatcher::~GpuWatcher() {
  {
    std::lock_guard lock(sleepMutex_);
    isEnding_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void GpuWatcher::add(Watched& watched) {
  std::lock_guard lock(mutex_);
  watched_.push_back(&watched);
  if (thread_.joinable()) return;
  thread_ = std::thread([this] {
    ::pthread_setname_np(::pthread_self(), name_);
    run();
  });
}

void GpuWatcher::remove(Watched& watched) {
  std::lock_guard lock(mutex_);
  std::erase(watched_, &watched);
}

void GpuWatcher::wakeSleeper() {
  std::lock_guard lock(sleepMutex_);
  isAsleep_.store(false, std::memory_order_seq_cst);
  changed_.notify_all();
}

// The longest pause that all agree to.
Nanoseconds GpuWatcher::lookAtAll() {
  std::lock_guard lock(mutex_);
  Nanoseconds pause = Watched::kUntilWoken;
  for (Watched* watched : watched_) pause = std::min(pause, watched->look());
  return pause;
}

void GpuWatcher::run() {
  Nanoseconds pause = interval_;
  for (;;) {
    Nanoseconds longest = lookAtAll();
    if (longest > interval_ && !isAsleep_.exchange(true, std::memory_order_seq_cst))
      longest = lookAtAll();
    if (longest > interval_) {
      pause = std::min(longest, 2 * pause);
      if (!sleep(longest == Watched::kUntilWoken ? longest : pause)) continue;
    }
    isAsleep_.store(false, std::memory_order_relaxed);
    pause = interval_;
    // Something runs, or whoever woke us has only just begun.
    if (pauseOrEnd()) return;
  }
}

// False: nobody woke us.
bool GpuWatcher::sleep(Nanoseconds pause) {
  std::unique_lock lock(sleepMutex_);
  const auto isWoken = [this] { return isEnding_ || !isAsleep_.load(std::memory_order_relaxed); };
  if (pause != Watched::kUntilWoken) return changed_.wait_for(lock, pause, isWoken);
  changed_.wait(lock, isWoken);
  return true;
}

bool GpuWatcher::pauseOrEnd() {
  std::unique_lock lock(sleepMutex_);
  return changed_.wait_for(lock, interval_, [this] { return isEnding_; });
}

}  // namespace tutti::launch
