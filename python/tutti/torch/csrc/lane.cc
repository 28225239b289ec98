#include "lane.h"

#include <stdexcept>
#include <utility>

namespace tutti::pytorch {

void Lane::submit(const c10::intrusive_ptr<Operation>& operation, bool isAsync) {
  const std::lock_guard lock(mutex_);
  if (isClosed_) throw std::runtime_error(std::string(operation->title()) + ": " + reason_);
  operation->queueIn(shared_from_this());
  queue_.push_back(operation);
  if (!isAsync) return;
  if (!thread_.joinable()) startThread();
  if (isAsleep_) changed_.notify_all();
}

void Lane::startThread() {
  thread_ = std::thread([self = shared_from_this()] { self->work(); });
}

void Lane::runFirst(std::unique_lock<std::mutex>& lock) {
  running_ = std::move(queue_.front());
  queue_.pop_front();
  const c10::intrusive_ptr<Operation> mine = running_;
  runner_ = std::this_thread::get_id();
  isMainThreadIn_ = isMainThread();
  lock.unlock();
  mine->run();
  lock.lock();
  running_.reset();
  isMainThreadIn_ = false;
  if (!queue_.empty() || isClosed_ || isDrained_) changed_.notify_all();
}

void Lane::runUpTo(Operation& operation) {
  std::unique_lock lock(mutex_);
  // While another thread runs one, the operation waited for may be it, or be next: its end tells,
  // and waiting for that is the caller's business. The lane's thread takes what follows.
  while (!operation.isOver() && !running_ && !queue_.empty()) runFirst(lock);
  if (operation.isOver()) return;
  if (!thread_.joinable() && !isClosed_) startThread();
  if (isAsleep_) changed_.notify_all();
}

void Lane::work() {
  std::unique_lock lock(mutex_);
  while (!isOver_) {
    if (!running_ && !queue_.empty()) {
      runFirst(lock);
      continue;
    }
    isAsleep_ = true;
    changed_.wait(lock);
    isAsleep_ = false;
  }
}

void Lane::look(Instant now) {
  std::string reason;
  {
    const std::lock_guard lock(mutex_);
    if (!running_ || isClosed_ || now < running_->deadline()) return;
    reason = std::string(running_->title()) + ": Timed out waiting " +
             std::to_string(running_->timeout().count()) +
             "ms for the other ranks. Which of them did not call it, and what they do instead, "
             "`tutti why` tells on their "
             "hosts while they run. The time is the timeout of init_process_group, new_group or "
             "the call";
  }
  close(reason);
}

void Lane::interrupt(bool any) {
  {
    const std::lock_guard lock(mutex_);
    if (!running_ || !(any || isMainThreadIn_)) return;
  }
  close("interrupted by a signal");
}

void Lane::close(const std::string& reason) {
  std::deque<c10::intrusive_ptr<Operation>> dropped;
  c10::intrusive_ptr<Operation> stuck;
  {
    const std::lock_guard lock(mutex_);
    if (isClosed_) return;
    isClosed_ = true;
    reason_ = reason;
    dropped.swap(queue_);
    stuck = running_;
    changed_.notify_all();
  }
  // First, so that it fails with this reason and not with how the library calls an abort.
  if (stuck) {
    stuck->failWith(reason);
    abort_();
  }
  for (const auto& operation : dropped)
    operation->failWith(std::string(operation->title()) + ": " + reason);
}

void Lane::drain() {
  std::unique_lock lock(mutex_);
  isDrained_ = true;
  while (running_ || !queue_.empty()) {
    if (running_ && runner_ == std::this_thread::get_id()) return;  // an operation's own callback
    if (running_) {
      changed_.wait(lock);
    } else {
      runFirst(lock);
    }
  }
}

void Lane::stop(const std::string& reason) {
  close(reason);
  std::unique_lock lock(mutex_);
  isOver_ = true;
  changed_.notify_all();
  const auto self = std::this_thread::get_id();
  changed_.wait(lock, [&] { return !running_ || runner_ == self; });
  if (!thread_.joinable()) return;
  if (thread_.get_id() == self) {
    thread_.detach();  // its own operation let go of the process group
    return;
  }
  std::thread thread = std::move(thread_);
  lock.unlock();
  thread.join();
}

}  // namespace tutti::pytorch
