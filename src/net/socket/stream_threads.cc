#include "net/socket/stream_threads.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/relax_cpu.h"
#include "bootstrap/service_thread.h"

namespace tutti::net::socket {
namespace {

// About as long as a message's parts take on the wire: shorter than waking a thread.
constexpr Nanoseconds kAlert = std::chrono::microseconds(50);

}  // namespace

// While it lives the thread is at something without its lock; its end, also by an exception, tells
// those that wait for that.
class StreamThread::Aside {
 public:
  Aside(StreamThread& thread, std::unique_lock<std::mutex>& lock) : thread_(thread), lock_(lock) {
    lock_.unlock();
  }
  ~Aside() {
    lock_.lock();
    thread_.moving_ = nullptr;
    thread_.isPolling_ = false;
    for (StreamWork* const work : thread_.polledWorks_) work->isPolled_ = false;
    thread_.polledWorks_.clear();
    thread_.retracted_.notify_all();
  }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

 private:
  StreamThread& thread_;
  std::unique_lock<std::mutex>& lock_;
};

std::unique_ptr<StreamThread> StreamThread::open(Clock& clock) {
  UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) return nullptr;
  std::unique_ptr<StreamThread> made(new StreamThread(std::move(event), clock));
  Result<std::thread> thread =
      bootstrap::startThread("tutti-sock", [self = made.get()] { self->serve(); });
  if (!thread.ok()) return nullptr;
  made->thread_ = std::move(thread).value();
  return made;
}

StreamThread::~StreamThread() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    isStopping_ = true;
    posts_.fetch_add(1, std::memory_order_relaxed);
  }
  wake();
  thread_.join();
}

void StreamThread::post(StreamWork& work) {
  bool isAsleep = false;
  {
    const std::lock_guard lock(mutex_);
    if (!work.isPosted()) works_.push_back(&work);
    work.isPosted_.store(true, std::memory_order_relaxed);
    work.isFresh_.store(true, std::memory_order_relaxed);
    posts_.fetch_add(1, std::memory_order_relaxed);
    isAsleep = isPolling_;
  }
  if (isAsleep) wake();
}

bool StreamThread::tryTake(StreamWork& work, From from) {
  if (!work.isFresh()) return false;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || !work.isFresh() || work.isPolled_ || moving_ == &work) return false;
  if (moving_ != nullptr && from == From::kIdleThread) return false;
  forget(work);
  return true;
}

void StreamThread::forget(StreamWork& work) {
  std::ranges::replace(works_, &work, static_cast<StreamWork*>(nullptr));
  work.isPosted_.store(false, std::memory_order_relaxed);
  work.isFresh_.store(false, std::memory_order_relaxed);
}

// A socket that is polled stays open until the poll ends, whoever closes it: the peer would not
// learn of its end.
void StreamThread::retract(StreamWork& work) {
  std::unique_lock lock(mutex_);
  if (!work.isPosted()) return;
  forget(work);
  if (work.isPolled_) wake();
  retracted_.wait(lock, [&] { return moving_ != &work && !work.isPolled_; });
}

void StreamThread::wake() {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the thread is being woken anyway.
  [[maybe_unused]] const ssize_t ignored = ::write(event_.get(), &one, sizeof one);
}

void StreamThread::serve() {
  std::unique_lock lock(mutex_);
  for (Instant alertEnd = clock_.now(); !isStopping_;) {
    if (moveEach(lock)) {
      alertEnd = clock_.now() + kAlert;
    } else if (clock_.now() < alertEnd) {
      lookOut(lock, alertEnd);
    } else {
      sleep(lock);
    }
  }
}

// True if something moved, or rests now.
bool StreamThread::moveEach(std::unique_lock<std::mutex>& lock) {
  bool moved = false;
  std::erase(works_, nullptr);
  for (size_t i = 0; i < works_.size(); ++i) {  // posts may add to them
    StreamWork* const work = works_[i];
    if (work == nullptr) continue;
    work->isFresh_.store(false, std::memory_order_relaxed);
    moving_ = work;
    Progress progress = Progress::kDone;
    {
      const Aside aside(*this, lock);
      progress = work->move();
    }
    moved |= progress != Progress::kIdle;
    const bool isRetracted = works_[i] == nullptr;
    if (isRetracted || progress != Progress::kDone || work->isFresh()) continue;
    works_[i] = nullptr;
    work->isPosted_.store(false, std::memory_order_release);
    work->rested();
  }
  return moved;
}

// Until something is posted; with something posted for a moment only.
void StreamThread::lookOut(std::unique_lock<std::mutex>& lock, Instant end) {
  const uint64_t seen = posts_.load(std::memory_order_relaxed);
  const bool isBusy = std::ranges::any_of(works_, isAny);
  const Aside aside(*this, lock);
  do {
    relaxCpu();
  } while (!isBusy && posts_.load(std::memory_order_relaxed) == seen && clock_.now() < end);
}

void StreamThread::sleep(std::unique_lock<std::mutex>& lock) {
  polled_.assign(1, {.fd = event_.get(), .events = POLLIN, .revents = 0});
  std::ranges::copy_if(works_, std::back_inserter(polledWorks_), isAny);
  for (StreamWork* const work : polledWorks_) {
    polled_.push_back(work->awaited());
    work->isPolled_ = true;
  }
  isPolling_ = true;
  const Aside aside(*this, lock);
  ::poll(polled_.data(), polled_.size(), -1);
  if (polled_[0].revents == 0) return;
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t ignored = ::read(event_.get(), &count, sizeof count);
}

StreamThreads::StreamThreads(size_t threadCount, Clock& clock) {
  for (size_t i = 0; i < threadCount; ++i) {
    Pair pair{.sender = StreamThread::open(clock), .receiver = StreamThread::open(clock)};
    if (pair.sender == nullptr || pair.receiver == nullptr) return;
    pairs_.push_back(std::move(pair));
  }
}

}  // namespace tutti::net::socket
