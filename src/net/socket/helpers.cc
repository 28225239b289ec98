#include "net/socket/helpers.h"

#include <utility>

#include "base/relax_cpu.h"
#include "bootstrap/service_thread.h"

namespace tutti::net::socket {
namespace {

// About as long as a message's parts take on the wire: shorter than waking a thread.
constexpr Nanoseconds kAlert = std::chrono::microseconds(50);

}  // namespace

Helpers::Helpers(size_t threadCount, Clock& clock) : clock_(clock) {
  for (size_t i = 0; i < threadCount; ++i) {
    Result<std::thread> thread = bootstrap::startThread("tutti-sock", [this] { serve(); });
    if (!thread.ok()) break;
    threads_.push_back(std::move(thread).value());
  }
}

Helpers::~Helpers() {
  {
    const std::lock_guard lock(mutex_);
    isStopping_ = true;
    runs_.fetch_add(1, std::memory_order_relaxed);
  }
  begun_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Helpers::run(size_t count, const std::function<void(size_t)>& work) {
  const std::unique_lock caller(caller_, std::try_to_lock);
  if (!caller || threads_.empty()) {
    for (size_t i = 0; i < count; ++i) work(i);
    return;
  }
  std::unique_lock lock(mutex_);
  work_ = &work;
  count_ = count;
  next_ = 0;
  runs_.fetch_add(1, std::memory_order_relaxed);
  begun_.notify_all();
  takeTurns(lock);
  over_.wait(lock, [this] { return running_ == 0; });
  work_ = nullptr;
}

// Takes what nobody has taken, until all is; true if there was something.
bool Helpers::takeTurns(std::unique_lock<std::mutex>& lock) {
  bool took = false;
  while (work_ != nullptr && next_ < count_) {
    const auto& work = *work_;
    const size_t own = next_++;
    ++running_;
    lock.unlock();
    work(own);
    lock.lock();
    --running_;
    took = true;
  }
  if (took && running_ == 0) over_.notify_one();
  return took;
}

void Helpers::serve() {
  for (;;) {
    const uint64_t seen = runs_.load(std::memory_order_relaxed);
    std::unique_lock lock(mutex_);
    if (isStopping_) return;
    if (takeTurns(lock)) {
      lock.unlock();
      for (const Instant end = clock_.now() + kAlert;
           runs_.load(std::memory_order_relaxed) == seen && clock_.now() < end;)
        relaxCpu();
      continue;
    }
    begun_.wait(lock, [&] { return isStopping_ || (work_ != nullptr && next_ < count_); });
  }
}

}  // namespace tutti::net::socket
