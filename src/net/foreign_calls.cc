#include "net/foreign_calls.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "base/service_thread.h"

namespace tutti::net {
namespace {

using std::chrono::milliseconds;

// Set when a thread is left behind, read by who ends the process: a hint that orders nothing.
constinit std::atomic<bool> hasLeftOneBehind{false};

// What a job may still take when its thread is to end, before that is left behind.
constexpr std::chrono::seconds kParting{1};

}  // namespace

struct CallThread::State {
  static thread_local State* ofThisThread;  // null on others' threads

  mutable std::mutex mutex;  // guards all below
  std::condition_variable wake;
  std::condition_variable idle;
  std::deque<std::function<void()>> jobs;
  std::optional<Instant> startedAt;  // the present job
  std::string library;               // what it calls now
  std::string call;
  bool isStopping = false;
  bool isOver = false;  // the thread uses it no more
};

constinit thread_local CallThread::State* CallThread::State::ofThisThread = nullptr;

ForeignCall::ForeignCall(std::string_view library, std::string_view call) {
  CallThread::State* const state = CallThread::State::ofThisThread;
  if (state == nullptr) return;
  std::lock_guard lock(state->mutex);
  state->library = library;
  state->call = call;
}

ForeignCall::~ForeignCall() {
  CallThread::State* const state = CallThread::State::ofThisThread;
  if (state == nullptr) return;
  std::lock_guard lock(state->mutex);
  state->library.clear();
  state->call.clear();
}

Result<std::unique_ptr<CallThread>> CallThread::start() {
  auto state = std::make_shared<State>();
  std::unique_ptr<CallThread> made(new CallThread(state));
  TUTTI_TRY_ASSIGN(made->thread_, startThread("tutti-netcalls", [state] { run(*state); }));
  return made;
}

CallThread::~CallThread() {
  if (!thread_.joinable()) return;
  std::unique_lock lock(state_->mutex);
  state_->isStopping = true;
  state_->wake.notify_all();
  const Nanoseconds age =
      state_->startedAt ? steadyClock().now() - *state_->startedAt : Nanoseconds{0};
  const bool isOver =
      state_->idle.wait_for(lock, kParting - age, [this] { return state_->isOver; });
  lock.unlock();
  if (isOver) {
    thread_.join();
  } else {
    thread_.detach();
    hasLeftOneBehind.store(true, std::memory_order_relaxed);
  }
}

bool CallThread::isAnyLeftBehind() { return hasLeftOneBehind.load(std::memory_order_relaxed); }

void CallThread::run(State& state) {
  State::ofThisThread = &state;
  std::unique_lock lock(state.mutex);
  for (;;) {
    state.wake.wait(lock, [&] { return state.isStopping || !state.jobs.empty(); });
    if (state.isStopping) break;
    {
      const std::function<void()> job = std::exchange(state.jobs.front(), {});
      state.jobs.pop_front();
      state.startedAt = steadyClock().now();
      lock.unlock();
      job();
    }  // with what it owns, which may call the library as it goes
    lock.lock();
    state.startedAt.reset();
    if (state.jobs.empty()) state.idle.notify_all();
  }
  // What the others own may call the library as it goes.
  std::deque<std::function<void()>> dropped = std::exchange(state.jobs, {});
  lock.unlock();
  dropped.clear();
  lock.lock();
  state.isOver = true;
  state.idle.notify_all();
}

void CallThread::post(std::function<void()> job) {
  std::lock_guard lock(state_->mutex);
  state_->jobs.push_back(std::move(job));
  state_->wake.notify_all();
}

bool CallThread::waitUntilIdle(Nanoseconds timeout) {
  std::unique_lock lock(state_->mutex);
  return state_->idle.wait_for(lock, timeout,
                               [this] { return state_->jobs.empty() && !state_->startedAt; });
}

std::optional<Nanoseconds> CallThread::jobAge() const {
  std::lock_guard lock(state_->mutex);
  if (!state_->startedAt) return std::nullopt;
  return steadyClock().now() - *state_->startedAt;
}

std::string CallThread::whatHangs() const {
  std::lock_guard lock(state_->mutex);
  return fmt::format("{} has not returned from {}",
                     state_->library.empty() ? "the network's library" : state_->library,
                     state_->call.empty() ? "a call" : state_->call);
}

std::string CallThread::complaint(Nanoseconds waited) const {
  return fmt::format("{} within {} ms (see TUTTI_TIMEOUT_MS)", whatHangs(),
                     std::chrono::duration_cast<milliseconds>(waited).count());
}

}  // namespace tutti::net
