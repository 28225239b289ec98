#include "group/group.h"

#include <algorithm>
#include <map>

#include "base/uncancelled.h"
#include "launch/group_time.h"
#include "sim/estimate_call.h"

namespace tutti::group {
namespace {

// The stream that a call really runs on.
void* effectiveStream(const comm::Communicator& communicator, void* stream) {
  return stream != nullptr ? stream : communicator.ownStream();
}
void* effectiveStream(const PendingCall& pending) {
  return effectiveStream(*pending.communicator, pending.stream);
}

Result<double> estimateUs(comm::Communicator& communicator, const plan::CallShape& shape) {
  TUTTI_TRY(communicator.checkReady());
  if (launch::VirtualLauncher* launcher = communicator.virtualLauncher(); launcher != nullptr)
    return launcher->estimateUs(shape);
  return sim::estimateCallUs(
      {.agreement = communicator.agreement(), .areGpus = communicator.hasKernels()}, shape);
}

// What runs in the calling thread fails there.
comm::Communicator::Heard heardBy(const Result<device::Stream*>& stream) {
  using Heard = comm::Communicator::Heard;
  return stream.ok() && stream.value() == nullptr ? Heard::kInItsCall : Heard::kLater;
}

Status operationsGoOn() {
  return Status(Code::kInProgress, "operations go on; poll ncclCommGetAsyncError");
}

}  // namespace

Status runAlone(comm::Communicator& communicator, const launch::Call& call, void* stream) {
  if (launch::StreamRunner* runner = communicator.streamRunner(); runner != nullptr) {
    const Uncancelled held;
    const launch::StreamCall one{.call = &call, .stream = stream};
    return runner->launch({&one, 1}, false);
  }
  device::Device& device = communicator.device();
  launch::Launcher& launcher = communicator.launcher();
  device::Stream* where = nullptr;  // the calling thread
  if (void* handle = effectiveStream(communicator, stream); handle != nullptr) {
    TUTTI_TRY_ASSIGN(where, device.resolve(handle));
  }
  const uint32_t looks = where == nullptr ? device.looksBeforeEnqueue() : 0;
  TUTTI_TRY_ASSIGN(device::Task * task, launcher.runAtOnce(call, looks));
  return task == nullptr ? Status() : goOn(communicator, where, *task);
}

Status goOn(comm::Communicator& communicator, device::Stream* where, device::Task& task) {
  const Uncancelled held;
  device::Task* const tasks[] = {&task};
  TUTTI_TRY(communicator.device().enqueue(where, tasks));
  launch::Launcher& launcher = communicator.launcher();
  if (launcher.hasFailed()) return communicator.failureOfCall(heardBy(where));
  if (!communicator.isBlocking() && !launcher.isIdle()) return operationsGoOn();
  return {};
}

// Leaves the group empty when it ends, by an exception too: what is left over would run with the
// thread's next group.
class Group::Emptied {
 public:
  explicit Emptied(Group& group) : group_(group) {}
  ~Emptied() { group_.clear(); }
  Emptied(const Emptied&) = delete;
  Emptied& operator=(const Emptied&) = delete;

 private:
  Group& group_;
};

constinit thread_local int32_t Group::groupDepth_ = 0;

Group& Group::current() {
  thread_local Group group;
  return group;
}

void Group::noteError(const Status& status) {
  if (groupDepth_ > 0 && error_.ok() && status.code() != Code::kInProgress) error_ = status.clone();
}

Status Group::add(PendingCall pending) {
  TUTTI_TRY_ASSIGN([[maybe_unused]] const device::Stream* stream,
                   pending.communicator->device().resolve(pending.stream));
  calls_.push_back(std::move(pending));
  return {};
}

Status Group::addInitialisation(std::shared_ptr<comm::Communicator> communicator) {
  initialisations_.push_back(std::move(communicator));
  if (groupDepth_ > 0) return {};
  const Emptied emptied(*this);
  return run();
}

Status Group::end() {
  if (groupDepth_ == 0)
    return invalidUsage("ncclGroupEnd was called without a matching ncclGroupStart");
  if (--groupDepth_ > 0) return {};
  const Emptied emptied(*this);
  return run();
}

Status Group::endWithoutRunning() {
  if (groupDepth_ == 0)
    return invalidUsage("ncclGroupSimulateEnd was called without a matching ncclGroupStart");
  if (--groupDepth_ > 0) return {};
  const Emptied emptied(*this);
  return std::move(error_);
}

Result<std::optional<double>> Group::simulateEnd() {
  std::optional<double> us;
  if (groupDepth_ == 1 && error_.ok()) {
    Result<double> found = estimate();
    if (found.ok()) {
      us = found.value();
    } else {
      noteError(found.status());
    }
  }
  TUTTI_TRY(endWithoutRunning());
  return us;
}

Result<double> Group::estimate() const {
  std::map<const comm::Communicator*, launch::GroupTime> times;
  for (const PendingCall& pending : calls_) {
    TUTTI_TRY_ASSIGN(const double us, estimateUs(*pending.communicator, pending.call.shape));
    times[pending.communicator.get()].add(pending.call.shape.collective, us);
  }
  double longest = 0;
  for (const auto& [communicator, time] : times) longest = std::max(longest, time.us());
  return longest;
}

bool Group::willInitialise(const comm::Communicator& communicator) const {
  return std::ranges::any_of(initialisations_,
                             [&](const auto& one) { return one.get() == &communicator; });
}

void Group::clear() {
  for (const Prepared& prepared : prepared_) {
    if (prepared.task != nullptr) prepared.communicator->launcher().cancel(prepared.task);
  }
  error_ = {};
  calls_.clear();
  initialisations_.clear();
  endings_.clear();
  prepared_.clear();
}

Status Group::run() {
  Status status = error_.ok() ? runCalls() : std::move(error_);
  return endings_.empty() ? std::move(status) : runEndings(std::move(status));
}

// The first error, of the calls or the endings.
Status Group::runEndings(Status status) {
  for (const Ending& ending : endings_) {
    const bool isGood = status.ok() || status.code() == Code::kInProgress;
    if (!isGood && !ending.isOwed) continue;
    Status ended = ending.run();
    if (status.ok() || (isGood && !ended.ok())) status = std::move(ended);
  }
  return status;
}

Status Group::runCalls() {
  TUTTI_TRY(initialiseAll());
  TUTTI_TRY(launchAll());
  TUTTI_TRY(prepareAll());
  TUTTI_TRY(enqueueAll());
  return outcome();
}

// Several ranks of one thread must start up together, each on a thread of its own; one alone needs
// none.
Status Group::initialiseAll() {
  if (initialisations_.empty()) return {};
  if (initialisations_.size() == 1 && initialisations_[0]->isBlocking())
    return initialisations_[0]->initialise();
  Status first;
  for (const auto& communicator : initialisations_) {
    first = communicator->startInitialise();
    if (!first.ok()) break;
  }
  if (!first.ok()) {
    // Those that have started would wait for the others until the time is over.
    for (const auto& communicator : initialisations_) communicator->requestAbort();
  }
  bool isPending = false;
  for (const auto& communicator : initialisations_) {
    if (!communicator->isBlocking()) {
      isPending = true;
      continue;
    }
    if (!communicator->hasStarted()) continue;
    Status status = communicator->joinInitialise();
    if (first.ok()) first = std::move(status);
  }
  if (first.ok() && isPending)
    return Status(Code::kInProgress, "initialisation goes on; poll ncclCommGetAsyncError");
  return first;
}

// What runs on GPUs goes to its streams, and what runs nowhere is over at once. Nobody waits: so
// one thread can drive several of them.
Status Group::launchAll() {
  for (size_t i = 0; i < calls_.size(); ++i) {
    launch::StreamRunner* runner = calls_[i].communicator->streamRunner();
    if (calls_[i].isTaken || runner == nullptr) continue;
    TUTTI_TRY(calls_[i].communicator->checkReady());
    scratchStreamCalls_.clear();
    for (size_t j = i; j < calls_.size(); ++j) {
      if (calls_[j].communicator->streamRunner() != runner) continue;
      scratchStreamCalls_.push_back({.call = &calls_[j].call, .stream = calls_[j].stream});
      calls_[j].isTaken = true;
    }
    TUTTI_TRY(runner->launch(scratchStreamCalls_, true));
  }
  return {};
}

// Calls of one communicator become one operation. The order among communicators is that of their
// first calls.
Status Group::prepareAll() {
  for (size_t i = 0; i < calls_.size(); ++i) {
    if (calls_[i].isTaken) continue;
    TUTTI_TRY(prepareOne(i));
  }
  return {};
}

Status Group::prepareOne(size_t firstCall) {
  comm::Communicator& communicator = *calls_[firstCall].communicator;
  TUTTI_TRY(communicator.checkReady());
  scratchCalls_.clear();
  for (size_t i = firstCall; i < calls_.size(); ++i) {
    if (calls_[i].communicator.get() != &communicator) continue;
    scratchCalls_.push_back(calls_[i].call);
    calls_[i].isTaken = true;
  }
  prepared_.reserve(calls_.size());  // nothing may fail between the task and its place there
  TUTTI_TRY_ASSIGN(device::Task * task, communicator.launcher().prepare(scratchCalls_));
  prepared_.push_back(
      {.task = task, .communicator = &communicator, .stream = effectiveStream(calls_[firstCall])});
  return joinStreams(prepared_.back(), JoinAt::kBefore);
}

// Calls of one communicator on several streams run on the first one's; it waits for the others
// before, and they for it after.
Status Group::joinStreams(const Prepared& prepared, JoinAt at) {
  if (calls_.size() == 1) return {};
  for (const PendingCall& pending : calls_) {
    void* other = effectiveStream(pending);
    if (pending.communicator.get() != prepared.communicator || other == prepared.stream) continue;
    device::HostStreams* streams = prepared.communicator->device().hostStreams();
    TUTTI_TRY_ASSIGN(void* event, streams->createEvent());
    Status status = streams->recordEvent(event, at == JoinAt::kAfter ? prepared.stream : other);
    if (status.ok())
      status = streams->waitEvent(at == JoinAt::kAfter ? other : prepared.stream, event);
    TUTTI_TRY(streams->destroyEvent(event));
    TUTTI_TRY(std::move(status));
  }
  return {};
}

// Work on streams first, since it does not block; then all of the calling thread's at once.
Status Group::enqueueAll() {
  if (prepared_.empty()) return {};
  device::Device& device = prepared_[0].communicator->device();
  for (const bool isBlocking : {false, true}) {
    for (size_t i = 0; i < prepared_.size(); ++i) {
      if (prepared_[i].task == nullptr) continue;
      TUTTI_TRY_ASSIGN(device::Stream * stream, device.resolve(prepared_[i].stream));
      if ((stream == nullptr) != isBlocking) continue;
      scratchTasks_.clear();
      scratchTasks_.reserve(prepared_.size());  // nothing may fail before they are enqueued
      for (size_t j = i; j < prepared_.size(); ++j) {
        if (prepared_[j].task == nullptr || prepared_[j].stream != prepared_[i].stream) continue;
        scratchTasks_.push_back(prepared_[j].task);
        prepared_[j].task = nullptr;
      }
      TUTTI_TRY(device.enqueue(stream, scratchTasks_));
    }
  }
  for (const Prepared& prepared : prepared_) TUTTI_TRY(joinStreams(prepared, JoinAt::kAfter));
  return {};
}

Status Group::outcome() {
  Status first;
  bool isPending = false;
  for (const Prepared& prepared : prepared_) {
    launch::Launcher& launcher = prepared.communicator->launcher();
    if (launcher.hasFailed()) {
      const auto stream = prepared.communicator->device().resolve(prepared.stream);
      Status failure = prepared.communicator->failureOfCall(heardBy(stream));
      if (first.ok()) first = std::move(failure);
    }
    if (!prepared.communicator->isBlocking() && !launcher.isIdle()) isPending = true;
  }
  if (first.ok() && isPending) return operationsGoOn();
  return first;
}

}  // namespace tutti::group
