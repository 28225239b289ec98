#include "device/host/host_stream.h"

#include <signal.h>
#include <unistd.h>

#include "base/futex.h"
#include "device/host/driver.h"

namespace tutti::device::host {
namespace {

// Cuts the first group off the list and returns it.
Task* cutGroup(Task*& list) {
  Task* first = list;
  Task* last = first;
  while (!last->endsGroup) last = last->next;
  list = last->next;
  last->next = nullptr;
  return first;
}

}  // namespace

HostStream::~HostStream() {
  if (!started_.load(std::memory_order_acquire)) return;
  // In a forked child the thread does not exist; there is nothing to wait for.
  if (startedBy_ == ::getpid()) stop();
}

Status HostStream::enqueue(std::span<Task* const> tasks) {
  if (tasks.empty()) return {};
  TUTTI_TRY(start());
  Task* first = linkGroup(tasks);
  Task* last = tasks.back();
  // Turn the group round: the stack holds the newest task first.
  Task* newest = nullptr;
  for (Task* task = first; task != nullptr;) {
    Task* following = task->next;
    task->next = newest;
    newest = task;
    task = following;
  }
  accepted_.fetch_add(1, std::memory_order_seq_cst);
  Task* below = newest_.load(std::memory_order_relaxed);
  do {
    first->next = below;
  } while (!newest_.compare_exchange_weak(below, last, std::memory_order_release,
                                          std::memory_order_relaxed));
  pushed_.fetch_add(1, std::memory_order_seq_cst);
  wakeIfSleeping(pushed_, threadSleeps_);
  return {};
}

Status HostStream::synchronize() {
  if (isOwnThread()) {
    return invalidUsage("a host function waits for the stream it runs on, which would never end");
  }
  const uint64_t target = accepted_.load(std::memory_order_seq_cst);
  for (uint64_t done = finished_.load(std::memory_order_seq_cst); done < target;
       done = finished_.load(std::memory_order_seq_cst)) {
    waitForChange({.word = &finished_, .seen = done, .sleeper = &waitersSleep_}, waiting_);
  }
  return {};
}

bool HostStream::isDone() const {
  const uint64_t target = accepted_.load(std::memory_order_seq_cst);
  return finished_.load(std::memory_order_seq_cst) >= target;
}

bool HostStream::isOwnThread() const {
  return started_.load(std::memory_order_acquire) &&
         ::pthread_equal(thread_, ::pthread_self()) != 0;
}

Status HostStream::start() {
  if (started_.load(std::memory_order_acquire)) return {};
  std::lock_guard lock(startMutex_);
  if (started_.load(std::memory_order_relaxed)) return {};
  // The thread inherits the mask: signals are for the program's own threads.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = ::pthread_create(&thread_, nullptr, &HostStream::threadMain, this);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0)
    return systemError("pthread_create", "for a host stream (limits: ulimit -u, pids.max)", error);
  ::pthread_setname_np(thread_, "tutti-stream");
  startedBy_ = ::getpid();
  started_.store(true, std::memory_order_release);
  return {};
}

void* HostStream::threadMain(void* stream) {
  static_cast<HostStream*>(stream)->run();
  return nullptr;
}

void HostStream::run() {
  for (;;) {
    const uint64_t seen = pushed_.load(std::memory_order_seq_cst);
    Task* list = takeAll();
    if (list == nullptr) {
      if (stopping_.load(std::memory_order_acquire)) return;
      waitForChange({.word = &pushed_, .seen = seen, .sleeper = &threadSleeps_}, waiting_);
    }
    while (list != nullptr) {
      drive(cutGroup(list), waiting_);
      finished_.fetch_add(1, std::memory_order_seq_cst);
      wakeIfSleeping(finished_, waitersSleep_);
    }
  }
}

Task* HostStream::takeAll() {
  Task* oldest = nullptr;
  for (Task* task = newest_.exchange(nullptr, std::memory_order_acquire); task != nullptr;) {
    Task* below = task->next;
    task->next = oldest;
    oldest = task;
    task = below;
  }
  return oldest;
}

void HostStream::stop() {
  stopping_.store(true, std::memory_order_release);
  pushed_.fetch_add(1, std::memory_order_seq_cst);
  wakeIfSleeping(pushed_, threadSleeps_);
  ::pthread_join(thread_, nullptr);
}

}  // namespace tutti::device::host
