// Calls that are run at once in the thread that makes them: most short ones, which need neither
// operation nor device. They go by what the last call of their shape has left.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "base/uncancelled.h"
#include "launch/launcher.h"

namespace tutti::launch {
namespace {

// Looks at a network at most, when a call is run at once: each is a system call.
constexpr uint32_t kNetworkLooks = 32;

Result<Progress> pollWithMotors(kernels::Execution& execution, channel::LinkSet& links,
                                uint32_t looks) {
  const Uncancelled held;
  for (uint32_t look = 0; look < std::min(looks, kNetworkLooks); ++look) {
    TUTTI_TRY_ASSIGN(const Progress progress, execution.poll());
    if (progress == Progress::kDone) {
      links.settleMotors();
      return Progress::kDone;
    }
    if (progress == Progress::kIdle) {
      links.runMotors();
    } else {
      links.runSenders();
    }
  }
  return Progress::kIdle;
}

// These two leave an error to the operation, which comes upon it again and tells it.
bool endsWithMotors(kernels::Execution& execution, channel::LinkSet& links, uint32_t looks) {
  try {
    Result<Progress> progress = pollWithMotors(execution, links, looks);
    return progress.ok() && *progress == Progress::kDone;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

inline bool endsWithin(kernels::Execution& execution, uint32_t looks) {
  try {
    return execution.runAtOnce(looks);
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace

Operation::Mark Launcher::nextMark(const BoundPlan& plan) {
  const uint64_t sequence = channel::isCollective(plan.lane) ? ++collectiveSequence_ : 0;
  return {.signature = callSignature(plan.own.plan.signature, sequence), .sequence = sequence};
}

// With an operation in the pool, since nothing may fail once the call has begun.
BoundPlan* Launcher::findRunnableAtOnce(uint64_t kind, uint64_t count) {
  const bool isFree =
      spare_.load(std::memory_order_acquire) != nullptr || freeOperations_ != nullptr;
  const bool isNext = completed_.load(std::memory_order_acquire) == preparedCount();
  if (!isFree || !isNext || !failure_.ok() || watch_.hasVerdict()) return nullptr;
  BoundPlan* plan = recentPlan(kind, count);
  if (!isOf(plan, kind, count) || !plan->mayRunAtOnce) return nullptr;
  // What a network sends from the program's memory, and puts there.
  if (parts_.links.hasMotors() && (plan->mayShare || plan->hasChoice)) return nullptr;
  return plan;
}

// Whether the call needs no operation while it runs.
bool Launcher::isBare(const BoundPlan& plan) const {
  if (plan.hasChoice) return false;
  if (!plan.mayShare || !parts_.segments.hasAny()) return true;
  // The trial has found that copies are faster.
  return plan.forms.keepsCopies();
}

// Without a plan where it cannot, or has a choice to make; nothing has happened then.
Launcher::Begin Launcher::beginAgain(const Repeat& call) {
  const std::lock_guard lock(mutex_);
  BoundPlan* plan = findRunnableAtOnce(call.kind, call.count);
  if (plan == nullptr) return {};
  Recalled recalled;
  if (!isBare(*plan)) {
    recalled = findRecall(call, *plan);
    if (recalled.recall == nullptr) return {};
  }
  return beginAtOnce(*plan, recalled);
}

// REQUIRES: mutex_ is held.
Launcher::Begin Launcher::beginAtOnce(BoundPlan& plan, const Recalled& recalled) {
  const uint64_t number = prepared_.load(std::memory_order_relaxed);
  prepared_.store(number + 1, std::memory_order_release);
  return {.plan = &plan, .mark = nextMark(plan), .number = number, .recalled = recalled};
}

kernels::Execution& Launcher::startBare(const Repeat& call, const Begin& begin) {
  BoundPlan& plan = *begin.plan;
  if (plan.isBareBound) [[likely]] {
    alignLinks(plan, plan.own);
    plan.bare.restart({.input = static_cast<const std::byte*>(call.input),
                       .output = static_cast<std::byte*>(call.output),
                       .signature = begin.mark.signature});
    return plan.bare;
  }
  bind({.shape = plan.shape, .input = call.input, .output = call.output}, plan, plan.own,
       begin.mark.signature, plan.bare.binding());
  plan.bare.start();
  plan.isBareBound = true;
  return plan.bare;
}

bool Launcher::endsAtOnce(kernels::Execution& execution, Collective collective, uint32_t looks) {
  if (parts_.links.hasMotors()) [[unlikely]]
    return endsWithMotors(execution, parts_.links, looks);
  return looks == 1 ? endsInTurns(execution, collective) : endsWithin(execution, looks);
}

Launcher::Again Launcher::runAgain(const Repeat& call, uint32_t looks) {
  const Begin begin = beginAgain(call);
  if (begin.plan == nullptr) return {};
  BoundPlan& plan = *begin.plan;
  const bool isBare = begin.recalled.recall == nullptr;
  const uint64_t recorded = record(plan, begin.mark.sequence);
  kernels::Execution& execution = isBare ? startBare(call, begin) : startRecalled(call, begin);
  if (!endsAtOnce(execution, plan.shape.collective, looks)) {
    const Call whole{.shape = plan.shape, .input = call.input, .output = call.output};
    return {.ran = Ran::kGoesOn, .rest = &goOnWith(whole, begin, recorded, execution)};
  }
  if (isBare) {
    plan.forms.endedAtOnce();
  } else {
    endedAtOnce(plan, begin.recalled, execution);
  }
  parts_.recorder->end(recorded, observe::EntryState::kDone);
  watch_.advanced();
  markDone(begin.number);
  return {.ran = Ran::kDone};
}

// What has not ended goes on as an operation.
Operation& Launcher::goOnWith(const Call& call, const Begin& begin, uint64_t recorded,
                              const kernels::Execution& execution) {
  std::lock_guard lock(mutex_);
  Operation& operation = takeOperation();
  operation.reset(begin.number);
  if (begin.recalled.recall == nullptr) {
    begin.plan->forms.endedAtOnce();
    begin.plan->isBareBound = false;
  } else {
    bound_ = nullptr;
  }
  operation.goOnWith({.call = call,
                      .plan = *begin.plan,
                      .mark = begin.mark,
                      .number = recorded,
                      .recalled = begin.recalled,
                      .execution = execution});
  return operation;
}

Result<device::Task*> Launcher::runAtOnce(const Call& call, uint32_t looks) {
  const uint64_t kind = kindOf(call.shape);
  const uint64_t count = call.shape.count;
  if (looks > 0 && call.shape.op != ReduceOp::kPreMulSum) {
    const Again again =
        runAgain({.kind = kind, .count = count, .input = call.input, .output = call.output}, looks);
    if (again.ran != Ran::kNot) return again.rest;
  }
  const Uncancelled held;
  std::unique_lock lock(mutex_);
  BoundPlan* plan = looks > 0 ? findRunnableAtOnce(kind, count) : nullptr;
  if (plan == nullptr) {
    lock.unlock();
    return prepare({&call, 1}, false);
  }
  const Begin begin = beginAtOnce(*plan, {});
  Operation& operation = takeOperation();
  lock.unlock();
  operation.reset(begin.number);
  operation.add(call, *plan, begin.mark);
  return runAtOnce(operation, looks);
}

// What has a choice to make goes as an operation, without a device that drives it.
device::Task* Launcher::runAtOnce(Operation& operation, uint32_t looks) {
  operation.looks = looks;
  Result<Progress> progress = operation.poll();
  operation.looks = 1;
  if (!progress.ok() || *progress != Progress::kDone) return &operation;
  operation.complete({});
  return nullptr;
}

// Rooted calls run ahead of their receivers until a link is full, and where ranks share CPUs each
// such stop is a turn of the scheduler. Links that calls of another program have used, some more
// than others, would be full at different times: broadcast of 64 B to 7 processes on 2 CPUs took
// 1.1 times as long (Intel Xeon VM, 2026-11-22). So each rank gives all back before it begins
// another program than the last; nobody waits for that.
void Launcher::alignLinks(const BoundPlan& plan, const BoundVariant& variant) {
  if (!channel::isCollective(plan.lane) || !parts_.planner.agreement().isCrowded()) return;
  const schedule::Program* program = variant.plan.program.get();
  if (std::exchange(lastProgram_, program) == program) return;
  for (const kernels::BoundStep& step : variant.program->steps()) {
    for (const kernels::BoundOperand& source : kernels::BoundProgram::sources(step)) {
      if (source.port != nullptr) wire::releaseAll(*source.port);
    }
  }
}

void Launcher::bind(const Call& call, const BoundPlan& plan, const BoundVariant& variant,
                    uint32_t signature, kernels::Binding& binding) {
  alignLinks(plan, variant);
  binding.program = &*variant.program;
  binding.input = static_cast<const std::byte*>(call.input);
  binding.output = static_cast<std::byte*>(call.output);
  binding.signature = signatureOf(plan, variant, signature);
  binding.preScale = call.preScale;
  if (call.preScaleAddress != nullptr) [[unlikely]]
    std::memcpy(binding.preScale.bytes, call.preScaleAddress, sizeOf(call.shape.type));
  binding.scratch = &scratch_;
  binding.shared = nullptr;
  binding.refers = false;
  binding.agrees = false;
  binding.streams = plan.streams;
  binding.isJoint = false;
  binding.crew = nullptr;
  binding.gpu = plan.shape.isOnGpu ? parts_.folder : nullptr;
  binding.outbox = outbox_ && channel::isCollective(plan.lane) ? &*outbox_ : nullptr;
}

}  // namespace tutti::launch
