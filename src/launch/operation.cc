// What the driver polls: the calls of one prepare(), from their plans to their ends.
#include <algorithm>
#include <new>
#include <utility>

#include "base/futex.h"
#include "launch/launcher.h"

namespace tutti::launch {
namespace {

// A run of a rank's motors is some system calls, each worth as many polls of memory.
constexpr uint32_t kMotorsCost = 64;

// Links that there is no memory to watch for are looked at each millisecond instead.
void attend(channel::LinkSet& links, device::WaitSet& waits) {
  try {
    if (links.hasMotors()) links.attendMotors();
  } catch (const std::bad_alloc&) {
    waits.overflowed = true;
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
  bool leftOne = false;
  for (Run& run : runs_) {
    if (run.stage == Stage::kDone) continue;
    // While one run looked again and again, those that its peer waits for would stand still. All
    // behind a collective wait for it.
    const bool isLast = channel::isCollective(run.plan->lane) || &run == &runs_.back();
    Result<Progress> progress = pollRun(run, isLast && !leftOne ? looks : 1);
    if (!progress.ok()) return explain(run, progress.takeStatus());
    if (*progress != Progress::kIdle) overall = Progress::kAdvanced;
    if (*progress == Progress::kDone) ++finishedRuns_;
    leftOne = leftOne || *progress != Progress::kDone;
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

Result<Progress> Operation::pollRun(Run& run, uint32_t runLooks) {
  if (run.stage == Stage::kQueued) {
    if (run.after >= 0 && runs_[static_cast<size_t>(run.after)].stage != Stage::kDone)
      return Progress::kIdle;
    run.number = launcher_.record(*run.plan, run.sequence);
    TUTTI_TRY(launcher_.watch_.verdict());
    // Nothing to move: no links either. A rank that is through with it may leave, and a peer would
    // find the link that it was offered withdrawn.
    if (run.plan->own.plan.layout.pieceCount == 0) return finishRun(run);
    chooseVariant(run);
    run.stage = Stage::kOpening;
  }
  if (run.stage == Stage::kOpening) {
    if (!run.variant->isConnected) {
      TUTTI_TRY_ASSIGN(const Progress opened, openLinks(run));
      if (opened != Progress::kDone) return Progress::kIdle;
    }
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
  TUTTI_TRY_ASSIGN(const Progress progress, run.execution.poll(runLooks));
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
  const bool isOurs = run.stage == Stage::kQueued || run.stage == Stage::kOpening ||
                      error.code() == Code::kSystemError;
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

// kDone: links from all these peers can be made at once.
Result<Progress> Operation::prepareLinks(const Run& run, const kernels::UsedLinks& used) {
  const schedule::Program& program = *run.variant->plan.program;
  for (size_t i = 0; i < program.receivesFrom.size(); ++i) {
    if (!used.incoming[i]) continue;
    TUTTI_TRY_ASSIGN(const Progress progress,
                     launcher_.parts_.links.prepare(program.receivesFrom[i]));
    if (progress != Progress::kDone) return Progress::kIdle;
  }
  return Progress::kDone;
}

// Makes the links of a new plan, and with them the program that its calls run.
Result<Progress> Operation::openLinks(Run& run) {
  BoundVariant& plan = *run.variant;
  if (plan.program) return Progress::kDone;
  channel::LinkSet& links = launcher_.parts_.links;
  const schedule::Program& program = *plan.plan.program;
  std::vector<wire::LinkPort*> incoming;
  std::vector<wire::LinkPort*> outgoing;
  const kernels::UsedLinks used = kernels::usedLinks(program, plan.plan.layout);
  TUTTI_TRY_ASSIGN(const Progress prepared, prepareLinks(run, used));
  if (prepared != Progress::kDone) return Progress::kIdle;
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
  return Progress::kDone;
}

// Not what a group must pair first, nor what takes many turns, nor what is profiled: its operation
// tells. REQUIRES: the plan's links are connected.
bool Operation::mayRunAtOnce(const BoundPlan& plan) const {
  const plan::CallShape& shape = plan.shape;
  const bool isOwn =
      !channel::isCollective(plan.lane) && shape.peer == launcher_.parts_.planner.agreement().rank;
  return !profile_ && !isOwn && !shape.isOnGpu && !wantsCrew(shape) &&
         plan.own.plan.layout.pieceCount == 1 && !plan.own.plan.networkOp;
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

void Operation::addWaits(device::WaitSet& waits) {
  const uint64_t completed = launcher_.completed_.load(std::memory_order_acquire);
  if (completed != number_) {
    waits.add(
        {.word = &launcher_.completed_, .seen = completed, .sleeper = &launcher_.waitingNext_});
    return;
  }
  attend(launcher_.parts_.links, waits);
  for (const Run& run : runs_) {
    if (run.stage == Stage::kRunning) run.execution.addWaits(waits);
    // An offer arrives by message, not in a word.
    if (run.stage == Stage::kOpening || run.stage == Stage::kConnecting) waits.overflowed = true;
  }
}

// What holds up each run, for the other ranks to read.
void Operation::noteWaits() {
  waits_.clear();
  carriers_.clear();
  for (const Run& run : runs_) {
    if (run.stage == Stage::kConnecting) {
      for (const channel::Link* link : run.variant->outgoing) {
        // One that is on its way waits for no call of the peer's, and ends by itself.
        if (link->isConnected() || link->isConnecting()) continue;
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
