// Launcher: turns the calls of one communicator into operations that a device runs, in the
// communicator's order.
//
// In the steady state a call finds its plan in the cache and an operation in the pool: no
// allocation, no formatting.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/brief_lock.h"
#include "base/clock.h"
#include "base/futex.h"
#include "base/status.h"
#include "bootstrap/peer_info.h"
#include "channel/link_set.h"
#include "device/task.h"
#include "kernels/execution.h"
#include "launch/bound_plan.h"
#include "launch/call.h"
#include "launch/device_folder.h"
#include "launch/operation_profile.h"
#include "launch/own_segment.h"
#include "launch/runner.h"
#include "launch/segment_cache.h"
#include "launch/watch.h"
#include "observe/recorder.h"
#include "plan/plan.h"

namespace tutti::launch {

class Launcher;

// What a call that runs at once goes by.
struct Recalled {
  Recall* recall = nullptr;  // null: it is bare, of the plan's own variant
  FormTrial::Turn turn{};    // if it is tried
  Instant start{};           // if it is measured
};

// The calls of one group on one communicator. Collectives run in call order; then the
// point-to-point calls all at once, those on one link in call order, so that any order of sends and
// receives inside a group completes.
class Operation final : public device::Task {
 public:
  explicit Operation(Launcher& launcher);

  Result<Progress> poll() override;
  void addWaits(device::WaitSet& waits) override;
  Status idle(int64_t idleNanoseconds) override;
  void complete(Status status) noexcept override;

 private:
  friend class Launcher;
  enum class Stage : uint8_t { kQueued, kOpening, kConnecting, kRunning, kDone };
  struct Run {
    Call call;
    BoundPlan* plan = nullptr;
    BoundVariant* variant = nullptr;  // the plan's, once it runs
    uint32_t signature = 0;
    uint64_t sequence = 0;  // of collectives, from 1
    uint64_t number = 0;    // the recorder's, once it runs
    int32_t after = -1;     // the run that must be done before; -1: none
    Stage stage = Stage::kQueued;
    bool isTried = false;     // its form is a turn of the plan's trial
    bool mapsOutput = false;  // kernels::SharedBuffers
    FormTrial::Turn turn{};
    Instant start{};  // if it is measured
    kernels::Execution execution{};
  };

  void reset(uint64_t number);
  void beginProfile(bool isUsersGroup);
  void profileStart(const Run& run);
  size_t numberOf(const Run& run) const { return static_cast<size_t>(&run - runs_.data()); }
  struct Mark {
    uint32_t signature = 0;
    uint64_t sequence = 0;
  };
  void add(const Call& call, BoundPlan& plan, const Mark& mark);
  // The only run, begun elsewhere. Allocates nothing.
  struct Begun {
    const Call& call;
    BoundPlan& plan;
    Mark mark;
    uint64_t number = 0;  // the recorder's
    const Recalled& recalled;
    const kernels::Execution& execution;
  };
  void goOnWith(const Begun& begun);
  int32_t runBefore(const Call& call) const;
  Result<Progress> pollRuns();
  Result<Progress> pollRun(Run& run, uint32_t runLooks);
  Progress finishRun(Run& run);
  void chooseVariant(Run& run);
  Result<Progress> openLinks(Run& run);
  Result<Progress> prepareLinks(const Run& run, const kernels::UsedLinks& used);
  Result<Progress> connectLinks(BoundVariant& variant);
  void begin(Run& run);
  bool isExchange() const;
  bool wantsCrew(const plan::CallShape& shape) const;
  kernels::Crew* crewFor(const plan::CallShape& shape);
  bool refersByKernel(const Run& run, BoundVariant& variant);
  bool isLong(const Run& run) const;
  FormTrial::Outcome endTurn(Run& run);
  void keepRecall(Run& run, bool couldRefer);
  const plan::MappedSteps& mappedSteps(const BoundPlan& plan, BoundVariant& variant, bool inPlace);
  const kernels::SharedBuffers* findShared(Run& run, const kernels::Binding& binding,
                                           bool hasSegments);
  bool mayRunAtOnce(const BoundPlan& plan) const;
  static bool hasChoice(const BoundPlan& plan);
  bool mayShare(const BoundPlan& plan) const;
  Status explain(const Run& run, Status error);
  Status lookAround(int64_t idleNanoseconds);
  Status judgeNetwork(int64_t idleNanoseconds);
  Status judgeNetworkCall(int64_t idleNanoseconds);
  void noteWaits();
  void noteMembers(observe::WaitNote note);
  Status giveUp(const Run& run, wire::LinkFault fault);
  std::optional<Rank> carrierOf(const Run& run) const;
  Status loseCarrier(const Run& run, Rank number, std::string_view why);
  Status blameNetwork(const Run& run, std::string_view hang);

  Launcher& launcher_;
  uint64_t number_ = 0;
  size_t finishedRuns_ = 0;
  std::vector<Run> runs_;
  std::vector<std::byte> inputCopy_;  // of an all-to-all called in place; runs of collectives never
                                      // overlap
  std::deque<kernels::SharedBuffers> sharedBuffers_;  // of the runs that have any; never shrinks
  size_t sharedCount_ = 0;                            // those in use
  kernels::Crews::Lease crew_;                        // once a long run has begun
  std::vector<observe::WaitNote> waits_;              // scratch of idle()
  std::vector<int32_t> carriers_;                     // likewise
  std::optional<OperationProfile> profile_;           // where the communicator is profiled
  Operation* nextFree_ = nullptr;
};

class Launcher final : public Runner {
 public:
  struct Parts {
    channel::LinkSet& links;
    plan::Planner& planner;
    const std::vector<bootstrap::PeerInfo>& peers;
    const std::atomic<bool>& abort;
    Clock& clock;
    Nanoseconds timeout;  // TUTTI_TIMEOUT_MS
    std::unique_ptr<observe::Recorder> recorder;
    bootstrap::Bootstrap* bootstrap = nullptr;  // null: no rank is of another host
    SegmentCache segments{nullptr};
    uint64_t streamFromBytes = UINT64_MAX;  // TUTTI_STREAM_FROM_BYTES
    int32_t homeCpu = HomeCpu::kNone;
    std::vector<uint8_t> sharesCpu{};  // by rank: 0: it belongs on another CPU; empty: not known
    OwnSegment outbox{};               // holds nothing: there is none
    bool triesForms = true;            // false: refers wherever it may (TUTTI_PROCESS_READ=1)
    observe::Profiler* profiler = nullptr;    // null: nobody asked
    DeviceFolder* folder = nullptr;           // of calls on a GPU's memory; null: there are none
    std::shared_ptr<kernels::Crews> crews{};  // null: nobody helps with long calls
    int32_t helpers = 0;                      // of this rank's crew
  };
  explicit Launcher(Parts parts);
  ~Launcher();

  // One operation for the calls of a group, to be given to Device::enqueue exactly once. Fails,
  // leaving nothing behind, when a call cannot be planned or an earlier operation failed. Any
  // thread; serialised.
  Result<device::Task*> prepare(std::span<const Call> calls) { return prepare(calls, true); }

  // The same for one call that is to run in this thread, and now: runs it, looking at most so many
  // times for what it waits for, and returns null when it is done. Most short calls are, and need
  // neither operation nor device. `looks` 0: just prepares it.
  Result<device::Task*> runAtOnce(const Call& call, uint32_t looks);

  // A call of a shape that has been checked and run before, and needs no operation as it begins.
  // kNot: nothing has happened, and it is to go as any other; kGoesOn: `rest` is to be enqueued.
  enum class Ran : uint8_t { kNot, kDone, kGoesOn };
  struct Again {
    Ran ran = Ran::kNot;
    device::Task* rest = nullptr;
  };
  struct Repeat {
    uint64_t kind = 0;  // kindOf() its shape, which has no scalar
    uint64_t count = 0;
    const void* input = nullptr;
    void* output = nullptr;
  };
  Again runAgain(const Repeat& call, uint32_t looks);

  // Undoes a prepare whose task was not enqueued.
  void cancel(device::Task* task);

  uint64_t preparedCount() const { return prepared_.load(std::memory_order_acquire); }
  uint64_t completedCount() const { return completed_.load(std::memory_order_acquire); }
  bool isIdle() override { return preparedCount() == completedCount(); }
  bool isSettled() override { return isIdle(); }

  // Sleeps until all prepared operations are complete, or `bound` has passed; false: not idle yet.
  bool waitIdle(Nanoseconds bound, Clock& clock) override;

  // The first failure of any operation; ok while there is none.
  Status failure() const override;
  bool hasFailed() const override { return hasFailed_.load(std::memory_order_acquire); }
  Status verdict() const override { return watch_.verdict(); }
  std::string lastCall() const override { return watch_.lastCall(); }
  Status compareCalls() override { return watch_.compareCalls(); }

  // This rank starts no further operation, and why: peers that wait for one learn of it. Once idle.
  void retire(observe::Life how) override { parts_.recorder->setLife(how); }
  bool isDead(int32_t rank) const override { return launch::isDead(*parts_.recorder, rank); }

  // Records a failure from outside an operation (the first one wins) and lets the peers know.
  void fail(const Status& status) override;

 private:
  friend class Operation;
  struct ShapeHash {
    size_t operator()(const plan::CallShape& shape) const;
  };
  static constexpr size_t kRecentPlans = 64;  // a training step's shapes; a power of two
  // Where a shape's plan would be; that of another, or null, when it is not. One multiplication, by
  // 2^64 over the golden ratio, whose upper bits hang on all of the factor's.
  BoundPlan*& recentPlan(uint64_t kind, uint64_t count) {
    constexpr uint64_t kFactor = 0x9e3779b97f4a7c15u;
    static_assert(kRecentPlans == 1u << 6);
    return recentPlans_[((std::rotl(kind, 24) ^ count) * kFactor) >> (64 - 6)];
  }
  static bool isOf(const BoundPlan* plan, uint64_t kind, uint64_t count) {
    return plan != nullptr && plan->kind == kind && plan->shape.count == count;
  }

  Result<device::Task*> prepare(std::span<const Call> calls, bool isUsersGroup);
  Result<BoundPlan*> planFor(const plan::CallShape& shape);
  Result<BoundPlan*> findOrMakePlan(const plan::CallShape& shape);
  Status addCall(Operation& operation, const Call& call);
  Status addCalls(Operation& operation, std::span<const Call> calls);
  Status addSelfTransfers(Operation& operation, std::span<const Call> calls);
  Operation& takeOperation();
  void giveBack(Operation& operation);
  Operation::Mark nextMark(const BoundPlan& plan);
  inline BoundPlan* findRunnableAtOnce(uint64_t kind, uint64_t count);
  inline bool isBare(const BoundPlan& plan) const;
  device::Task* runAtOnce(Operation& operation, uint32_t looks);
  Recalled findRecall(const Repeat& call, BoundPlan& plan) const;
  void endedAtOnce(BoundPlan& plan, const Recalled& recalled, const kernels::Execution& execution);
  Nanoseconds measured(BoundPlan& plan, Instant start) const;
  bool endsInTurns(kernels::Execution& execution, Collective collective);
  static bool endsLook(const kernels::Execution& execution);
  uint64_t record(const BoundPlan& plan, uint64_t sequence) {
    return parts_.recorder->begin(plan.noted, plan.shape.count, sequence);
  }
  void alignLinks(const BoundPlan& plan, const BoundVariant& variant);
  // What a call that is run at once begins with.
  struct Begin {
    BoundPlan* plan = nullptr;
    Operation::Mark mark;
    uint64_t number = 0;  // of the operation that it would be
    Recalled recalled;
  };
  inline Begin beginAgain(const Repeat& call);
  inline Begin beginAtOnce(BoundPlan& plan, const Recalled& recalled);
  inline kernels::Execution& startBare(const Repeat& call, const Begin& begin);
  kernels::Execution& startRecalled(const Repeat& call, const Begin& begin);
  inline bool endsAtOnce(kernels::Execution& execution, Collective collective, uint32_t looks);
  Operation& goOnWith(const Call& call, const Begin& begin, uint64_t recorded,
                      const kernels::Execution& execution);
  // All ranks take the same variant.
  static uint32_t signatureOf(const BoundPlan& plan, const BoundVariant& variant,
                              uint32_t signature) {
    return &variant == &plan.own ? signature : signature ^ variant.plan.signature;
  }
  // Writes all of the binding.
  void bind(const Call& call, const BoundPlan& plan, const BoundVariant& variant,
            uint32_t signature, kernels::Binding& binding);
  void markDone(uint64_t number) {
    completed_.store(number + 1, std::memory_order_release);
    wakeIfAnnounced(completed_, waitingNext_);
  }
  void awaitReaders(const Operation& operation);
  void awaitWriters(Operation& operation);
  void awaitFolder();
  void finish(Operation& operation, Status status);

  Parts parts_;
  Watch watch_;  // these eight: used by the thread that drives the present operation
  kernels::StepScratch scratch_;
  kernels::Execution recalled_;    // of a call that goes as an earlier one did
  const Recall* bound_ = nullptr;  // whose recalled_ is, and ended well
  size_t nextMember_ = 0;          // of a network's, to be looked at
  uint64_t networkRounds_ = 0;     // of its thread, at the last look
  int64_t stuckSince_ = 0;  // how long was waited when it was first seen in the call it is in
  const schedule::Program* lastProgram_ = nullptr;  // of a collective
  HomeCpu home_;
  std::optional<kernels::Outbox> outbox_;  // in parts_.outbox
  mutable BriefLock mutex_;                // guards the fields down to the blank line
  std::unordered_map<plan::CallShape, std::unique_ptr<BoundPlan>, ShapeHash> plans_;
  std::array<BoundPlan*, kRecentPlans> recentPlans_{};  // recentPlan()
  std::vector<std::unique_ptr<Operation>> operations_;
  Operation* freeOperations_ = nullptr;
  uint64_t collectiveSequence_ = 0;
  Status failure_;

  // An operation that is done and not yet in the pool, so that a call which follows another's end
  // needs one lock, not two. Written with release by the thread that drove the operation, only when
  // it is null; read with acquire and taken under mutex_, only when it is not. So no two threads
  // ever write at a time: those that drive operations come one after the other (completed_).
  std::atomic<Operation*> spare_{nullptr};

  // Operations made so far: written under mutex_, read by anyone.
  std::atomic<uint64_t> prepared_{0};
  // Operations done so far, in order. Written with release by the thread that drove the operation,
  // read with acquire by the one that drives the next: that hands over the links. One word because
  // operations of a communicator never overlap. Wraps never (64 bit). Its low half is a futex word;
  // waitingNext_ counts the sleepers, which fence the writer (base/futex.h).
  std::atomic<uint64_t> completed_{0};
  std::atomic<uint32_t> waitingNext_{0};
  std::atomic<bool> hasFailed_{false};  // mirrors failure_, release after it is set
};

}  // namespace tutti::launch
