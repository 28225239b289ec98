// In which form a run's messages go: what it may choose from, and how it begins.
#include <algorithm>
#include <cstring>

#include "base/units.h"
#include "launch/launcher.h"

namespace tutti::launch {
namespace {

// Shorter ones lose even where a trial may choose, as what may name memory takes longer: of 1 KiB
// by 4 ranks 3.3 us, by copies alone 2.8, of 4 KiB 4.6 and 4.5; by 8 1.3 and 1.2 of the time.
// All-reduce gains what it places in outputs (2 CPUs, model 167, 2026-11-23), but one-shot, which
// places nothing: of 4 KiB by 4 ranks 4.6 us, by copies alone 4.2, by 8 30.6 and 15.4 (2 CPUs of an
// AMD EPYC VM, 2026-11-24).
size_t sharedMinBytesOfCrowded(const BoundPlan& plan) {
  const Collective collective = plan.shape.collective;
  if (collective == Collective::kAllReduce && plan.own.plan.algorithm != "oneshot")
    return kernels::kSharedMinBytes;
  return isAmongAll(collective) ? 8_KiB : 16_KiB;
}

// Of a broadcast, by all who read, where ranks share CPUs. Mapped against copied: 4 ranks, 64 KiB
// 13 and 7.1 us, 128 KiB 20 and 14, 256 KiB 25 and 28; 8 ranks, 64 KiB 16 and 16, 128 KiB 25 and 34
// (2 CPUs, model 167, 2026-11-23).
constexpr size_t kCrowdedBroadcastMinBytes = 1_MiB;

// From this length on a message that names memory beats a copy, though its sender must wait for
// its readers: a turn of the scheduler each where ranks share CPUs. Where all ranks do the same, a
// trial says so; these are for one that only sends. Broadcast in place, mapped against copied, 2
// ranks: 4 KiB 0.71 and 0.56 us, 8 KiB 0.71 and 0.90 (Intel Xeon VM, 2026-11-21). Round trips,
// mapped over copied: 2 KiB 1.15 of the time, 3 KiB 1.02, 4 KiB 0.87 (model 207, 2026-11-23).
size_t sharedMinBytes(const BoundPlan& plan, bool isCrowded) {
  const Collective collective = plan.shape.collective;
  if (isCrowded) return sharedMinBytesOfCrowded(plan);
  if (isAmongAll(collective)) return kernels::kSharedMinBytes;
  return collective == Collective::kSend ? 4_KiB : 8_KiB;
}

// In elements.
size_t longestMessage(const schedule::Layout& layout) {
  return std::min(layout.pieceElements, layout.chunkElements);
}

// The plan's own links have mapped the segments, so they are worth it: a trial has no time to find
// out again.
void askAtOnce(BoundVariant& variant, const kernels::SharedBuffers& shared) {
  constexpr size_t kEnough = size_t{1} << 40;
  for (channel::Link* link : variant.outgoing) {
    wire::SegmentLedger* ledger = link->port().ledger;
    if (ledger == nullptr) continue;
    for (const wire::SharedSegment* segment : {&shared.input, &shared.output}) {
      if (segment->serial != 0) ledger->isWorthAsking(segment->serial, kEnough);
    }
  }
}

}  // namespace

// Without memory that peers map, one-shot is chosen by its price; others are tried for such memory
// alone.
bool Operation::hasChoice(const BoundPlan& plan) {
  const bool isOtherForAll = plan.other && plan.other->plan.algorithm == "oneshot";
  return isOtherForAll || plan.own.plan.isDirect || plan.own.plan.mayRefer;
}

// Whether any message is long enough to name memory instead of bringing it.
bool Operation::mayShare(const BoundPlan& plan) const {
  const size_t elementBytes = sizeOf(plan.shape.type);
  size_t longest = longestMessage(plan.own.plan.layout) * elementBytes;
  if (plan.other)
    longest = std::max(longest, longestMessage(plan.other->plan.layout) * elementBytes);
  // A network's references are for any memory, and for shorter messages.
  if (launcher_.parts_.links.hasMotors()) return longest >= kernels::kSharedMinBytes;
  const plan::Agreement& agreement = launcher_.parts_.planner.agreement();
  if (agreement.isCrowded() && plan.shape.collective == Collective::kBroadcast) {
    const auto ranks = static_cast<size_t>(agreement.rankCount);
    if (plan::vectorBytes(plan.shape, agreement.rankCount) * ranks < kCrowdedBroadcastMinBytes)
      return false;
  }
  return longest >= sharedMinBytes(plan, agreement.isCrowded());
}

// Where there is a choice, the plan's trial makes it. It is asked for every call of a plan with
// another algorithm, since ranks take that together; otherwise where its answer matters.
void Operation::chooseVariant(Run& run) {
  BoundPlan& plan = *run.plan;
  run.variant = &plan.own;
  if (plan.shape.isOnGpu) return;  // messages bring what they say
  const bool mayChoose =
      hasChoice(plan) || (isAmongAll(plan.shape.collective) && launcher_.parts_.segments.hasAny());
  if (!mayChoose || !launcher_.parts_.triesForms) return;
  run.isTried = true;
  run.turn = plan.forms.next();
  if (run.turn.form == FormTrial::Form::kOther) run.variant = &*plan.other;
}

void Operation::begin(Run& run) {
  const Call& call = run.call;
  const BoundVariant& variant = *run.variant;
  kernels::Binding binding;
  launcher_.bind(call, *run.plan, variant, run.signature, binding);
  binding.agrees = run.turn.agrees;
  if (variant.plan.isDirect && call.shape.collective == Collective::kAllToAll &&
      call.input == call.output) {
    // In place, a partner could find its chunk overwritten before it has read it: send from a copy.
    const size_t bytes =
        plan::vectorBytes(call.shape, launcher_.parts_.planner.agreement().rankCount);
    inputCopy_.resize(bytes);
    std::memcpy(inputCopy_.data(), call.input, bytes);
    binding.input = inputCopy_.data();
  }
  if (binding.gpu != nullptr) {
    if (run.turn.isMeasured) run.start = launcher_.parts_.clock.now();
    return run.execution.start(binding);
  }
  const bool copies = run.turn.form == FormTrial::Form::kCopy;
  // Who only sends finds copies cheap that its receivers pay for: there the trial has no say.
  const bool maps = !copies || !isAmongAll(call.shape.collective);
  const bool hasSegments = maps && launcher_.parts_.segments.hasAny();
  if (hasSegments || launcher_.parts_.links.hasMotors())
    binding.shared = findShared(run, binding, hasSegments);
  run.mapsOutput = binding.shared != nullptr && binding.shared->mapsOutput;
  // Where all have as much to receive, each is better off with its own: all-gather of 1 MiB by 2
  // ranks took 1.25 times as long when both copied everything, broadcast takes half (2026-11-21);
  // sends of 16 MiB both ways 1.15 to 1.2 (mapped, 2026-11-27).
  const size_t longest = longestMessage(variant.plan.layout) * sizeOf(call.shape.type);
  const size_t leastJoint =
      binding.shared != nullptr ? kernels::kDividedMinBytes : wire::kJointMinBytes;
  binding.isJoint = longest >= leastJoint && !isAmongAll(call.shape.collective) &&
                    !(call.shape.collective == Collective::kRecv && isExchange());
  binding.crew = crewFor(call.shape);
  binding.refers = !copies && variant.plan.mayRefer && refersByKernel(run, *run.variant);
  if (run.turn.isMeasured) run.start = launcher_.parts_.clock.now();
  if (variant.plan.networkOp)
    launcher_.parts_.links.beginReduction(call.shape.collective, call.shape.type,
                                          *variant.plan.networkOp);
  run.execution.start(binding);
}

// To wake helpers costs some us, so they are for what takes a hundred. What two ranks only move is
// better left in the caches of the cores that use it while it fits there: all-gather in place of 1
// MiB 45 us, with three helpers 68, of 8 MiB 600 and 540 (64 CPUs of an Intel Xeon VM, family 6,
// model 207, 2026-11-28).
bool Operation::wantsCrew(const plan::CallShape& shape) const {
  constexpr size_t kLeastBytes = 1_MiB;
  constexpr size_t kLeastBytesOfPair = 4_MiB;
  const Launcher::Parts& parts = launcher_.parts_;
  if (parts.crews == nullptr || parts.helpers <= 0) return false;
  const int32_t ranks = parts.planner.agreement().rankCount;
  const bool isPair = ranks == 2 && !isReduction(shape.collective);
  return plan::vectorBytes(shape, ranks) >= (isPair ? kLeastBytesOfPair : kLeastBytes);
}

kernels::Crew* Operation::crewFor(const plan::CallShape& shape) {
  const Launcher::Parts& parts = launcher_.parts_;
  if (!wantsCrew(shape)) return nullptr;
  if (crew_ == nullptr) crew_ = parts.crews->take(parts.helpers);
  return crew_.get();
}

// A group that both sends and receives.
bool Operation::isExchange() const {
  const auto has = [this](Collective wanted) {
    return std::ranges::any_of(
        runs_, [wanted](const Run& run) { return run.call.shape.collective == wanted; });
  };
  return runs_.size() > 1 && has(Collective::kSend) && has(Collective::kRecv);
}

// Whether this call's messages can be references that processes read, where its plan may have them.
bool Operation::refersByKernel(const Run& run, BoundVariant& variant) {
  const Call& call = run.call;
  const bool inPlace = call.input == call.output;
  if (call.shape.collective == Collective::kAllToAll) return !isCopyOnly(call.shape, inPlace);
  if (&variant == &run.plan->own) return true;
  const std::vector<uint8_t>& steps = mappedSteps(*run.plan, variant, inPlace).referable;
  return !steps.empty() && std::ranges::find(steps, 0) == steps.end();
}

// And of memory that peers map.
bool Operation::isLong(const Run& run) const {
  constexpr size_t kLeastBytes = 1_MiB;
  const kernels::SharedBuffers* shared = run.execution.binding().shared;
  const int32_t ranks = launcher_.parts_.planner.agreement().rankCount;
  return shared != nullptr && (shared->input.serial != 0 || shared->output.serial != 0) &&
         plan::vectorBytes(run.call.shape, ranks) >= kLeastBytes;
}

FormTrial::Outcome Operation::endTurn(Run& run) {
  BoundPlan& plan = *run.plan;
  FormTrial::Outcome outcome{
      .couldRefer = run.execution.hasReferred(),
      .isMapped = !run.execution.isUnmapped(),
      .isAgreed = run.execution.isAgreed(),
      .isLong = isLong(run),
      .isCopyOnly = isCopyOnly(run.call.shape, run.call.input == run.call.output)};
  const bool isOwn = run.variant == &plan.own;
  // The trial begins when both buffers are mapped: it is about what can be done then.
  if (run.mapsOutput && isOwn) {
    const bool isInPlace = run.call.input == run.call.output;
    outcome.couldRefer = run.execution.hasMappedOutput() && (outcome.couldRefer || isInPlace);
  }
  if (run.turn.isMeasured) {
    outcome.spent = launcher_.measured(plan, run.start);
    outcome.at = plan.lastEnd;
  }
  if (!outcome.couldRefer && !run.mapsOutput && isOwn && plan.other && plan.other->plan.mayRefer)
    outcome.couldRefer = refersByKernel(run, *plan.other);
  plan.forms.ended(outcome);
  return outcome;
}

const plan::MappedSteps& Operation::mappedSteps(const BoundPlan& plan, BoundVariant& variant,
                                                bool inPlace) {
  auto& steps = variant.mappedSteps[inPlace ? 1 : 0];
  if (!steps) steps = launcher_.parts_.planner.mappedSteps(plan.shape, variant.plan, inPlace);
  return *steps;
}

// Which of the call's buffers peers can map, and that a network sends from any; null where neither,
// or where it would gain nothing.
const kernels::SharedBuffers* Operation::findShared(Run& run, const kernels::Binding& binding,
                                                    bool hasSegments) {
  const plan::CallShape& shape = run.call.shape;
  const plan::Agreement& agreement = launcher_.parts_.planner.agreement();
  const plan::BufferBytes bytes = plan::bufferBytes(shape, agreement);
  if (!mayShare(*run.plan)) return nullptr;
  kernels::SharedBuffers shared;
  shared.minBytes = sharedMinBytes(*run.plan, agreement.isCrowded());
  if (hasSegments) {
    shared.input = launcher_.parts_.segments.find(binding.input, bytes.input);
    shared.output = launcher_.parts_.segments.find(binding.output, bytes.output);
  }
  if (shared.input.serial == 0 && shared.output.serial == 0) {
    shared.minBytes = wire::kLandingMinBytes;
    const size_t elementBytes = sizeOf(shape.type);
    if (run.variant->plan.layout.pieceElements * elementBytes < shared.minBytes) return nullptr;
    if (!launcher_.parts_.links.hasMotors()) return nullptr;
  }
  const bool inPlace =
      binding.input < binding.output + bytes.output && binding.output < binding.input + bytes.input;
  const plan::MappedSteps& steps = mappedSteps(*run.plan, *run.variant, inPlace);
  shared.referableSteps = steps.referable;
  shared.answeredSteps = steps.answered;
  if (run.variant != &run.plan->own) askAtOnce(*run.variant, shared);
  // A failed call must be able to wait for who writes.
  const bool mayOffer = !steps.placements.placed.empty();
  if (shared.output.serial != 0 && mayOffer && canFenceOthers()) {
    shared.placements = &steps.placements;
    const bool isPlacedInOther = run.plan->other && shape.collective == Collective::kAllReduce;
    shared.mapsOutput = isPlacedInOther || std::ranges::find(steps.placements.placed, 1) !=
                                               steps.placements.placed.end();
  }
  if (sharedCount_ == sharedBuffers_.size()) sharedBuffers_.emplace_back();
  sharedBuffers_[sharedCount_] = shared;
  return &sharedBuffers_[sharedCount_++];
}

}  // namespace tutti::launch
