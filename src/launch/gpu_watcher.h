// GpuWatcher: the thread that looks after kernels. A kernel that waits for a peer cannot find out
// that the peer is dead; this thread can, and ends it.
//
// One a process. It sleeps while nothing runs, and looks ten times a second while something does.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace tutti::launch {

class GpuWatcher {
 public:
  class Watched {
   public:
    // On the watcher's thread. True: look again soon. Must not add or remove.
    virtual bool look() = 0;

   protected:
    ~Watched() = default;
  };

  GpuWatcher() = default;
  ~GpuWatcher();
  GpuWatcher(const GpuWatcher&) = delete;
  GpuWatcher& operator=(const GpuWatcher&) = delete;

  void add(Watched& watched);
  // Afterwards nobody looks at it. Waits for a look that goes on.
  void remove(Watched& watched);

  // There is something to look at. One load while the watcher is awake.
  void wake() {
    if (isAsleep_.load(std::memory_order_seq_cst)) [[unlikely]]
      wakeSleeper();
  }

 private:
  void run();
  bool lookAtAll();
  void wakeSleeper();

  std::mutex mutex_;  // guards the two below, and holds off remove() during a look
  std::vector<Watched*> watched_;
  bool isEnding_ = false;
  std::condition_variable changed_;
  // Set by the watcher before its last look ahead of a sleep, cleared by whoever has work for it.
  // Both sides are sequentially consistent: either the look sees the work, or wake() the sleeper.
  std::atomic<bool> isAsleep_{false};
  std::thread thread_;
};

}  // namespace tutti::launch
