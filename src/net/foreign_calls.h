// Calls into libraries that may never return: a plug-in's init, the constructors of a library that
// is opened. They run one after the other on a thread ("tutti-netcalls") that is left behind when
// one does not return.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "base/clock.h"
#include "base/status.h"

namespace tutti::net {

// Says, as long as it lives, what this thread calls; for who waits for a CallThread. On any other
// thread it does nothing. Setting up only: it copies the texts, under a lock.
class ForeignCall {
 public:
  ForeignCall(std::string_view library, std::string_view call);
  ~ForeignCall();
  ForeignCall(const ForeignCall&) = delete;
  ForeignCall& operator=(const ForeignCall&) = delete;
};

// Thread-safe.
class CallThread {
 public:
  static Result<std::unique_ptr<CallThread>> start();
  // Leaves the thread behind where its job takes longer than a second; those after it are dropped,
  // with what they own, but not before it is through.
  ~CallThread();
  CallThread(const CallThread&) = delete;
  CallThread& operator=(const CallThread&) = delete;

  // One was left behind in this process. It may hold the dynamic loader's lock, for which exit()
  // and dlopen() wait.
  static bool isAnyLeftBehind();

  // A job owns, alone or with others, all that it uses: it may outlive whoever posted it.
  void post(std::function<void()> job);
  // False: it took longer.
  bool waitUntilIdle(Nanoseconds timeout);
  // How long the present job has been running; nothing: there is none.
  std::optional<Nanoseconds> jobAge() const;
  // "network plug-in Fake has not returned from init".
  std::string whatHangs() const;
  // The same "within 4000 ms (see TUTTI_TIMEOUT_MS)".
  std::string complaint(Nanoseconds waited) const;

 private:
  struct State;
  friend class ForeignCall;
  explicit CallThread(std::shared_ptr<State> state) : state_(std::move(state)) {}
  static void run(State& state);

  std::shared_ptr<State> state_;  // shared with the thread, which may outlive this
  std::thread thread_;
};

// What a call brings, once it has returned. One thread; the call may be another's.
template <typename T>
class Awaited {
 public:
  bool isUnderWay() const { return slot_ != nullptr; }

  // `thread` null: here and now. `call` owns all that it uses.
  template <typename Call>
  void start(CallThread* thread, Call call) {
    slot_ = std::make_shared<Slot>();
    auto job = [slot = slot_, call = std::move(call)] {
      slot->result.emplace(call());
      slot->isDone.store(true, std::memory_order_release);
    };
    if (thread == nullptr) {
      job();
    } else {
      thread->post(std::move(job));
    }
  }

  // Nothing: it has not returned. Else it is no longer under way.
  std::optional<Result<T>> take() {
    if (!slot_ || !slot_->isDone.load(std::memory_order_acquire)) return std::nullopt;
    std::optional<Result<T>> result = std::move(slot_->result);
    slot_.reset();
    return result;
  }

  // Nobody waits for it any more.
  void drop() { slot_.reset(); }

 private:
  struct Slot {
    std::optional<Result<T>> result;
    std::atomic<bool> isDone{false};  // released by who has written the result
  };
  std::shared_ptr<Slot> slot_;  // shared with the job
};

}  // namespace tutti::net
