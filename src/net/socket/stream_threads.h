// Threads that move the bytes of several streams at once, each going on by itself: one thread moves
// a few gigabytes a second, fast links take more (NCCL_SOCKET_NTHREADS).
//
// Nobody waits for them. A connection posts a stream, in one direction, with something to move;
// from then on it is its thread's, which moves what was posted, asleep while the network takes or
// brings nothing, and rests it when nothing is left: then it is the connection's again. Whose it is
// says StreamWork::isPosted(). Set by post(); cleared by the thread, under its mutex and unless
// post() came meanwhile, with release order, so whoever reads false (acquire) sees all that the
// thread did. What a thread has not begun, since it has no CPU or is at another stream, the
// connection may take back and move itself.
#pragma once

#include <poll.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace tutti::net::socket {

// One direction of one stream. The thread calls these, of a posted one only.
class StreamWork {
 public:
  // A few system calls, none of which blocks. kAdvanced: look again; kIdle: nothing moves before
  // awaited() is ready; kDone: nothing of what was posted is left.
  virtual Progress move() = 0;
  virtual pollfd awaited() = 0;
  // isPosted() has become false. Under the thread's mutex: retract() waits for the end.
  virtual void rested() {}

  bool isPosted() const { return isPosted_.load(std::memory_order_acquire); }
  // Posted, and no move() has begun since. A hint to anyone else than the thread under its mutex.
  bool isFresh() const { return isFresh_.load(std::memory_order_relaxed); }

 protected:
  ~StreamWork() = default;

 private:
  friend class StreamThread;
  std::atomic<bool> isPosted_{false};
  // Written under the thread's mutex.
  std::atomic<bool> isFresh_{false};
  bool isPolled_ = false;  // the thread sleeps at its descriptor
};

// Post, take and retract: any thread, one at a time for each work.
class StreamThread {
 public:
  // "tutti-sock". Null where the system gives no thread, or no descriptor to wake it by.
  static std::unique_ptr<StreamThread> open(Clock& clock);
  // REQUIRES: nothing is posted.
  ~StreamThread();

  void post(StreamWork& work);
  // True: the thread had not begun what was posted, and the work is its owner's again. Never waits.
  enum class From : uint8_t { kAnyThread, kIdleThread };  // the latter: not where it moves another
  bool tryTake(StreamWork& work, From from);
  // The work is its owner's again, whatever is left of it, and the thread does not wait at its
  // descriptor, which may be closed. Waits for one move() at most.
  void retract(StreamWork& work);

 private:
  class Aside;
  StreamThread(UniqueFd event, Clock& clock) : clock_(clock), event_(std::move(event)) {}
  void serve();
  bool moveEach(std::unique_lock<std::mutex>& lock);
  void lookOut(std::unique_lock<std::mutex>& lock, Instant end);
  void sleep(std::unique_lock<std::mutex>& lock);
  static bool isAny(const StreamWork* work) { return work != nullptr; }
  void forget(StreamWork& work);
  void wake();

  Clock& clock_;
  const UniqueFd event_;  // readable: look at what was posted
  std::mutex mutex_;      // guards all below
  std::condition_variable retracted_;
  std::vector<StreamWork*> works_;  // posted; null: rested or retracted a moment ago
  // What the thread is at without the lock.
  StreamWork* moving_ = nullptr;
  bool isPolling_ = false;  // asleep at the works' descriptors
  std::vector<StreamWork*> polledWorks_;
  bool isStopping_ = false;
  std::vector<pollfd> polled_;  // the thread's only
  // Counts posts: what the thread looks at for a moment before it sleeps. A hint, so relaxed: it
  // takes the lock before it believes it.
  std::atomic<uint64_t> posts_{0};
  std::thread thread_;
};

// A process's: so many threads that send and as many that receive; fewer where the system gives no
// more. They outlive the connections that use them. Any thread.
class StreamThreads {
 public:
  explicit StreamThreads(size_t threadCount, Clock& clock = steadyClock());

  // Of either direction; 0: none.
  size_t count() const { return pairs_.size(); }
  StreamThread& sender(size_t number) { return *pairs_[number % count()].sender; }
  StreamThread& receiver(size_t number) { return *pairs_[number % count()].receiver; }
  // Where a connection's first stream goes, so that not all of them go to the same thread.
  size_t takePlace() { return nextPlace_.fetch_add(1, std::memory_order_relaxed); }

 private:
  struct Pair {
    std::unique_ptr<StreamThread> sender, receiver;
  };
  std::vector<Pair> pairs_;
  std::atomic<size_t> nextPlace_{0};
};

}  // namespace tutti::net::socket
