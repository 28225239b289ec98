// Calls that go as the last of their plan did.
#include "launch/launcher.h"

namespace tutti::launch {

void Recall::applyTo(kernels::Binding& binding) const {
  binding.shared = isShared ? &shared : nullptr;
  binding.refers = refers;
  binding.isJoint = isJoint;
  binding.agrees = turn.agrees;
}

bool Launcher::recalls(const Call& call, const BoundPlan& plan) const {
  return plan.recall.fits(call, parts_.segments.generation(), plan.forms);
}

// The trial hears of each call. One that could not refer where the last one could is not gone by
// again.
void Launcher::endedAtOnce(BoundPlan& plan, const Recall* recall,
                           const kernels::Execution& execution) {
  if (recall == nullptr) {
    plan.forms.endedAtOnce();
    return;
  }
  const bool isSame = execution.hasReferred() == recall->hasReferred;
  if (recall->isTried)
    plan.forms.ended(
        {.couldRefer = isSame && recall->couldRefer, .isAgreed = execution.isAgreed()});
  if (!isSame) plan.recall.variant = nullptr;
}

// Of a call that could have run at once, and did not choose.
void Operation::keepRecall(Run& run, bool couldRefer) {
  BoundPlan& plan = *run.plan;
  const kernels::Binding& binding = run.execution.binding();
  const bool isOwnInput = binding.input == run.call.input;  // not a copy of it
  const bool isSettled = !run.isTried || (plan.forms.isKept() && !run.turn.isMeasured);
  if (!isSettled || !plan.mayRunAtOnce || !isOwnInput || launcher_.parts_.links.hasMotors()) return;
  plan.recall = {.variant = run.variant,
                 .input = run.call.input,
                 .output = run.call.output,
                 .segments = launcher_.parts_.segments.generation(),
                 .shared = {},
                 .isShared = binding.shared != nullptr,
                 .refers = binding.refers,
                 .isJoint = binding.isJoint,
                 .isTried = run.isTried,
                 .turn = run.turn,
                 .hasReferred = run.execution.hasReferred(),
                 .couldRefer = couldRefer};
  if (binding.shared != nullptr) plan.recall.shared = *binding.shared;
}

}  // namespace tutti::launch
