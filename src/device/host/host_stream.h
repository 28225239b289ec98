// A host stream: groups of tasks that run one after another on a thread of the stream's own.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>

#include "base/status.h"
#include "device/device.h"
#include "device/host/waiter.h"
#include "device/task.h"

namespace tutti::device::host {

// Any thread, except that destruction is alone. The thread ("tutti-stream", all signals blocked)
// starts with the first work.
class HostStream final : public Stream {
 public:
  explicit HostStream(Waiting& waiting) : waiting_(waiting) {}
  ~HostStream();  // waits for all work
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;

  // Returns at once; the tasks run concurrently with each other after all groups enqueued before.
  // Allocates nothing but, once, the thread: kSystemError, with nothing enqueued, when that cannot
  // start.
  Status enqueue(std::span<Task* const> tasks);
  // Returns when all groups whose enqueue() returned before this call are done. kInvalidUsage on
  // the stream's own thread.
  Status synchronize();
  bool isDone() const;
  bool isOwnThread() const;

 private:
  Status start();
  static void* threadMain(void* stream);
  void run();
  Task* takeAll();
  void stop();

  Waiting& waiting_;

  std::mutex startMutex_;             // guards the start of the thread
  std::atomic<bool> started_{false};  // release after thread_ is known, acquire before it is used
  pthread_t thread_{};
  int startedBy_ = 0;  // process id: after fork() the child has the object but not the thread
  std::atomic<bool> stopping_{false};

  // A stack of enqueued tasks, newest first, linked by Task::next: any thread pushes a whole group
  // (release), the stream's thread takes all at once (acquire), so no element is ever popped alone
  // and no ABA can arise. It turns the order round.
  std::atomic<Task*> newest_{nullptr};
  // Raised by enqueue() after its push, so the stream's thread sleeps only on a stack it has seen
  // empty. By the protocol of base/futex.h; 2^64 groups do not happen.
  std::atomic<uint64_t> pushed_{0};
  std::atomic<uint32_t> threadSleeps_{0};
  // Raised by enqueue() before its push: whoever reads it after an enqueue() returned counts that
  // group, and perhaps one about to be pushed. Relaxed suffices among threads that synchronise
  // otherwise; sequentially consistent for simplicity.
  std::atomic<uint64_t> accepted_{0};
  // Raised by the stream's thread after a group is complete; read by those who synchronise. As
  // above; its release publishes all that the group's tasks wrote.
  std::atomic<uint64_t> finished_{0};
  std::atomic<uint32_t> waitersSleep_{0};
};

}  // namespace tutti::device::host
