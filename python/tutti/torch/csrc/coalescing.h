// What torch wants done as one: the works between startCoalescing() and endCoalescing().
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace tutti::pytorch {

// Any thread; each has its own start and end.
class Coalescing {
 public:
  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

  // What this thread starts from now on belongs together. A start without an end before, as after
  // an exception in between, begins anew; what was started then goes on by itself.
  void start();
  // Where this thread has not started, this is one load.
  void add(const c10::intrusive_ptr<c10d::Work>& work);
  // Throws std::runtime_error where this thread has not started.
  Works end();

 private:
  struct Collected {
    Works works;
    size_t room = 0;  // before what has succeeded is let go, for the sake of starts that never end
  };

  std::atomic<size_t> threadCount_{0};  // relaxed: a thread looks for what it has stored itself
  std::mutex mutex_;
  std::map<std::thread::id, Collected> collected_;
};

}  // namespace tutti::pytorch
