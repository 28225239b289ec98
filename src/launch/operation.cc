// What the driver polls: the calls of one prepare(), from their plans to their ends.
#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/futex.h"
#include "base/units.h"
#include "launch/launcher.h"

namespace tutti::launch {
namespace {

// A run of a rank's motors is some system calls, each worth as many polls of memory.
constexpr uint32_t kMotorsCost = 64;

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

Operation::Operation(Launcher& launcher) : launcher_(launcher) {
  home = &launcher.home_;
  runs_.reserve(1);
  if (observe::Profiler* profiler = launcher.parts_.profiler; profiler != nullptr) {
    profile_.emplace(OperationProfile::Parts{
        .profiler = *profiler, .links = launcher.parts_.links, .clock = launcher.parts_.clock});
  }
}

void Operation::reset(uint64_t number) {
  number_ = number;
  finishedRuns_ = 0;
  sharedCount_ = 0;
  runs_.clear();
}

// A run waits for the last collective before it and, on a link of its own, for the last transfer
// over that link.
int32_t Operation::runBefore(const Call& call) const {
  for (size_t i = runs_.size(); i-- > 0;) {
    const Run& earlier = runs_[i];
    const bool sameLink = earlier.call.shape.collective == call.shape.collective &&
                          earlier.call.shape.peer == call.shape.peer;
    if (channel::isCollective(earlier.plan->lane) || sameLink) return static_cast<int32_t>(i);
  }
  return -1;
}

void Operation::add(const Call& call, BoundPlan& plan, const Mark& mark) {
  const int32_t after = runBefore(call);
  Run& run = runs_.emplace_back();
  run.call = call;
  run.plan = &plan;
  run.signature = mark.signature;
  run.sequence = mark.sequence;
  run.after = after;
}

void Operation::goOnWith(const Begun& begun) {
  add(begun.call, begun.plan, begun.mark);
  Run& run = runs_.back();
  run.variant = &begun.plan.own;
  run.number = begun.number;
  run.stage = Stage::kRunning;
  run.execution = begun.execution;
  const Recall* recall = begun.recalled.recall;
  if (recall == nullptr) return;
  run.variant = recall->variant;
  run.isTried = recall->isTried;
  run.turn = begun.recalled.turn;
  run.start = begun.recalled.start;
  run.mapsOutput = recall->isShared && recall->shared.mapsOutput;
}

void Operation::beginProfile(bool isUsersGroup) {
  profile_->beginGroup(runs_.size(), isUsersGroup);
  for (const Run& run : runs_) profile_->addCall(run.call, run.plan->own.plan, run.sequence);
}

void Operation::profileStart(const Run& run) {
  const BoundVariant& variant = *run.variant;
  profile_->start(
      numberOf(run),
      {.program = *variant.plan.program, .bound = *variant.program, .lane = run.plan->lane});
}

// Its first polls plan and open links, which takes memory.
Result<Progress> Operation::poll() {
  try {
    return pollRuns();
  } catch (const std::bad_alloc&) {
    return Status::outOfMemory();
  }
}

Result<Progress> Operation::pollRuns() {
  if (launcher_.completed_.load(std::memory_order_acquire) != number_) return Progress::kIdle;
  if (launcher_.hasFailed()) return launcher_.failure();
  channel::LinkSet& links = launcher_.parts_.links;
  Progress overall = Progress::kIdle;
  if (links.hasMotors()) {
    pollCost = kMotorsCost;
    looks = 1;
  }
  for (Run& run : runs_) {
    if (run.stage == Stage::kDone) continue;
    Result<Progress> progress = pollRun(run);
    if (!progress.ok()) return explain(run, progress.takeStatus());
    if (*progress != Progress::kIdle) overall = Progress::kAdvanced;
    if (*progress == Progress::kDone) ++finishedRuns_;
  }
  // A look at the network is a system call: only where the runs have nothing else to do.
  if (links.hasMotors()) {
    if (overall != Progress::kIdle) {
      links.runSenders();
    } else if (links.runMotors()) {
      overall = Progress::kAdvanced;
    }
  }
  if (overall != Progress::kIdle) launcher_.watch_.advanced();
  return finishedRuns_ == runs_.size() ? Progress::kDone : overall;
}

Result<Progress> Operation::pollRun(Run& run) {
  if (run.stage == Stage::kQueued) {
    if (run.after >= 0 && runs_[static_cast<size_t>(run.after)].stage != Stage::kDone)
      return Progress::kIdle;
    run.number = launcher_.record(*run.plan, run.sequence);
    TUTTI_TRY(launcher_.watch_.verdict());
    // Nothing to move: no links either. A rank that is through with it may leave, and a peer would
    // find the link that it was offered withdrawn.
    if (run.plan->own.plan.layout.pieceCount == 0) return finishRun(run);
    chooseVariant(run);
    if (!run.variant->isConnected) TUTTI_TRY(openLinks(run));
    run.stage = Stage::kConnecting;
  }
  if (run.stage == Stage::kConnecting) {
    if (!run.variant->isConnected) {
      TUTTI_TRY_ASSIGN(const Progress connected, connectLinks(*run.variant));
      if (connected != Progress::kDone) return Progress::kIdle;
      run.plan->mayRunAtOnce = mayRunAtOnce(*run.plan);
      run.plan->hasChoice = hasChoice(*run.plan);
      run.plan->mayShare = mayShare(*run.plan);
    }
    begin(run);
    if (profile_) [[unlikely]]
      profileStart(run);
    run.stage = Stage::kRunning;
  }
  TUTTI_TRY_ASSIGN(const Progress progress, run.execution.poll(looks));
  return progress == Progress::kDone ? finishRun(run) : progress;
}

Progress Operation::finishRun(Run& run) {
  run.stage = Stage::kDone;
  const bool couldRefer = run.isTried && endTurn(run).couldRefer;
  if (runs_.size() == 1) keepRecall(run, couldRefer);
  if (profile_) [[unlikely]]
    profile_->end(numberOf(run));
  launcher_.parts_.recorder->end(run.number, observe::EntryState::kDone);
  return Progress::kDone;
}

// Links are opened, and memory mapped, without the peers: an error there is none of theirs.
Status Operation::explain(const Run& run, Status error) {
  std::vector<int32_t> peers;
  const bool isOurs = run.stage == Stage::kQueued || error.code() == Code::kSystemError;
  if (isOurs) return launcher_.watch_.explain(std::move(error), run.number, peers);
  const schedule::Program& program = *run.variant->plan.program;
  const channel::LinkSet& links = launcher_.parts_.links;
  for (const auto* each : {&program.receivesFrom, &program.sendsTo}) {
    for (const Rank peer : *each) {
      if (!links.isNetwork(peer)) peers.push_back(index(peer));
    }
  }
  return launcher_.watch_.explain(std::move(error), run.number, peers);
}

// Makes the links of a new plan, and with them the program that its calls run.
Status Operation::openLinks(Run& run) {
  BoundVariant& plan = *run.variant;
  if (plan.program) return {};
  channel::LinkSet& links = launcher_.parts_.links;
  const schedule::Program& program = *plan.plan.program;
  std::vector<wire::LinkPort*> incoming;
  std::vector<wire::LinkPort*> outgoing;
  const kernels::UsedLinks used = kernels::usedLinks(program, plan.plan.layout);
  for (size_t i = 0; i < program.receivesFrom.size(); ++i) {
    incoming.push_back(nullptr);
    if (!used.incoming[i]) continue;
    TUTTI_TRY_ASSIGN(channel::Link * link, links.incoming(program.receivesFrom[i], run.plan->lane));
    incoming.back() = &link->port();
  }
  plan.outgoing.clear();
  for (size_t i = 0; i < program.sendsTo.size(); ++i) {
    outgoing.push_back(nullptr);
    if (!used.outgoing[i]) continue;
    plan.outgoing.push_back(&links.outgoing(program.sendsTo[i], run.plan->lane));
    outgoing.back() = &plan.outgoing.back()->port();
  }
  const plan::CallShape& shape = run.plan->shape;
  plan.program.emplace(kernels::ProgramParts{
      .program = program,
      .incoming = incoming,
      .outgoing = outgoing,
      .layout = plan.plan.layout,
      .fold = {.type = shape.type,
               .op = isReduction(shape.collective) ? shape.op : ReduceOp::kSum,
               .rankCount = launcher_.parts_.planner.agreement().rankCount},
      .isDirect = plan.plan.isDirect,
      .mayRefer = plan.plan.mayRefer});
  launcher_.scratch_.reserve(plan.program->operandLimit());
  return {};
}

// Not what a group must pair first, nor what takes many turns, nor what is profiled: its operation
// tells. REQUIRES: the plan's links are connected.
bool Operation::mayRunAtOnce(const BoundPlan& plan) const {
  const plan::CallShape& shape = plan.shape;
  const bool isOwn =
      !channel::isCollective(plan.lane) && shape.peer == launcher_.parts_.planner.agreement().rank;
  return !profile_ && !isOwn && !shape.isOnGpu && plan.own.plan.layout.pieceCount == 1 &&
         !plan.own.plan.networkOp;
}

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

// All of them each time: a link whose offer has come, and was not looked at, would be told to the
// others as one that we wait for.
Result<Progress> Operation::connectLinks(BoundVariant& variant) {
  variant.isConnected = true;
  for (channel::Link* link : variant.outgoing) {
    if (link->isConnected()) continue;
    TUTTI_TRY_ASSIGN(const Progress progress, launcher_.parts_.links.pollConnect(*link));
    if (progress != Progress::kDone) variant.isConnected = false;
  }
  return variant.isConnected ? Progress::kDone : Progress::kIdle;
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
  binding.isJoint = longest >= wire::kJointMinBytes && !isAmongAll(call.shape.collective) &&
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
kernels::Crew* Operation::crewFor(const plan::CallShape& shape) {
  constexpr size_t kLeastBytes = 1_MiB;
  constexpr size_t kLeastBytesOfPair = 4_MiB;
  const Launcher::Parts& parts = launcher_.parts_;
  if (parts.crews == nullptr || parts.helpers <= 0) return nullptr;
  const int32_t ranks = parts.planner.agreement().rankCount;
  const bool isPair = ranks == 2 && !isReduction(shape.collective);
  if (plan::vectorBytes(shape, ranks) < (isPair ? kLeastBytesOfPair : kLeastBytes)) return nullptr;
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
  // In place, an all-to-all would have to send from a copy: two copies, against the one into slots.
  if (call.shape.collective == Collective::kAllToAll) return !inPlace;
  if (&variant == &run.plan->own) return true;
  const std::vector<uint8_t>& steps = mappedSteps(*run.plan, variant, inPlace).referable;
  return !steps.empty() && std::ranges::find(steps, 0) == steps.end();
}

FormTrial::Outcome Operation::endTurn(Run& run) {
  BoundPlan& plan = *run.plan;
  FormTrial::Outcome outcome{.couldRefer = run.execution.hasReferred(),
                             .isMapped = !run.execution.isUnmapped(),
                             .isAgreed = run.execution.isAgreed()};
  const bool isOwn = run.variant == &plan.own;
  // The trial begins when both buffers are mapped: it is about what can be done then.
  if (run.mapsOutput && isOwn) {
    const bool isInPlace = run.call.input == run.call.output;
    outcome.couldRefer = run.execution.hasMappedOutput() && (outcome.couldRefer || isInPlace);
  }
  if (run.turn.isMeasured) outcome.spent = launcher_.measured(plan, run.start);
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

void Operation::addWaits(device::WaitSet& waits) {
  const uint64_t completed = launcher_.completed_.load(std::memory_order_acquire);
  if (completed != number_) {
    waits.add(
        {.word = &launcher_.completed_, .seen = completed, .sleeper = &launcher_.waitingNext_});
    return;
  }
  if (launcher_.parts_.links.hasMotors()) launcher_.parts_.links.attendMotors();
  if (launcher_.parts_.links.isReducing()) waits.overflowed = true;  // the network wakes nobody
  for (const Run& run : runs_) {
    if (run.stage == Stage::kRunning) run.execution.addWaits(waits);
    if (run.stage == Stage::kConnecting)
      waits.overflowed = true;  // an offer arrives by message, not in a word
  }
}

// What holds up each run, for the other ranks to read.
void Operation::noteWaits() {
  waits_.clear();
  carriers_.clear();
  for (const Run& run : runs_) {
    if (run.stage == Stage::kConnecting) {
      for (const channel::Link* link : run.variant->outgoing) {
        if (link->isConnected()) continue;
        waits_.push_back({.peer = index(link->peer()),
                          .direction = observe::Direction::kConnect,
                          .number = run.number});
      }
    }
    if (run.stage != Stage::kRunning) continue;
    const kernels::Execution::Awaited awaited = run.execution.awaited();
    if (awaited.peer < 0) continue;
    const observe::WaitNote note{
        .peer = awaited.peer,
        .direction = awaited.isSender ? observe::Direction::kSend : observe::Direction::kReceive,
        .step = static_cast<uint32_t>(awaited.step),
        .piece = static_cast<uint32_t>(awaited.piece),
        .number = run.number};
    if (launcher_.parts_.links.isNetwork(Rank{awaited.peer})) {
      noteMembers(note);
    } else {
      waits_.push_back(note);
      if (const auto carrier = carrierOf(run)) carriers_.push_back(index(*carrier));
    }
  }
}

Status Operation::idle(int64_t idleNanoseconds) {
  try {
    return lookAround(idleNanoseconds);
  } catch (const std::bad_alloc&) {
    return Status::outOfMemory();
  }
}

Status Operation::lookAround(int64_t idleNanoseconds) {
  if (launcher_.parts_.abort.load(std::memory_order_acquire)) {
    return Status(Code::kInternalError, "the communicator was aborted while this operation ran");
  }
  TUTTI_TRY(launcher_.watch_.verdict());
  for (const Run& run : runs_) {
    if (run.stage != Stage::kRunning) continue;
    const wire::LinkFault fault = run.execution.awaitedFault();
    const bool isNetwork = launcher_.parts_.links.isNetwork(Rank{run.execution.awaited().peer});
    if (fault != wire::LinkFault::kNone && !isNetwork) return giveUp(run, fault);
  }
  const bool isOurTurn = launcher_.completed_.load(std::memory_order_acquire) == number_;
  if (!isOurTurn || !launcher_.watch_.isDue(idleNanoseconds)) return {};
  if (!launcher_.parts_.links.networkMembers().empty()) TUTTI_TRY(judgeNetwork(idleNanoseconds));
  noteWaits();
  return launcher_.watch_.look(waits_, idleNanoseconds, carriers_);
}

void Operation::complete(Status status) noexcept { launcher_.finish(*this, std::move(status)); }

}  // namespace tutti::launch
