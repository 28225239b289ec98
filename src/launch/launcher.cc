#include "launch/launcher.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "base/fnv.h"
#include "base/futex.h"
#include "base/log.h"
#include "launch/late_peers.h"
#include "wire/placed_result.h"

namespace tutti::launch {
namespace {

// Where the kernel cannot fence other threads, a wake-up may be missed (base/futex.h).
constexpr Nanoseconds kUnfencedSleep = std::chrono::milliseconds(1);

// What there is no memory for goes out with the next call, or as the link ends.
void settle(channel::LinkSet& links) noexcept {
  try {
    if (links.hasMotors()) links.settleMotors();
  } catch (const std::bad_alloc&) {
  }
}

channel::Lane laneOf(const plan::CallShape& shape) {
  using enum channel::Lane;
  if (isPointToPoint(shape.collective)) return shape.isOnGpu ? kGpuPointToPoint : kPointToPoint;
  return shape.isOnGpu ? kGpuCollective : kCollective;
}

Status unpairedSelfTransfer(Rank self, std::string_view present, std::string_view missing) {
  return invalidUsage(
      "rank {} has a {} with itself but no matching {} in this group: put both into one "
      "ncclGroupStart/ncclGroupEnd",
      index(self), present, missing);
}

}  // namespace

size_t Launcher::ShapeHash::operator()(const plan::CallShape& shape) const {
  Fnv hash;
  hash.add((static_cast<uint64_t>(shape.collective) << 16) |
           (static_cast<uint64_t>(shape.type) << 8) | static_cast<uint64_t>(shape.op));
  hash.add(static_cast<uint64_t>(index(shape.peer)));
  hash.add(shape.count << 1 | (shape.isOnGpu ? 1 : 0));
  return hash.value();
}

Result<BoundPlan*> Launcher::planFor(const plan::CallShape& shape) {
  const uint64_t kind = kindOf(shape);
  BoundPlan*& recent = recentPlan(kind, shape.count);
  if (isOf(recent, kind, shape.count)) return recent;
  TUTTI_TRY_ASSIGN(recent, findOrMakePlan(shape));
  return recent;
}

Result<BoundPlan*> Launcher::findOrMakePlan(const plan::CallShape& shape) {
  if (auto found = plans_.find(shape); found != plans_.end()) return found->second.get();
  auto bound = std::make_unique<BoundPlan>();
  bound->shape = shape;
  bound->kind = kindOf(shape);
  bound->noted = observe::packWhat({.collective = shape.collective,
                                    .type = shape.type,
                                    .op = shape.op,
                                    .state = observe::EntryState::kRunning,
                                    .peer = index(shape.peer)});
  TUTTI_TRY_ASSIGN(bound->own.plan, parts_.planner.make(shape));
  TUTTI_TRY_ASSIGN(std::optional<plan::Plan> other,
                   parts_.planner.makeOther(shape, bound->own.plan));
  if (other) bound->other.emplace().plan = std::move(*other);
  const plan::BufferBytes buffers = plan::bufferBytes(shape, parts_.planner.agreement());
  bound->streams = buffers.input + buffers.output >= parts_.streamFromBytes;
  const bool canAgree = isAmongAll(shape.collective) && parts_.planner.agreement().isOneHost;
  bound->forms = FormTrial(bound->other.has_value(), canAgree);
  bound->lane = laneOf(shape);
  log::info(log::Subsystem::kTuning, "{}: {} elements of {} -> {} ({})", name(shape.collective),
            shape.count, name(shape.type), bound->own.plan.algorithm, bound->own.plan.reason);
  BoundPlan* result = bound.get();
  plans_.emplace(shape, std::move(bound));
  return result;
}

Launcher::Launcher(Parts parts)
    : parts_(std::move(parts)),
      watch_({.recorder = *parts_.recorder,
              .clock = parts_.clock,
              .timeout = parts_.timeout,
              .bootstrap = parts_.bootstrap,
              .peers = &parts_.peers,
              .arrivedBytes = [this](Rank peer) { return parts_.links.arrivedBytes(peer); }}),
      home_(parts_.homeCpu) {
  if (parts_.outbox.get().serial != 0)
    outbox_.emplace(parts_.outbox.get(),
                    kernels::Outbox::reachOf(parts_.planner.agreement().isOneHost));
}

// From here on nobody needs to wait for this rank.
Launcher::~Launcher() { parts_.recorder->setLife(observe::Life::kDestroyed); }

// A send to oneself and its receive become one local copy. `calls` keeps the order of the rest.
Status Launcher::addSelfTransfers(Operation& operation, std::span<const Call> calls) {
  const Rank self = parts_.planner.agreement().rank;
  const auto isSelf = [self](const Call& call, Collective kind) {
    return call.shape.collective == kind && call.shape.peer == self;
  };
  size_t nextReceive = 0;
  for (const Call& send : calls) {
    if (!isSelf(send, Collective::kSend)) continue;
    while (nextReceive < calls.size() && !isSelf(calls[nextReceive], Collective::kRecv))
      ++nextReceive;
    if (nextReceive == calls.size()) return unpairedSelfTransfer(self, "send", "receive");
    const Call& receive = calls[nextReceive++];
    if (send.shape.count * sizeOf(send.shape.type) !=
        receive.shape.count * sizeOf(receive.shape.type)) {
      return invalidUsage("rank {} sends {} elements of {} to itself but receives {} of {}",
                          index(self), send.shape.count, name(send.shape.type), receive.shape.count,
                          name(receive.shape.type));
    }
    TUTTI_TRY_ASSIGN(BoundPlan * plan, planFor(send.shape));
    Call both = send;
    both.output = receive.output;
    operation.add(both, *plan, {});
  }
  for (; nextReceive < calls.size(); ++nextReceive) {
    if (isSelf(calls[nextReceive], Collective::kRecv))
      return unpairedSelfTransfer(self, "receive", "send");
  }
  return {};
}

Status Launcher::addCall(Operation& operation, const Call& call) {
  TUTTI_TRY_ASSIGN(BoundPlan * plan, planFor(call.shape));
  operation.add(call, *plan, nextMark(*plan));
  return {};
}

Status Launcher::addCalls(Operation& operation, std::span<const Call> calls) {
  if (calls.size() == 1 && !isPointToPoint(calls[0].shape.collective))
    return addCall(operation, calls[0]);
  for (const Call& call : calls) {
    if (!isPointToPoint(call.shape.collective)) TUTTI_TRY(addCall(operation, call));
  }
  const Rank self = parts_.planner.agreement().rank;
  for (const Call& call : calls) {
    if (isPointToPoint(call.shape.collective) && call.shape.peer != self)
      TUTTI_TRY(addCall(operation, call));
  }
  return addSelfTransfers(operation, calls);
}

Operation& Launcher::takeOperation() {
  if (Operation* spare = spare_.load(std::memory_order_acquire); spare != nullptr) {
    spare_.store(nullptr, std::memory_order_relaxed);
    return *spare;
  }
  if (freeOperations_ == nullptr) {
    operations_.push_back(std::make_unique<Operation>(*this));
    return *operations_.back();
  }
  Operation& operation = *freeOperations_;
  freeOperations_ = operation.nextFree_;
  return operation;
}

// By the thread that drove the operation.
void Launcher::giveBack(Operation& operation) {
  if (spare_.load(std::memory_order_relaxed) == nullptr) {
    spare_.store(&operation, std::memory_order_release);
    return;
  }
  std::lock_guard lock(mutex_);
  operation.nextFree_ = freeOperations_;
  freeOperations_ = &operation;
}

Result<device::Task*> Launcher::prepare(std::span<const Call> calls, bool isUsersGroup) {
  std::lock_guard lock(mutex_);
  if (!failure_.ok()) return failure_.clone();
  Operation& operation = takeOperation();
  const uint64_t number = prepared_.load(std::memory_order_relaxed);
  operation.reset(number);
  if (Status status = addCalls(operation, calls); !status.ok()) {
    operation.nextFree_ = freeOperations_;
    freeOperations_ = &operation;
    return status;
  }
  if (parts_.profiler != nullptr) operation.beginProfile(isUsersGroup);
  prepared_.store(number + 1, std::memory_order_release);
  return static_cast<device::Task*>(&operation);
}

void Launcher::cancel(device::Task* task) {
  std::lock_guard lock(mutex_);
  auto& operation = static_cast<Operation&>(*task);
  if (operation.profile_) operation.profile_->finish();
  prepared_.fetch_sub(1, std::memory_order_release);
  operation.nextFree_ = freeOperations_;
  freeOperations_ = &operation;
}

Status Launcher::failure() const {
  std::lock_guard lock(mutex_);
  return failure_.clone();
}

// Both under the mutex: a call that ends with another thread's error, as one that an abort ends,
// finds it told when it comes back from here, and is no success.
void Launcher::fail(const Status& status) {
  std::lock_guard lock(mutex_);
  if (!failure_.ok()) return;
  failure_ = status.clone();
  hasFailed_.store(true, std::memory_order_release);
}

bool Launcher::waitIdle(Nanoseconds bound, Clock& clock) {
  const Instant deadline = clock.now() + bound;
  for (;;) {
    const uint64_t completed = completed_.load(std::memory_order_seq_cst);
    if (completed == preparedCount()) return true;
    const Nanoseconds left = deadline - clock.now();
    if (left.count() <= 0) return false;
    waitingNext_.fetch_add(1, std::memory_order_seq_cst);
    const Nanoseconds most = fenceOthers() ? left : std::min(left, kUnfencedSleep);
    if (completed_.load(std::memory_order_seq_cst) == completed)
      sleepOn({.word = &completed_, .seen = completed}, most);
    waitingNext_.fetch_sub(1, std::memory_order_seq_cst);
  }
}

// Threads of this process that read this rank's buffers, which are the caller's again once the call
// has failed: until each is through with the message that it reads, however long it gets no CPU:
// it would crash on memory that is gone. None begins another, since the links are marked by now,
// and none waits for this rank with one half read. Those of other processes look at the mark when
// they have read.
void Launcher::awaitReaders(const Operation& operation) {
  LatePeers late(*parts_.recorder, parts_.clock, parts_.timeout);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (const Operation::Run& run : operation.runs_) {
    if (run.stage != Operation::Stage::kRunning || !run.variant->program) continue;
    for (const kernels::BoundOperand& link : run.variant->program->outgoing()) {
      while (wire::isBeingRead(*link.port) && late.mayWait({.rank = link.peer, .isHere = true})) {
      }
    }
  }
}

// Ranks that write to this one's output, which is the caller's again: until each is through with
// its message. None begins another, since the links are marked by now.
void Launcher::awaitWriters(Operation& operation) {
  LatePeers late(*parts_.recorder, parts_.clock, parts_.timeout);
  const auto mayWait = [&late](const kernels::BoundOperand& writer) {
    return late.mayWait({.rank = writer.peer, .isHere = writer.port->isSenderHere});
  };
  bool isFenced = false;
  for (Operation::Run& run : operation.runs_) {
    if (run.stage != Operation::Stage::kRunning) continue;
    run.execution.withdraw(mayWait);
    if (!run.execution.hasOffered()) continue;
    if (!std::exchange(isFenced, true)) fenceOthers();
    for (const kernels::BoundStep& step : run.variant->program->steps()) {
      for (const kernels::BoundOperand& source : kernels::BoundProgram::sources(step)) {
        while (source.port != nullptr && wire::isBeingWritten(*source.port) && mayWait(source)) {
        }
      }
    }
  }
}

// A GPU that still folds for a failed call: what its kernel touches is the library's own, and stays
// until it is through; so a GPU that is busy with others' work for long holds up nobody here.
void Launcher::awaitFolder() {
  if (parts_.folder == nullptr) return;
  const Instant deadline = parts_.clock.now() + std::chrono::milliseconds(200);
  while (!parts_.folder->isIdle() && parts_.clock.now() < deadline) ::sched_yield();
}

void Launcher::finish(Operation& operation, Status status) {
  const uint64_t number = operation.number_;
  if (!status.ok()) {
    for (Operation::Run& run : operation.runs_) {
      if (run.number != 0 && run.stage != Operation::Stage::kDone)
        parts_.recorder->end(run.number, observe::EntryState::kFailed);
    }
    watch_.advanced();
    parts_.links.markFault(wire::LinkFault::kAborted, watch_.parting());
    watch_.tellVerdict();
    awaitReaders(operation);
    awaitWriters(operation);
    awaitFolder();
    retire(observe::Life::kAborted);
    fail(status);
  }
  settle(parts_.links);
  if (operation.profile_) operation.profile_->finish();
  operation.crew_.reset();
  giveBack(operation);
  markDone(number);
}

}  // namespace tutti::launch
