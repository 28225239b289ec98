#include "net/queued_lane.h"

#include <sched.h>

#include <array>
#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace tutti::net {
namespace {

// Looks in vain between questions for the thread: one may read the clock.
constexpr uint32_t kIdlesBetweenLooks = 8;
// Rounds that a question keeps the thread looking.
constexpr uint64_t kRoundsPerQuestion = 64;

}  // namespace

struct QueuedLane::KnownMemory {
  enum class State : uint8_t { kAsked, kKnown, kRefused };
  MemoryName name;
  Status refusal;
  std::atomic<State> state{State::kAsked};  // released by who has written the others
};

// Where a request lies from its post to the end of its test. Both sides go round these in the same
// order, so a slot is the user's until `posted` has counted it, the thread's until `isDone`.
struct QueuedLane::Slot {
  std::span<std::byte> bytes;
  KnownMemory* memory = nullptr;
  bool isFlush = false;
  bool isInUse = false;  // the user's
  Request request;       // the thread's
  size_t moved = 0;
  std::atomic<bool> isDone{false};  // released by the thread, which has written `moved`
};

class QueuedLane::Work final : public LaneThread::Work {
 public:
  // What is seldom, done before the messages that are posted later.
  struct Errand {
    enum class Kind : uint8_t { kEnroll, kEnrollGpu, kRelease, kClose };
    Kind kind = Kind::kEnroll;
    KnownMemory* memory = nullptr;  // to be released: owned
    GpuRegion region{};
    Keeper keeper{};
  };

  Work(std::unique_ptr<Lane> lane, std::shared_ptr<CallsMade> calls)
      : lane_(std::move(lane)), names_(lane_->callNames()), calls_(std::move(calls)) {}

  // ---- the user's ----
  Slot& slot(uint64_t number) { return slots_[number % slots_.size()]; }
  void publish(uint64_t posted) { posted_.store(posted, std::memory_order_seq_cst); }
  void send(Errand errand) {
    const std::lock_guard lock(mutex_);
    errands_.push_back(std::move(errand));
    errandCount_.store(errandCount_.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
  }
  void stop() { isStopped_.store(true, std::memory_order_release); }
  // True: the thread might not know it yet.
  bool ask() {
    return !isAsked_.load(std::memory_order_relaxed) &&
           !isAsked_.exchange(true, std::memory_order_seq_cst);
  }
  uint64_t rounds() const { return rounds_.load(std::memory_order_relaxed); }
  // Null while there is none.
  const Status* trouble() const {
    return hasTrouble_.load(std::memory_order_acquire) ? &trouble_ : nullptr;
  }

  // ---- the thread's ----
  bool step() override {
    // Errands that were sent before these were posted are seen below.
    const uint64_t posted = posted_.load(std::memory_order_seq_cst);
    const bool hasErrands = errandCount_.load(std::memory_order_seq_cst) != errandsDone_;
    const uint64_t round = rounds_.load(std::memory_order_relaxed) + 1;
    rounds_.store(round, std::memory_order_relaxed);
    if (round % kRoundsPerQuestion == 0) {
      wasAsked_ = isAsked_.exchange(false, std::memory_order_seq_cst);
    } else {
      wasAsked_ = wasAsked_ || isAsked_.load(std::memory_order_relaxed);
    }
    if (!hasErrands && posted == seen_ && !wasAsked_) return false;
    seen_ = posted;
    if (hasErrands) doErrands();
    if (isStopped_.load(std::memory_order_acquire) || trouble() != nullptr) return hasErrands;
    const uint64_t before = taken_ + done_;
    Status status = postAll(posted);
    if (status.ok()) status = testAll();
    return fail(std::move(status)) || hasErrands || taken_ + done_ != before;
  }
  bool hasNews() const override {
    return posted_.load(std::memory_order_seq_cst) != seen_ ||
           errandCount_.load(std::memory_order_seq_cst) != errandsDone_;
  }
  bool isAsked() const override { return wasAsked_ || isAsked_.load(std::memory_order_seq_cst); }
  // Of who waits, too.
  bool isOver() const override { return isOver_.load(std::memory_order_acquire); }

 private:
  // False: it has not.
  bool fail(Status status) {
    if (status.ok()) return false;
    trouble_ = std::move(status);
    hasTrouble_.store(true, std::memory_order_release);
    return true;
  }

  Status postAll(uint64_t posted) {
    for (; taken_ != posted; ++taken_) {
      Slot& each = slot(taken_);
      if (each.memory->state.load(std::memory_order_relaxed) == KnownMemory::State::kRefused)
        return each.memory->refusal.clone();
      {
        const MarkedCall call(*calls_, each.isFlush ? names_.flush : names_.post);
        TUTTI_TRY_ASSIGN(each.request, each.isFlush ? lane_->flush(each.bytes, each.memory->name)
                                                    : lane_->post(each.bytes, each.memory->name));
      }
      if (!each.request && !each.isFlush) break;
    }
    return {};
  }

  // A flush without a request is through.
  Status testAll() {
    for (; done_ != taken_; ++done_) {
      Slot& each = slot(done_);
      if (each.request) {
        const MarkedCall call(*calls_, names_.test);
        TUTTI_TRY_ASSIGN(const std::optional<size_t> moved, lane_->test(each.request));
        if (!moved) break;
        each.moved = *moved;
      }
      each.isDone.store(true, std::memory_order_release);
    }
    return {};
  }

  void doErrands() {
    std::vector<Errand> errands;
    {
      const std::lock_guard lock(mutex_);
      errands.swap(errands_);
    }
    for (Errand& errand : errands) run(errand);
    errandsDone_ += errands.size();
  }

  void run(Errand& errand) {
    switch (errand.kind) {
      case Errand::Kind::kEnroll:
      case Errand::Kind::kEnrollGpu: return enroll(errand);
      case Errand::Kind::kRelease: {
        const std::unique_ptr<KnownMemory> memory(errand.memory);
        const MarkedCall call(*calls_, names_.release);
        if (memory->state.load(std::memory_order_relaxed) == KnownMemory::State::kKnown)
          lane_->release(memory->name);
        return;
      }
      case Errand::Kind::kClose: {
        const MarkedCall call(*calls_, names_.close);
        lane_.reset();
        errand.keeper.reset();
        isOver_.store(true, std::memory_order_release);
        return;
      }
    }
  }

  void enroll(const Errand& errand) {
    const MarkedCall call(*calls_, names_.enroll);
    Result<Memory> name = errand.kind == Errand::Kind::kEnroll ? lane_->enroll(errand.region.bytes)
                                                               : lane_->enrollGpu(errand.region);
    KnownMemory& memory = *errand.memory;
    if (name.ok()) {
      memory.name = *name;
    } else {
      memory.refusal = name.takeStatus();
    }
    memory.state.store(
        memory.refusal.ok() ? KnownMemory::State::kKnown : KnownMemory::State::kRefused,
        std::memory_order_release);
  }

  std::unique_ptr<Lane> lane_;  // the thread's
  const Lane::CallNames names_;
  const std::shared_ptr<CallsMade> calls_;  // shared with the thread

  std::array<Slot, kMaxRequests> slots_;
  // Written by the user, who released the slots before it, read by the thread; counts up. It and
  // the two below are announcements (LaneThread::Work).
  std::atomic<uint64_t> posted_{0};
  std::atomic<bool> isAsked_{false};  // set by the user, taken by the thread
  std::atomic<uint64_t> errandCount_{0};
  std::atomic<bool> isStopped_{false};  // set by the user before errands, read by the thread after

  std::mutex mutex_;  // guards errands_; never held in a call
  std::vector<Errand> errands_;

  std::atomic<bool> hasTrouble_{false};  // released by the thread, which has written trouble_
  Status trouble_;
  std::atomic<bool> isOver_{false};  // released by the thread
  std::atomic<uint64_t> rounds_{0};  // the thread's; a hint, which orders nothing

  // The thread's.
  uint64_t errandsDone_ = 0;
  uint64_t seen_ = 0;
  uint64_t taken_ = 0;
  uint64_t done_ = 0;
  bool wasAsked_ = false;
};

QueuedLane::QueuedLane(std::unique_ptr<Lane> lane, std::shared_ptr<LaneThread> thread)
    : thread_(std::move(thread)), work_(std::make_shared<Work>(std::move(lane), thread_->calls())) {
  thread_->add(work_);
}

// Of who finds nothing. Where the two share a CPU the thread may need it for that.
Status QueuedLane::ask() {
  if (work_->ask()) thread_->ring();
  ::sched_yield();
  return ++idleCount_ % kIdlesBetweenLooks == 0 ? thread_->look() : Status();
}

QueuedLane::Memory QueuedLane::enroll(std::span<std::byte> memory) {
  auto* const made = new KnownMemory;
  work_->send({.kind = Work::Errand::Kind::kEnroll,
               .memory = made,
               .region = {.bytes = memory, .obstacles = {}}});
  thread_->ring();
  return {made};
}

QueuedLane::Memory QueuedLane::enrollGpu(const GpuRegion& region) {
  auto* const made = new KnownMemory;
  work_->send({.kind = Work::Errand::Kind::kEnrollGpu,
               .memory = made,
               .region = {.bytes = region.bytes, .dmaBuffer = region.dmaBuffer, .obstacles = {}}});
  thread_->ring();
  return {made};
}

Result<Progress> QueuedLane::isKnown(Memory memory) {
  const auto& known = *static_cast<const KnownMemory*>(memory.name);
  switch (known.state.load(std::memory_order_acquire)) {
    case KnownMemory::State::kKnown: return Progress::kDone;
    case KnownMemory::State::kRefused: return known.refusal.clone();
    case KnownMemory::State::kAsked: break;
  }
  TUTTI_TRY(ask());
  return Progress::kIdle;
}

void QueuedLane::release(Memory memory, Keeper keeper) {
  work_->send({.kind = Work::Errand::Kind::kRelease,
               .memory = static_cast<KnownMemory*>(memory.name),
               .keeper = std::move(keeper)});
  thread_->ring();
}

// Of a lane that has failed the first request that is not through tells.
Result<Request> QueuedLane::begin(std::span<std::byte> bytes, Memory memory, bool isFlush) {
  Slot& slot = work_->slot(posted_);
  if (slot.isInUse) {
    TUTTI_TRY(ask());
    return Request{};
  }
  slot.bytes = bytes;
  slot.memory = static_cast<KnownMemory*>(memory.name);
  slot.isFlush = isFlush;
  slot.isInUse = true;
  slot.request = {};
  slot.moved = 0;
  slot.isDone.store(false, std::memory_order_relaxed);
  work_->publish(++posted_);
  thread_->ring();
  return Request{&slot};
}

Result<std::optional<size_t>> QueuedLane::test(Request request) {
  auto& slot = *static_cast<Slot*>(request.name);
  if (!slot.isDone.load(std::memory_order_acquire)) {
    TUTTI_TRY(ask());
    if (!slot.isDone.load(std::memory_order_acquire)) {
      if (const Status* trouble = work_->trouble()) return trouble->clone();
      return std::optional<size_t>();
    }
  }
  slot.isInUse = false;
  return std::optional(slot.moved);
}

uint64_t QueuedLane::rounds() const { return work_->rounds(); }

void QueuedLane::stop() { work_->stop(); }

void QueuedLane::beginClosing(Keeper keeper) {
  if (std::exchange(isClosing_, true)) return;
  work_->send({.kind = Work::Errand::Kind::kClose, .keeper = std::move(keeper)});
  thread_->ring();
}

bool QueuedLane::awaitClosed() { return thread_->awaitEnd(*work_); }

}  // namespace tutti::net
