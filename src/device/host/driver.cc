#include "device/host/driver.h"

#include <algorithm>
#include <utility>

namespace tutti::device::host {
namespace {

// The tasks that are not yet done: a list through Task::next. A task is unlinked before it is
// completed, because from then on it is not ours.
class Pending {
 public:
  explicit Pending(Task* first) : first_(first) {}
  bool isEmpty() const { return first_ == nullptr; }

  // Polls each task once. True when one advanced or ended.
  bool poll() {
    bool advanced = false;
    for (Task** link = &first_; *link != nullptr;) {
      Task* task = *link;
      Result<Progress> progress = task->poll();
      if (!progress.ok()) {
        end(link, progress.takeStatus());
        advanced = true;
        continue;
      }
      switch (*progress) {
        case Progress::kDone:
          end(link, {});
          advanced = true;
          continue;
        case Progress::kAdvanced:
          task->idleSince = 0;
          advanced = true;
          break;
        case Progress::kIdle: break;
      }
      link = &task->next;
    }
    return advanced;
  }

  uint32_t pollCost() const {
    uint32_t cost = 0;
    for (const Task* task = first_; task != nullptr; task = task->next)
      cost = std::max(cost, task->pollCost);
    return cost;
  }

  // Lets each task look at its slow path. The clock is read here only, so idle times count from the
  // first check after the last advance. True when one ended.
  bool check(Clock& clock) {
    const auto now = static_cast<int64_t>(clock.now());
    bool ended = false;
    for (Task** link = &first_; *link != nullptr;) {
      Task* task = *link;
      if (task->idleSince == 0) task->idleSince = now;
      Status status = task->idle(now - task->idleSince);
      if (status.ok()) {
        link = &task->next;
        continue;
      }
      end(link, std::move(status));
      ended = true;
    }
    return ended;
  }

  // The thread has given its CPU away.
  void noteYields(uint32_t count) {
    if (first_->home != nullptr) first_->home->noteYields(count);
  }

  void rest(Waiting& waiting) {
    WaitSet waits;
    Nanoseconds bound = waiting.longestSleep;
    for (Task* task = first_; task != nullptr; task = task->next) {
      const size_t before = waits.count;
      task->addWaits(waits);
      if (waits.count == before) bound = Waiter::kShortSleep;
    }
    sleepOnWaits(waits, bound, waiting);
  }

 private:
  static void end(Task** link, Status status) {
    Task* task = *link;
    *link = task->next;
    task->next = nullptr;
    task->complete(std::move(status));
  }

  Task* first_;
};

// Whether another thread had this one's CPU while it yielded. Asked only where a wait has outlasted
// its spins.
class Rivals {
 public:
  explicit Rivals(const Waiting& waiting) : waiting_(waiting) {}
  void watch() {
    if (before_ < 0) before_ = waiting_.switches();
  }
  bool cameBy() {
    const int64_t before = std::exchange(before_, -1);
    return before < 0 || waiting_.switches() != before;
  }

 private:
  const Waiting& waiting_;
  int64_t before_ = -1;  // -1: not watching
};

// Most short operations end here, in one poll. False: it is still to be driven.
bool endsAtOnce(Task& task) {
  task.looks = kFirstLooks;
  Result<Progress> progress = task.poll();
  task.looks = 1;
  if (progress.ok() && *progress != Progress::kDone) return false;
  task.complete(progress.takeStatus());
  return true;
}

}  // namespace

Task* linkGroup(std::span<Task* const> tasks) {
  if (tasks.empty()) return nullptr;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const bool isLast = i + 1 == tasks.size();
    tasks[i]->next = isLast ? nullptr : tasks[i + 1];
    tasks[i]->endsGroup = isLast;
    tasks[i]->idleSince = 0;
  }
  return tasks.front();
}

void drive(Task* first, Waiting& waiting) {
  const WaitPolicy policy = waiting.policy();
  if (first != nullptr && first->next == nullptr && policy.spins > 0 && endsAtOnce(*first)) return;
  Pending pending(first);
  Waiter waiter(waiting.patience.limit(policy));
  Rivals rivals(waiting);
  while (!pending.isEmpty()) {
    if (pending.poll()) {
      if (waiter.hasWaited()) {
        const bool wasShort = waiter.wasShort();
        waiting.patience.learn(wasShort || !rivals.cameBy());
        waiter.reset(waiting.patience.limit(policy));
      }
      continue;
    }
    if (policy.spins > 0 && waiter.isDoneSpinning()) rivals.watch();
    const Waiter::Next next = waiter.next(pending.pollCost());
    if (waiter.isYielding()) pending.noteYields(1);
    if (next == Waiter::Next::kPoll) continue;
    if (pending.check(waiting.clock)) continue;
    if (next != Waiter::Next::kCheckThenSleep) continue;
    pending.noteYields(HomeCpu::kSleep);
    pending.rest(waiting);
  }
}

}  // namespace tutti::device::host
