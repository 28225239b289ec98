// The collectives of a process group, one after the other in the order of the calls.
//
// A thread of the lane's own runs them, so that they go on while the program computes. A thread
// that waits for one does not wait for that thread to wake up, though: it runs what is queued
// itself, up to what it waits for.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "operation.h"

namespace tutti::pytorch {

// Any thread, unless it says otherwise.
class Lane : public std::enable_shared_from_this<Lane> {
 public:
  // `abort` ends what the running operation waits for; it is called once at most, from any thread.
  explicit Lane(std::function<void()> abort) : abort_(std::move(abort)) {}
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Throws what close() was given when the lane is closed. `isAsync`: someone computes meanwhile;
  // otherwise the caller waits next, and the lane's thread is left asleep.
  void submit(const c10::intrusive_ptr<Operation>& operation, bool isAsync = true);
  // Returns when the operation is over or another thread runs it.
  void runUpTo(Operation& operation);

  // Ends the lane when an operation has had its time: the ranks no longer agree on what comes next.
  void look(Instant now);
  // Ends the lane if the main thread waits in it, or, with `any`, if any operation runs.
  void interrupt(bool any);
  // Fails what is queued with `reason`, and what runs, too. Later calls fail alike. Does not wait.
  void close(const std::string& reason);
  // Waits until nothing is queued and nothing runs, for as long as deadlines let it.
  void drain();
  // As close(), and waits until no thread is in the lane. Its owner, last.
  void stop(const std::string& reason);

 private:
  // Takes the first operation and runs it. Called and returns with the lock held.
  void runFirst(std::unique_lock<std::mutex>& lock);
  void work();
  void startThread();

  const std::function<void()> abort_;
  std::mutex mutex_;
  std::condition_variable changed_;  // for the lane's thread and for helpers
  std::deque<c10::intrusive_ptr<Operation>> queue_;
  c10::intrusive_ptr<Operation> running_;
  std::thread::id runner_;       // who runs it
  bool isMainThreadIn_ = false;  // it does
  bool isAsleep_ = false;        // the lane's thread waits for operations
  bool isClosed_ = false;
  bool isDrained_ = false;  // someone wants to know when it is empty
  bool isOver_ = false;
  std::string reason_;
  std::thread thread_;
};

}  // namespace tutti::pytorch
