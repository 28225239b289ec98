// Threads that help to move the bytes of several sockets at once: one thread moves a few gigabytes
// a second, fast links take more (NCCL_SOCKET_NTHREADS).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace tutti::net::socket {

// Any thread; one is helped at a time.
class Helpers {
 public:
  // So many threads ("tutti-sock"); fewer where the system gives no more.
  explicit Helpers(size_t threadCount, Clock& clock = steadyClock());
  ~Helpers();

  // Calls work(i) once for each i below count, in this thread and the helpers'; returns when all
  // calls have. In this thread alone while the helpers are at somebody else's.
  void run(size_t count, const std::function<void(size_t)>& work);

  size_t threadCount() const { return threads_.size(); }

 private:
  void serve();
  bool takeTurns(std::unique_lock<std::mutex>& lock);

  Clock& clock_;
  std::mutex caller_;  // held by the one who is helped
  std::mutex mutex_;   // guards all below
  std::condition_variable begun_;
  std::condition_variable over_;
  const std::function<void(size_t)>* work_ = nullptr;
  size_t count_ = 0;
  size_t next_ = 0;     // that nobody has taken
  size_t running_ = 0;  // taken and not over
  bool isStopping_ = false;
  // Counts runs, and the end: what helpers look at before they sleep, so that the next run of a
  // stream of messages finds them awake. A hint: they take the lock before they believe it.
  std::atomic<uint64_t> runs_{0};

  std::vector<std::thread> threads_;
};

}  // namespace tutti::net::socket
