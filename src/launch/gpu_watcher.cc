#include "launch/gpu_watcher.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>

namespace tutti::launch {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(100);

}  // namespace

GpuWatcher::~GpuWatcher() {
  {
    std::lock_guard lock(mutex_);
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
    ::pthread_setname_np(::pthread_self(), "tutti-gpu-watch");
    run();
  });
}

void GpuWatcher::remove(Watched& watched) {
  std::lock_guard lock(mutex_);
  std::erase(watched_, &watched);
}

void GpuWatcher::wakeSleeper() {
  std::lock_guard lock(mutex_);
  isAsleep_.store(false, std::memory_order_seq_cst);
  changed_.notify_all();
}

bool GpuWatcher::lookAtAll() {
  bool isBusy = false;
  for (Watched* watched : watched_) isBusy |= watched->look();
  return isBusy;
}

void GpuWatcher::run() {
  std::unique_lock lock(mutex_);
  while (!isEnding_) {
    if (!lookAtAll()) {
      isAsleep_.store(true, std::memory_order_seq_cst);
      if (lookAtAll()) isAsleep_.store(false, std::memory_order_seq_cst);
    }
    if (isAsleep_.load(std::memory_order_relaxed)) {
      changed_.wait(lock,
                    [this] { return isEnding_ || !isAsleep_.load(std::memory_order_relaxed); });
    }
    // Whoever woke us has only just begun.
    changed_.wait_for(lock, kInterval, [this] { return isEnding_; });
  }
}

}  // namespace tutti::launch
