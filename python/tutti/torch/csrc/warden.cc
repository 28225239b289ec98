#include "warden.h"

#include <unistd.h>

#include <vector>

namespace tutti::pytorch {

Warden::~Warden() { leave(); }

template <typename Call>
void Warden::forEach(Call call) {
  const std::vector<Watched*> all(watched_.begin(), watched_.end());
  for (Watched* watched : all) {
    if (watched_.count(watched) != 0) call(watched);
  }
}

void Warden::watch(Watched* watched) {
  const std::lock_guard lock(mutex_);
  watched_.insert(watched);
  if (thread_ != nullptr && process_ == ::getpid()) return;
  thread_.release();  // nullptr, or, in a fork, the parent's: not ours to end.
                      // NOLINT(bugprone-unused-return-value)
  process_ = ::getpid();
  thread_ = std::make_unique<std::thread>([this] { patrol(); });
}

void Warden::forget(Watched* watched) {
  const std::lock_guard lock(mutex_);
  watched_.erase(watched);
}

void Warden::interrupt(bool any) {
  const std::lock_guard lock(mutex_);
  forEach([&](Watched* watched) { watched->interrupt(any); });
}

void Warden::leave() {
  std::unique_ptr<std::thread> thread;
  {
    const std::lock_guard lock(mutex_);
    isOver_ = true;
    forEach([](Watched* watched) { watched->leave(); });
    changed_.notify_all();
    thread = std::move(thread_);
  }
  if (thread == nullptr) return;
  if (process_ != ::getpid()) {
    thread.release();  // the parent's. NOLINT(bugprone-unused-return-value)
  } else {
    thread->join();
  }
}

void Warden::patrol() {
  std::unique_lock lock(mutex_);
  while (!isOver_) {
    changed_.wait_for(lock, kRound);
    const Instant now = std::chrono::steady_clock::now();
    forEach([&](Watched* watched) { watched->look(now); });
  }
}

}  // namespace tutti::pytorch
