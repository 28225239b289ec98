// Calls that go as the last one of their plan and form did.
#include <utility>

#include "launch/launcher.h"

namespace tutti::launch {

bool isAmongAll(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll: return true;
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kSend:
    case Collective::kRecv: return false;
  }
  return false;
}

bool isCopyOnly(const plan::CallShape& shape, bool inPlace) {
  return inPlace && shape.collective == Collective::kAllToAll;
}

void Recall::applyTo(kernels::Binding& binding) const {
  binding.shared = isShared ? &shared : nullptr;
  binding.refers = refers;
  binding.isJoint = isJoint;
}

// What the trial says of this call, where it has one.
Recalled Launcher::findRecall(const Repeat& call, BoundPlan& plan) const {
  const FormTrial::Turn turn = plan.forms.next();
  Recall& recall = plan.recalls[static_cast<size_t>(turn.form)];
  if (!recall.fits(call.input, call.output, parts_.segments.generation())) return {};
  if (!recall.isTried) return {.recall = &recall};
  if (plan.forms.isWatching()) return {};
  return {
      .recall = &recall, .turn = turn, .start = turn.isMeasured ? parts_.clock.now() : Instant()};
}

// The same buffers as the last one's: where it went so, too, all of it is bound.
kernels::Execution& Launcher::startRecalled(const Repeat& call, const Begin& begin) {
  BoundPlan& plan = *begin.plan;
  const Recall& recall = *begin.recalled.recall;
  kernels::Binding& binding = recalled_.binding();
  if (std::exchange(bound_, &recall) == &recall) [[likely]] {
    alignLinks(plan, *recall.variant);
    binding.agrees = begin.recalled.turn.agrees;
    recalled_.restart({.input = static_cast<const std::byte*>(call.input),
                       .output = static_cast<std::byte*>(call.output),
                       .signature = signatureOf(plan, *recall.variant, begin.mark.signature)});
    return recalled_;
  }
  bind({.shape = plan.shape, .input = call.input, .output = call.output}, plan, *recall.variant,
       begin.mark.signature, binding);
  recall.applyTo(binding);
  binding.agrees = begin.recalled.turn.agrees;
  recalled_.start();
  return recalled_;
}

// Of a call that was recalled. One that could not refer where the last one could is not gone by
// again.
void Launcher::endedAtOnce(BoundPlan& plan, const Recalled& recalled,
                           const kernels::Execution& execution) {
  Recall* recall = recalled.recall;
  const bool isSame = execution.hasReferred() == recall->hasReferred;
  if (recall->isTried) {
    const FormTrial::Turn& turn = recalled.turn;
    FormTrial::Outcome outcome{
        .couldRefer = isSame && recall->couldRefer,
        .isAgreed = execution.isAgreed(),
        .isCopyOnly = isCopyOnly(plan.shape, recall->input == recall->output)};
    if (turn.isMeasured) {
      outcome.spent = measured(plan, recalled.start);
      outcome.at = plan.lastEnd;
    }
    plan.forms.ended(outcome);
  }
  if (!isSame) recall->variant = nullptr;
}

// What one call took. A rank that comes last finds its messages there, call after call, and its
// peer waits as much longer: where calls follow each other at once, what counts is their distance,
// which both see; but not where a rank has other calls in between. By their own times ranks kept
// copies for an all-gather of 4 KiB, 0.80 us where references take 0.65 (2 ranks, Intel Xeon VM,
// 2026-11-23). Of a send always the distance, whatever comes between: a copy's sender does not see
// the receiver's half, which is a third of the time or most of it (AMD EPYC, Intel Xeon VM).
Nanoseconds Launcher::measured(BoundPlan& plan, Instant start) const {
  const Instant end = parts_.clock.now();
  const Nanoseconds own = end - start;
  const Instant before = std::exchange(plan.lastEnd, end);
  if (isAmongAll(plan.shape.collective)) return start - before <= own ? end - before : own;
  const bool isSend = plan.shape.collective == Collective::kSend;
  return isSend && before != Instant() ? end - before : own;
}

// Of a call that could have run at once.
void Operation::keepRecall(Run& run, bool couldRefer) {
  BoundPlan& plan = *run.plan;
  const kernels::Binding& binding = run.execution.binding();
  const bool isOwnInput = binding.input == run.call.input;  // not a copy of it
  if (run.isTried && plan.forms.isWatching()) return;
  // Bare, by the trial's answer: it says nothing of the form that its turn names.
  const bool hasTrial = isAmongAll(plan.shape.collective) || hasChoice(plan);
  if (!run.isTried && hasTrial && launcher_.parts_.triesForms) return;
  if (!plan.mayRunAtOnce || !isOwnInput || launcher_.parts_.links.hasMotors()) return;
  launcher_.bound_ = nullptr;
  // A call that was recalled, and goes on as an operation, uses what is written here.
  const auto shared = binding.shared != nullptr ? *binding.shared : kernels::SharedBuffers();
  plan.recalls[static_cast<size_t>(run.turn.form)] = {
      .variant = run.variant,
      .input = run.call.input,
      .output = run.call.output,
      .segments = launcher_.parts_.segments.generation(),
      .shared = shared,
      .isShared = binding.shared != nullptr,
      .refers = binding.refers,
      .isJoint = binding.isJoint,
      .isTried = run.isTried,
      .hasReferred = run.execution.hasReferred(),
      .couldRefer = couldRefer};
}

}  // namespace tutti::launch
