#include "net/lane_thread.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "base/futex.h"
#include "base/log.h"
#include "net/pauses.h"

namespace tutti::net {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Of what abort may take, a second, some is others'.
constexpr milliseconds kParting{500};
constexpr milliseconds kEndPatience{300};
constexpr microseconds kBetweenEndLooks{50};
// The most that counts of the time since a look before.
constexpr milliseconds kMostBetweenLooks{100};
constexpr milliseconds kLongSleep{100};

}  // namespace

struct LaneThread::State {
  explicit State(Options of) : options(std::move(of)) {}

  bool runWorks();
  bool takeAdded();
  bool isAnyAsked() const;
  void serve();
  void sleep(Nanoseconds most, bool isPause);
  std::string complaint(Nanoseconds age) const;

  const Options options;
  const std::shared_ptr<CallsMade> calls = std::make_shared<CallsMade>();  // shared with all work
  std::vector<std::shared_ptr<Work>> works;  // the thread's; each shared with its user

  std::mutex mutex;  // guards these
  std::condition_variable wake;
  std::vector<std::shared_ptr<Work>> added;
  bool isStopping = false;
  bool isRung = false;

  // Set by the thread before it looks a last time whether it is wanted, and sleeps; read by whoever
  // has announced something. Both sequentially consistent, as are the announcements, so one of the
  // two sees the other. Nothing is published by it.
  std::atomic<bool> isAsleep{false};
  std::atomic<bool> hasAdded{false};  // as an announcement

  std::mutex lookMutex;  // guards these
  uint64_t seenCount = 0;
  Nanoseconds stood{0};
  Instant lookedAt{};
  uint64_t awaitedInVain = 0;  // a call, by its number

  std::atomic<bool> isHung{false};  // released by who has written what hangs
  std::string hang;
  std::atomic<bool> hasWarned{false};
};

// ---- the thread's -------------------------------------------------------------------------------

void LaneThread::State::serve() {
  Pauses pauses(0);  // a look is worth as many calls of the system as there are lanes
  for (;;) {
    if (takeAdded() && works.empty()) return;
    if (runWorks()) {
      pauses.moved();
      if (options.onMoved) options.onMoved();
      sched_yield();  // to who waits for that, where they share a CPU
      continue;
    }
    if (!isAnyAsked()) {
      sleep(kLongSleep, false);
    } else if (const auto pause = pauses.next()) {
      sleep(*pause, true);
    }
  }
}

// True: the thread is to end.
bool LaneThread::State::takeAdded() {
  if (!hasAdded.load(std::memory_order_seq_cst)) return false;
  const std::lock_guard lock(mutex);
  hasAdded.store(isStopping, std::memory_order_seq_cst);
  works.insert(works.end(), std::make_move_iterator(added.begin()),
               std::make_move_iterator(added.end()));
  added.clear();
  return isStopping;
}

bool LaneThread::State::runWorks() {
  bool hasMoved = false;
  bool isAnyOver = false;
  for (const auto& work : works) {
    hasMoved = work->step() || hasMoved;
    isAnyOver = isAnyOver || work->isOver();
  }
  if (isAnyOver) std::erase_if(works, [](const auto& work) { return work->isOver(); });
  return hasMoved;
}

bool LaneThread::State::isAnyAsked() const {
  return std::ranges::any_of(works, [](const auto& work) { return work->isAsked(); });
}

// In a pause somebody asks all the while.
void LaneThread::State::sleep(Nanoseconds most, bool isPause) {
  isAsleep.store(true, std::memory_order_seq_cst);
  const bool isWanted =
      hasAdded.load(std::memory_order_seq_cst) ||
      std::ranges::any_of(works, [](const auto& each) { return each->hasNews(); });
  if (!isWanted && (isPause || !isAnyAsked())) {
    std::unique_lock lock(mutex);
    wake.wait_for(lock, most, [this] { return isRung || isStopping; });
    isRung = false;
  }
  isAsleep.store(false, std::memory_order_seq_cst);
}

std::string LaneThread::State::complaint(Nanoseconds age) const {
  const char* const call = calls->underWay.load(std::memory_order_relaxed);
  return fmt::format(
      "{} has not returned from {} for {:.1f} s (TUTTI_TIMEOUT_MS sets how long it may take)",
      options.fabric->caps().library, call != nullptr ? call : "a call",
      std::chrono::duration<double>(age).count());
}

// ---- its users' ---------------------------------------------------------------------------------

LaneThread::LaneThread(std::shared_ptr<State> state, std::unique_ptr<CallThread> thread)
    : state_(std::move(state)), thread_(std::move(thread)) {}

Result<std::unique_ptr<LaneThread>> LaneThread::start(Options options) {
  auto state = std::make_shared<State>(std::move(options));
  TUTTI_TRY_ASSIGN(std::unique_ptr<CallThread> thread, CallThread::start());
  thread->post([state] { state->serve(); });
  return std::unique_ptr<LaneThread>(new LaneThread(std::move(state), std::move(thread)));
}

LaneThread::~LaneThread() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->isStopping = true;
    state_->hasAdded.store(true, std::memory_order_seq_cst);
  }
  state_->wake.notify_all();
  if (!thread_->waitUntilIdle(kParting))
    log::warn("{}: it is left behind", state_->complaint(kParting));
}

std::shared_ptr<CallsMade> LaneThread::calls() const { return state_->calls; }

void LaneThread::add(std::shared_ptr<Work> work) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->added.push_back(std::move(work));
    state_->hasAdded.store(true, std::memory_order_seq_cst);
  }
  ring();
}

void LaneThread::ring() {
  if (!state_->isAsleep.load(std::memory_order_seq_cst)) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->isRung = true;
  }
  state_->wake.notify_all();
}

bool LaneThread::isHung() const { return state_->isHung.load(std::memory_order_acquire); }

Status LaneThread::look() {
  State& state = *state_;
  if (isHung()) return Status(Code::kSystemError, std::string(state.hang));
  if (state.calls->underWay.load(std::memory_order_relaxed) == nullptr) return {};
  const std::unique_lock lock(state.lookMutex, std::try_to_lock);
  if (!lock || isHung()) return {};
  const uint64_t count = state.calls->count.load(std::memory_order_relaxed);
  const Instant now = state.options.clock.now();
  if (count == state.seenCount) {
    state.stood += std::min<Nanoseconds>(now - state.lookedAt, kMostBetweenLooks);
  } else {
    state.seenCount = count;
    state.stood = Nanoseconds{0};
  }
  state.lookedAt = now;
  if (state.stood < state.options.timeout) return {};
  state.hang = state.complaint(state.stood);
  state.isHung.store(true, std::memory_order_release);
  return Status(Code::kSystemError, std::string(state.hang));
}

bool LaneThread::awaitEnd(const Work& work) {
  ring();
  const Instant deadline = steadyClock().now() + kEndPatience;
  for (;;) {
    if (work.isOver()) return true;
    const bool isInCall = state_->calls->underWay.load(std::memory_order_relaxed) != nullptr;
    const uint64_t count = state_->calls->count.load(std::memory_order_relaxed);
    {
      const std::lock_guard lock(state_->lookMutex);
      if (isInCall && count == state_->awaitedInVain) return false;
      if (steadyClock().now() > deadline) {
        if (isInCall) state_->awaitedInVain = count;
        break;
      }
    }
    sleepFor(kBetweenEndLooks);
  }
  if (!state_->hasWarned.exchange(true, std::memory_order_relaxed))
    log::warn("{}: a lane is closed after its link", state_->complaint(kEndPatience));
  return false;
}

}  // namespace tutti::net
