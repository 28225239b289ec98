// Threads that move the bytes of several streams at once, each going on by itself: one thread moves
// a few gigabytes a second, fast links take more (NCCL_SOCKET_NTHREADS).
//
// Nobody waits for them. A connection posts a stream, in one direction, with something to move; its
// thread moves that, asleep while the network takes or brings nothing, and rests it when nothing is
// left. What a thread has not begun, since it has no CPU or is at another stream, the connection
// may take back and move itself. How far a stream is says the work itself, in words of its own.
//
// State is one word of the work, so that a post is a compare-exchange and no lock: with a mutex the
// one who posts sleeps where it meets a thread that looks around, which takes longer than a
// message.
//
//   kResting ──post──> kFresh ──thread──> kMoving ──thread──> kResting (done) or kIdle (network)
//       ^──take back─────┘  ^──post── kIdle   └──post──> kMovingFresh ──thread──> kFresh
//
// Each change is a sequentially consistent exchange, also a post that changes nothing, so what was
// done to the stream before one the next one's maker sees. Before a thread sleeps it says so
// (isPolling_) and looks for fresh works once more; who posts looks at that word after the post:
// one of the two finds out.
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

// One direction of one stream.
class StreamWork {
 public:
  // By the thread, of what was posted: a few system calls, none of which blocks. kAdvanced: look
  // again; kIdle: nothing moves before awaited() is ready; kDone: nothing is left. The last thing
  // it does to the stream is to say in its own words how far it is.
  virtual Progress move() = 0;
  // By the thread, behind a move() that found nothing; the owner may post meanwhile.
  virtual pollfd awaited() const = 0;

 protected:
  ~StreamWork() = default;

 private:
  friend class StreamThread;
  enum class State : uint8_t { kResting, kFresh, kMoving, kMovingFresh, kIdle };
  bool change(State from, State to) {
    return state_.compare_exchange_strong(from, to, std::memory_order_seq_cst);
  }
  bool is(State state) const { return state_.load(std::memory_order_seq_cst) == state; }

  std::atomic<State> state_{State::kResting};
  bool isPolled_ = false;  // the thread sleeps at its descriptor; guarded by the thread's mutex
};

// Post, take and retract: by a work's owner, one thread at a time.
class StreamThread {
 public:
  // "tutti-sock", which looks for more as long as it is alert before it sleeps. Null where the
  // system gives no thread, or no descriptor to wake it by.
  static std::unique_ptr<StreamThread> open(Nanoseconds alert, Clock& clock);
  // REQUIRES: nothing is attached.
  ~StreamThread();

  // Before a work's first post; and before it goes.
  void attach(StreamWork& work);
  void detach(StreamWork& work);

  void post(StreamWork& work);
  // True: the thread had not begun what was posted, and will not.
  bool tryTake(StreamWork& work) {
    using State = StreamWork::State;
    return work.is(State::kFresh) && work.change(State::kFresh, State::kResting);
  }
  // Whether it is at a work just now; a hint.
  bool isMoving() const { return isMoving_.load(std::memory_order_relaxed); }
  // From its return on the thread does not touch the work, whatever is left of it, nor wait at its
  // descriptor, which may be closed. Waits for a move() of each work at most.
  void retract(StreamWork& work);

 private:
  class Waiter;
  StreamThread(UniqueFd event, Nanoseconds alert, Clock& clock)
      : clock_(clock), alert_(alert), event_(std::move(event)) {}
  struct Looked {
    bool hasMoved = false;
    bool isAnyIdle = false;  // waits for the network
  };
  void serve();
  Looked moveEach();
  Progress moveOne(StreamWork& work);
  void sleep(std::unique_lock<std::mutex>& lock);
  void wake();

  Clock& clock_;
  const Nanoseconds alert_;
  const UniqueFd event_;  // readable: look at what was posted
  std::mutex mutex_;  // guards the next two; the thread holds it but while it sleeps or looks out
  std::vector<StreamWork*> works_;  // attached
  std::condition_variable awake_;
  std::atomic<uint32_t> waiters_{0};  // for the mutex: the thread lets them go first
  std::atomic<bool> isStopping_{false};
  std::atomic<bool> isMoving_{false};
  std::atomic<bool> isPolling_{false};
  std::atomic<uint64_t> posts_{0};  // counted: what an alert thread looks at; a hint
  std::vector<pollfd> polled_;      // the thread's only
  std::thread thread_;
};

// A process's: so many threads that send and as many that receive; fewer where the system gives no
// more. They outlive the connections that use them. Any thread.
class StreamThreads {
 public:
  // About as long as a message's parts take on the wire: shorter than waking a thread.
  static constexpr Nanoseconds kAlert = std::chrono::microseconds(50);

  explicit StreamThreads(size_t threadCount, Nanoseconds alert = kAlert,
                         Clock& clock = steadyClock());

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
