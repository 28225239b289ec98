// Events of host streams. Each record of an event is an object of its own, so that recording again
// cannot disturb those who wait for the earlier record.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "base/status.h"
#include "device/host/waiter.h"
#include "device/task.h"

namespace tutti::device::host {

// One moment in a stream's work. Shared by the event, the task that reaches it, and all that wait
// for it.
class Moment {
 public:
  // Once, by the stream's thread.
  void reach(Clock& clock);
  bool isReached() const { return reached_.load(std::memory_order_seq_cst) != 0; }
  void wait(const Waiting& waiting) { waitForChange(waitPoint(), waiting); }
  WaitPoint waitPoint() { return {.word = &reached_, .seen = 0, .sleeper = &sleepers_}; }
  // REQUIRES: isReached().
  Instant at() const { return at_; }

 private:
  Instant at_{};  // written before reached_ is stored, read after it was seen
  // 0, then 1 for ever: written by the stream's thread, read by all that wait; the store publishes
  // at_ and, through the stream's order, the work before it. One value a moment, so nothing wraps;
  // sleepers by the protocol of base/futex.h.
  std::atomic<uint64_t> reached_{0};
  std::atomic<uint32_t> sleepers_{0};
};

// Any thread.
class HostEvent {
 public:
  // The moment that the event stands for from now on.
  void setLatest(std::shared_ptr<Moment> moment);
  // The latest moment; null when never recorded.
  std::shared_ptr<Moment> latest() const;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<Moment> latest_;  // guarded by mutex_
};

// Tasks for a stream, each a group of its own; they free themselves when complete.
std::unique_ptr<Task> makeReachTask(std::shared_ptr<Moment> moment, Clock& clock);
std::unique_ptr<Task> makeWaitTask(std::shared_ptr<Moment> moment);
std::unique_ptr<Task> makeCallTask(void (*function)(void*), void* argument);

// Calls foreign code; what it throws becomes a logged error.
Status callForeign(void (*function)(void*), void* argument);

}  // namespace tutti::device::host
