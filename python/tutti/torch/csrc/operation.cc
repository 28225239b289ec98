#include "operation.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <stdexcept>

#include "lane.h"

namespace tutti::pytorch {
namespace {

constexpr Milliseconds kSignalSlice{50};  // how long a main thread waits before it looks for
                                          // signals

Instant deadlineAfter(Milliseconds timeout) {
  // Long enough to stand for ever, and far from overflow.
  constexpr Milliseconds kForever = std::chrono::hours(24 * 365);
  const bool hasNone = timeout <= Milliseconds::zero() || timeout > kForever;
  return std::chrono::steady_clock::now() + (hasNone ? kForever : timeout);
}

}  // namespace

bool isMainThread() {
  thread_local const bool isMain = ::syscall(SYS_gettid) == ::getpid();
  return isMain;
}

Operation::Operation(int rank, Call call, SignalCheck signals, std::function<void(Operation&)> body)
    : c10d::Work(rank, call.type, call.title, call.inputs),
      title_(call.title),
      outputs_(std::move(call.outputs)),
      timeout_(call.timeout),
      deadline_(deadlineAfter(call.timeout)),
      signals_(signals),
      body_(std::move(body)) {}

void Operation::run() {
  std::function<void(Operation&)> body;  // here it lives as long as it runs, whoever ends the
                                         // operation meanwhile
  {
    const std::lock_guard lock(mutex_);
    if (isOver_.load(std::memory_order_relaxed)) return;
    body = std::move(body_);
    body_ = nullptr;
  }
  try {
    // The caller's autograd knows of the operation; what is done inside is no business of it.
    const at::AutoDispatchBelowADInplaceOrView withoutAutograd;
    body(*this);
  } catch (...) {
    return end(std::current_exception());
  }
  end(nullptr);
}

void Operation::succeed() { end(nullptr); }

void Operation::failWith(const std::string& reason) {
  end(std::make_exception_ptr(std::runtime_error(reason)));
}

void Operation::end(std::exception_ptr error) {
  std::function<void(Operation&)> body;
  std::shared_ptr<Lane> lane;  // let go outside of the lock, as the body
  {
    const std::lock_guard lock(mutex_);
    if (isOver_.load(std::memory_order_relaxed)) return;
    body = std::move(body_);
    body_ = nullptr;
    error_ = std::move(error);
    lane.swap(lane_);
    // Before anybody can see the end, and with it look at the profile.
    if (recordFunctionEndCallback_) recordFunctionEndCallback_();
    recordFunctionEndCallback_ = nullptr;
    isOver_.store(true, std::memory_order_release);
    cv_.notify_all();
  }
  completeFuture();
}

bool Operation::isSuccess() const { return isOver() && error_ == nullptr; }

std::exception_ptr Operation::exception() const { return isOver() ? error_ : nullptr; }

bool Operation::wait(Milliseconds timeout) {
  if (!isOver()) {
    // Nobody could end a run in this very thread when the time is up.
    if (timeout == kNoTimeout) {
      if (const auto shared = lane()) shared->runUpTo(*this);
    }
    waitForEnd(timeout);
  }
  if (error_ == nullptr) return true;
  if (signals_ != nullptr && isMainThread()) signals_();
  std::rethrow_exception(error_);
}

void Operation::waitForEnd(Milliseconds timeout) {
  const Instant until = deadlineAfter(timeout);
  const bool checksSignals = signals_ != nullptr && isMainThread();
  std::unique_lock lock(mutex_);
  while (!isOver_.load(std::memory_order_relaxed)) {
    const Instant slice = std::chrono::steady_clock::now() + kSignalSlice;
    cv_.wait_until(lock, checksSignals ? std::min(slice, until) : until);
    if (isOver_.load(std::memory_order_relaxed)) return;
    lock.unlock();
    if (checksSignals) signals_();
    if (std::chrono::steady_clock::now() >= until) {
      throw std::runtime_error(std::string(title_) + ": Timed out waiting " +
                               std::to_string(timeout.count()) +
                               "ms, the argument of wait(); the operation goes on");
    }
    lock.lock();
  }
}

void Operation::abort() {
  if (const auto shared = lane()) shared->close("aborted by Work.abort()");
}

std::shared_ptr<Lane> Operation::lane() const {
  const std::lock_guard lock(mutex_);
  return lane_;
}

c10::intrusive_ptr<c10::ivalue::Future> Operation::getFuture() {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard lock(mutex_);
    if (!future_)
      future_ =
          c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    future = future_;
    if (!isOver_.load(std::memory_order_relaxed)) return future;
  }
  completeFuture();
  return future;
}

void Operation::completeFuture() {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard lock(mutex_);
    if (!future_ || isFutureTold_) return;
    isFutureTold_ = true;
    future = future_;
  }
  if (error_ != nullptr) {
    future->setErrorIfNeeded(error_);
  } else {
    future->markCompleted(c10::IValue(outputs_));
  }
}

bool Batch::isCompleted() {
  for (const auto& work : works_) {
    if (!work->isCompleted()) return false;
  }
  return true;
}

bool Batch::isSuccess() const {
  for (const auto& work : works_) {
    if (!work->isSuccess()) return false;
  }
  return true;
}

std::exception_ptr Batch::exception() const {
  for (const auto& work : works_) {
    if (auto error = work->exception()) return error;
  }
  return nullptr;
}

std::vector<at::Tensor> Batch::result() {
  std::vector<at::Tensor> all;
  for (const auto& work : works_) {
    for (auto& tensor : work->result()) all.push_back(tensor);
  }
  return all;
}

bool Batch::wait(Milliseconds timeout) {
  for (const auto& work : works_) work->wait(timeout);
  return true;
}

void Batch::abort() {
  for (const auto& work : works_) work->abort();
}

c10::intrusive_ptr<c10::ivalue::Future> Batch::getFuture() {
  c10::List<c10::intrusive_ptr<c10::ivalue::Future>> futures(
      c10::FutureType::create(c10::ListType::create(c10::TensorType::get())));
  for (const auto& work : works_) futures.push_back(work->getFuture());
  return c10::collectAll(futures);
}

}  // namespace tutti::pytorch
