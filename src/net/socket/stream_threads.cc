#include "net/socket/stream_threads.h"

#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/relax_cpu.h"
#include "base/service_thread.h"

namespace tutti::net::socket {

// Holds the lock of a thread, which takes it again and again.
class StreamThread::Waiter {
 public:
  explicit Waiter(StreamThread& thread) : thread_(thread) {
    thread.waiters_.fetch_add(1, std::memory_order_relaxed);
    lock_ = std::unique_lock(thread.mutex_);
  }
  ~Waiter() { thread_.waiters_.fetch_sub(1, std::memory_order_relaxed); }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  std::unique_lock<std::mutex>& lock() { return lock_; }

 private:
  StreamThread& thread_;
  std::unique_lock<std::mutex> lock_;
};

std::unique_ptr<StreamThread> StreamThread::open(Nanoseconds alert, Clock& clock) {
  UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) return nullptr;
  std::unique_ptr<StreamThread> made(new StreamThread(std::move(event), alert, clock));
  Result<std::thread> thread = startThread("tutti-sock", [self = made.get()] { self->serve(); });
  if (!thread.ok()) return nullptr;
  made->thread_ = std::move(thread).value();
  return made;
}

StreamThread::~StreamThread() {
  if (!thread_.joinable()) return;
  isStopping_.store(true, std::memory_order_relaxed);
  posts_.fetch_add(1, std::memory_order_relaxed);
  wake();
  thread_.join();
}

void StreamThread::attach(StreamWork& work) {
  const Waiter waiter(*this);
  works_.push_back(&work);
}

void StreamThread::detach(StreamWork& work) {
  retract(work);
  const Waiter waiter(*this);
  std::erase(works_, &work);
}

void StreamThread::post(StreamWork& work) {
  using State = StreamWork::State;
  State seen = work.state_.load(std::memory_order_relaxed);
  State next = State::kFresh;
  do {
    const bool isMoved = seen == State::kMoving || seen == State::kMovingFresh;
    next = isMoved ? State::kMovingFresh : State::kFresh;
  } while (!work.state_.compare_exchange_weak(seen, next, std::memory_order_seq_cst));
  posts_.fetch_add(1, std::memory_order_relaxed);
  if (isPolling_.load(std::memory_order_seq_cst)) wake();
}

// A socket that is polled stays open until the poll ends, whoever closes it: the peer would not
// learn of its end.
void StreamThread::retract(StreamWork& work) {
  Waiter waiter(*this);  // the thread is in no move() now
  work.state_.store(StreamWork::State::kResting, std::memory_order_seq_cst);
  while (work.isPolled_) {
    wake();
    awake_.wait(waiter.lock());
  }
}

void StreamThread::wake() {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the thread is being woken anyway.
  [[maybe_unused]] const ssize_t ignored = ::write(event_.get(), &one, sizeof one);
}

void StreamThread::serve() {
  for (Instant alertEnd = clock_.now(); !isStopping_.load(std::memory_order_relaxed);) {
    while (waiters_.load(std::memory_order_relaxed) > 0) ::sched_yield();
    const uint64_t seen = posts_.load(std::memory_order_relaxed);
    std::unique_lock lock(mutex_);
    const Looked looked = moveEach();
    if (looked.hasMoved) {
      alertEnd = clock_.now() + alert_;
    } else if (clock_.now() >= alertEnd) {
      sleep(lock);
    } else {
      lock.unlock();
      do {
        relaxCpu();
      } while (!looked.isAnyIdle && posts_.load(std::memory_order_relaxed) == seen &&
               clock_.now() < alertEnd);
    }
  }
}

StreamThread::Looked StreamThread::moveEach() {
  Looked looked;
  for (StreamWork* const work : works_) {
    if (!work->change(StreamWork::State::kFresh, StreamWork::State::kMoving) &&
        !work->change(StreamWork::State::kIdle, StreamWork::State::kMoving))
      continue;
    const Progress progress = moveOne(*work);
    looked.hasMoved |= progress != Progress::kIdle;
    looked.isAnyIdle |= progress == Progress::kIdle;
  }
  return looked;
}

Progress StreamThread::moveOne(StreamWork& work) {
  using State = StreamWork::State;
  isMoving_.store(true, std::memory_order_relaxed);
  const Progress progress = work.move();
  isMoving_.store(false, std::memory_order_relaxed);
  if (!work.change(State::kMoving, progress == Progress::kDone ? State::kResting : State::kIdle))
    work.state_.exchange(State::kFresh, std::memory_order_seq_cst);
  return progress;
}

void StreamThread::sleep(std::unique_lock<std::mutex>& lock) {
  polled_.reserve(works_.size() + 1);
  polled_.assign(1, {.fd = event_.get(), .events = POLLIN, .revents = 0});
  isPolling_.store(true, std::memory_order_seq_cst);
  bool isAnyFresh = false;
  for (StreamWork* const work : works_) {
    isAnyFresh |= work->is(StreamWork::State::kFresh);
    work->isPolled_ = work->is(StreamWork::State::kIdle);
    if (work->isPolled_) polled_.push_back(work->awaited());
  }
  lock.unlock();
  ::poll(polled_.data(), polled_.size(), isAnyFresh ? 0 : -1);
  if (polled_[0].revents != 0) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t ignored = ::read(event_.get(), &count, sizeof count);
  }
  lock.lock();
  isPolling_.store(false, std::memory_order_relaxed);
  for (StreamWork* const work : works_) work->isPolled_ = false;
  awake_.notify_all();
}

StreamThreads::StreamThreads(size_t threadCount, Nanoseconds alert, Clock& clock) {
  for (size_t i = 0; i < threadCount; ++i) {
    Pair pair{.sender = StreamThread::open(alert, clock),
              .receiver = StreamThread::open(alert, clock)};
    if (pair.sender == nullptr || pair.receiver == nullptr) return;
    pairs_.push_back(std::move(pair));
  }
}

}  // namespace tutti::net::socket
