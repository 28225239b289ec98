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

// An error is left to the operation, which comes upon it again and tells it.
bool endsWithin(kernels::Execution& execution, channel::LinkSet& links, uint32_t looks) {
  try {
    Result<Progress> progress =
        links.hasMotors() ? pollWithMotors(execution, links, looks) : execution.poll(looks);
    return progress.ok() && *progress == Progress::kDone;
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
BoundPlan* Launcher::findRunnableAtOnce(const Call& call) {
  const bool isFree =
      spare_.load(std::memory_order_acquire) != nullptr || freeOperations_ != nullptr;
  const bool isNext = completed_.load(std::memory_order_acquire) == preparedCount();
  if (!isFree || !isNext || !failure_.ok() || watch_.hasVerdict()) return nullptr;
  const uint64_t kind = kindOf(call.shape);
  BoundPlan* plan = recentPlan(kind, call.shape.count);
  if (!isOf(plan, kind, call.shape.count) || !plan->mayRunAtOnce) return nullptr;
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

// False: it cannot run now; nothing has happened.
bool Launcher::beginAtOnce(const Call& call, Begin& begin) {
  std::lock_guard lock(mutex_);
  BoundPlan* plan = findRunnableAtOnce(call);
  if (plan == nullptr) return false;
  begin.plan = plan;
  begin.mark = nextMark(*plan);
  begin.number = prepared_.load(std::memory_order_relaxed);
  if (!isBare(*plan)) {
    begin.recalled = findRecall(call, *plan);
    if (begin.recalled.recall == nullptr) begin.chosen = &takeOperation();
  }
  prepared_.store(begin.number + 1, std::memory_order_release);
  return true;
}

kernels::Execution& Launcher::startAtOnce(const Call& call, const Begin& begin) {
  BoundPlan& plan = *begin.plan;
  if (const Recall* recall = begin.recalled.recall; recall != nullptr) {
    bind(call, plan, *recall->variant, begin.mark.signature, recalled_.binding());
    recall->applyTo(recalled_.binding());
    recalled_.binding().agrees = begin.recalled.turn.agrees;
    recalled_.start();
    return recalled_;
  }
  if (plan.isBareBound) [[likely]] {
    alignLinks(plan, plan.own);
    bindCall(call, begin.mark.signature, plan.bare.binding());
    plan.bare.restart();
  } else {
    bind(call, plan, plan.own, begin.mark.signature, plan.bare.binding());
    plan.bare.start();
    plan.isBareBound = true;
  }
  return plan.bare;
}

bool Launcher::endsAtOnce(kernels::Execution& execution, Collective collective, uint32_t looks) {
  return looks == 1 && !parts_.links.hasMotors() ? endsInTurns(execution, collective)
                                                 : endsWithin(execution, parts_.links, looks);
}

Result<device::Task*> Launcher::runAtOnce(const Call& call, uint32_t looks) {
  Begin begin;
  if (looks == 0 || !beginAtOnce(call, begin)) {
    const Uncancelled held;
    return prepare({&call, 1}, false);
  }
  BoundPlan& plan = *begin.plan;
  if (begin.chosen != nullptr) {
    const Uncancelled held;
    begin.chosen->reset(begin.number);
    begin.chosen->add(call, plan, begin.mark);
    return runAtOnce(*begin.chosen, looks);
  }
  begin.recorded = record(plan, begin.mark.sequence);
  kernels::Execution& execution = startAtOnce(call, begin);
  if (!endsAtOnce(execution, call.shape.collective, looks)) return goOnWith(call, begin, execution);
  if (begin.recalled.recall == nullptr) {
    plan.forms.endedAtOnce();
  } else {
    endedAtOnce(plan, begin.recalled, execution);
  }
  parts_.recorder->end(begin.recorded, observe::EntryState::kDone);
  watch_.advanced();
  markDone(begin.number);
  return static_cast<device::Task*>(nullptr);
}

// What has not ended goes on as an operation.
device::Task* Launcher::goOnWith(const Call& call, const Begin& begin,
                                 const kernels::Execution& execution) {
  std::lock_guard lock(mutex_);
  Operation& operation = takeOperation();
  operation.reset(begin.number);
  if (begin.recalled.recall == nullptr) {
    begin.plan->forms.endedAtOnce();
    begin.plan->isBareBound = false;
  }
  operation.goOnWith({.call = call,
                      .plan = *begin.plan,
                      .mark = begin.mark,
                      .number = begin.recorded,
                      .recalled = begin.recalled,
                      .execution = execution});
  return &operation;
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
  // All ranks take the same variant.
  const uint32_t own = &variant == &plan.own ? signature : signature ^ variant.plan.signature;
  bindCall(call, own, binding);
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

// What each call brings.
void Launcher::bindCall(const Call& call, uint32_t signature, kernels::Binding& binding) {
  binding.input = static_cast<const std::byte*>(call.input);
  binding.output = static_cast<std::byte*>(call.output);
  binding.signature = signature;
  binding.preScale = call.preScale;
  if (call.preScaleAddress != nullptr) [[unlikely]]
    std::memcpy(binding.preScale.bytes, call.preScaleAddress, sizeOf(call.shape.type));
}

}  // namespace tutti::launch
