#include "comm/communicator.h"

#include <sodium.h>

#include <algorithm>
#include <utility>

#include "base/callers.h"
#include "base/log.h"
#include "base/service_thread.h"
#include "comm/hash.h"
#include "comm/membership.h"
#include "comm/process.h"
#include "device/host_streams.h"
#include "device/shared_memory.h"
#include "launch/gpu_launcher.h"

namespace tutti::comm {
namespace {

constexpr Nanoseconds kIdleCheck = std::chrono::milliseconds(100);

// Operations end within a poll of each wait, unless a user's function blocks their stream.
constexpr Nanoseconds kRevokePatience = std::chrono::milliseconds(500);

}  // namespace

Communicator::Communicator(Process& process, Options options)
    : process_(process),
      device_(options.device != nullptr ? *options.device : process.hostDevice()),
      config_(std::move(options.config)),
      checksBuffers_(device_.caps().isHost &&
                     process.settings().integer("NCCL_CHECK_POINTERS") != 0),
      idsHash_(options.idsHash),
      hash_(options.derivation ? 0 : hashOf(options.id.job)),
      rank_(options.derivation ? Rank{-1} : options.rank),
      rankCount_(options.derivation ? 0 : options.rankCount),
      derivation_(std::move(options.derivation)),
      id_(options.id),
      places_(std::move(options.places)) {}

Communicator::~Communicator() {
  if (initThread_.joinable()) initThread_.join();
  const bool isGivenUp = state_.load(std::memory_order_acquire) == State::kFailed ||
                         abort_.load(std::memory_order_acquire);
  if (boardOffer_ && isGivenUp) process_.handoff().withdraw(*boardOffer_);
  if (ownStream_ != nullptr) {
    if (Status status = device_.hostStreams()->destroyStream(ownStream_); !status.ok()) {
      log::warn("rank {}: its own stream did not end: {}", index(rank()), status.message());
    }
  }
  if (runner_ != nullptr) device_.leaveRanks(ranksOnCpus_);
  if (streamRunner_ != nullptr && launcher_ != nullptr)
    process_.hostDevice().leaveRanks(ranksOnCpus_);
  sodium_memzero(id_.secret.data(), id_.secret.size());
  for (bootstrap::UniqueId& place : places_)
    sodium_memzero(place.secret.data(), place.secret.size());
}

Status Communicator::startInitialise() {
  become(State::kInitialising);
  Status started = startInitThread();
  return started.ok() ? std::move(started) : fail(std::move(started));
}

Status Communicator::startInitThread() {
  std::lock_guard lock(threadMutex_);
  TUTTI_TRY_ASSIGN(initThread_, startThread("tutti-init", [this] {
                     // The outcome is kept in the communicator, for asyncError() and
                     // joinInitialise().
                     [[maybe_unused]] const Status outcome = initialise();
                   }));
  return {};
}

Status Communicator::joinInitialise() {
  while (!waitInitialised(kIdleCheck)) {
  }
  std::thread done;
  {
    std::lock_guard lock(threadMutex_);
    done = std::move(initThread_);
  }
  if (done.joinable()) done.join();
  std::lock_guard lock(errorMutex_);
  return initFailure_.clone();
}

bool Communicator::isInitialising() const {
  return state_.load(std::memory_order_acquire) == State::kInitialising;
}

bool Communicator::mayInitialise() const {
  return isInitialising() || state_.load(std::memory_order_acquire) == State::kNew;
}

bool Communicator::waitInitialised(Nanoseconds bound) {
  std::unique_lock lock(threadMutex_);
  return initialised_.wait_for(lock, bound, [this] { return !isInitialising(); });
}

void Communicator::become(State state) {
  std::lock_guard lock(threadMutex_);
  state_.store(state, std::memory_order_release);
  initialised_.notify_all();
}

// Of initialisation. Peers that still wait for this rank learn at once, not when its last user lets
// go of it.
Status Communicator::fail(Status status) {
  try {
    {
      std::lock_guard lock(errorMutex_);
      initFailure_ = status.clone();
      lastError_ = status.message();
    }
    tellPeersOfFailure();  // without the lock, on which calls of this communicator would wait
  } catch (const std::bad_alloc&) {  // the peers find out when their time is over
  }
  become(State::kFailed);
  return status;
}

void Communicator::tellPeersOfFailure() {
  if (bootstrap_ == nullptr) {
    const std::string_view why = initFailure_.message();
    if (places_.empty()) bootstrap::giveUp(process_.directory(), id_, rank(), why);
    for (const bootstrap::UniqueId& place : places_)
      bootstrap::giveUp(process_.directory(), place, rank(), why);
  } else if (links_ == nullptr) {
    bootstrap_->noteFailure(initFailure_.message());
    bootstrap_.reset();
  }
}

// Why it is not ready.
Status Communicator::refuseCall() const {
  switch (state_.load(std::memory_order_acquire)) {
    case State::kReady: return runner_->hasFailed() ? failureOfCall(Heard::kLater) : Status();
    case State::kNew:
    case State::kInitialising:  // with the code that NCCL gives it
      return Status(Code::kInvalidArgument,
                    "the communicator is still initialising: poll ncclCommGetAsyncError until it "
                    "is not ncclInProgress, or end "
                    "the group that makes it, before using it");
    case State::kFailed: {
      std::lock_guard lock(errorMutex_);
      return initFailure_.clone();
    }
    case State::kRevoked:
      return Status(Code::kInvalidUsage,
                    "the communicator is revoked: only ncclCommSplit, ncclCommShrink, "
                    "ncclCommDestroy and ncclCommAbort are left");
    case State::kFinalized:
      return Status(Code::kInvalidUsage,
                    "the communicator is finalized: only ncclCommDestroy is left");
    case State::kOutside:
      return Status(Code::kInvalidUsage, "this rank is in no communicator of the split");
  }
  return {};
}

Status Communicator::checkParent(Fitness fitness) const {
  const State state = state_.load(std::memory_order_acquire);
  if (state == State::kRevoked) return {};
  if (state == State::kReady && fitness == Fitness::kMayHaveFailed) return {};
  return checkReady();
}

// Of an error that no call has told yet, ncclGetLastError() has the text.
Code Communicator::note(const Status& status) {
  if (status.ok()) return Code::kOk;
  std::lock_guard lock(errorMutex_);
  if (lastError_.empty()) lastError_ = status.message();
  return status.code();
}

Code Communicator::asyncError() {
  const State state = state_.load(std::memory_order_acquire);
  switch (state) {
    case State::kNew:
    case State::kInitialising: return Code::kInProgress;
    case State::kFailed: {
      std::lock_guard lock(errorMutex_);
      return initFailure_.code();
    }
    case State::kReady:
    case State::kFinalized:
      if (runner_->hasFailed()) return note(failureOfCall(Heard::kLater));
      if (const Status verdict = runner_->verdict(); !verdict.ok()) {
        tellCallers(Heard::kLater);
        return note(verdict);
      }
      break;
    case State::kRevoked:
      if (codeBeforeRevoke_ != Code::kOk) return codeBeforeRevoke_;
      break;
    case State::kOutside: return Code::kOk;
  }
  if (isBlocking()) return Code::kOk;
  const bool isDone = state == State::kFinalized ? runner_->isIdle() : runner_->isSettled();
  if (isDone && state == State::kFinalized) return note(outcome());
  return !isDone || hasFormingChild() ? Code::kInProgress : Code::kOk;
}

// Of all that was called. REQUIRES: the runner is idle.
Status Communicator::outcome() {
  Status status = runner_->hasFailed() ? runner_->failure() : runner_->compareCalls();
  if (!status.ok()) tellCallers(Heard::kLater);
  return status;
}

Status Communicator::failureOfCall(Heard how) const {
  tellCallers(how);
  return runner_->failure();
}

// Once, and once more where the call itself comes upon it after another thread has heard of it.
void Communicator::tellCallers(Heard how) const {
  if (runner_->verdict().code() != Code::kInvalidUsage) return;
  Heard told = toldCallers_.load(std::memory_order_relaxed);
  do {
    if (told >= how) return;
  } while (!toldCallers_.compare_exchange_weak(told, how, std::memory_order_relaxed));
  if (!log::isEnabled(log::Level::kWarn, log::Subsystem::kAll)) return;
  const std::string callers = describeCallers();
  if (callers.empty()) return;
  const std::string last = runner_->lastCall();
  if (how == Heard::kInItsCall) {
    log::warn("rank {}: {}, in {}", index(rank()), last, callers);
  } else {
    log::warn(
        "rank {}: {}; another thread found this, so where that call came from is not known here; "
        "the program hears of it in {}",
        index(rank()), last, callers);
  }
}

Status Communicator::finalize() {
  const State state = state_.load(std::memory_order_acquire);
  if (state == State::kFinalized) {
    return Status(Code::kInvalidUsage, "ncclCommFinalize was already called on this communicator");
  }
  if (state != State::kReady) return checkReady();
  if (!isBlocking()) {
    become(State::kFinalized);
    if (!runner_->isIdle())
      return Status(Code::kInProgress, "operations go on; poll ncclCommGetAsyncError");
    return outcome();
  }
  while (!runner_->waitIdle(kIdleCheck, process_.clock())) {
  }
  Status status = outcome();
  runner_->retire(observe::Life::kFinalized);
  become(State::kFinalized);
  return status;
}

Status Communicator::revoke() {
  TUTTI_TRY(checkParent(Fitness::kMayHaveFailed));
  if (state_.load(std::memory_order_acquire) == State::kReady) {
    if (runner_->hasFailed()) codeBeforeRevoke_ = runner_->failure().code();
    runner_->fail(Status(Code::kInvalidUsage, "the communicator was revoked"));
    become(State::kRevoked);
    log::info(log::Subsystem::kInit, "comm {} rank {} nranks {} - Revoked",
              static_cast<const void*>(this), index(rank()), rankCount());
  }
  const Nanoseconds patience = isBlocking() ? kRevokePatience : Nanoseconds(0);
  if (runner_->waitIdle(patience, process_.clock())) {
    // Peers that wait for this rank learn that it does not come.
    if (links_ != nullptr) links_->markFault(wire::LinkFault::kAborted);
    runner_->retire(observe::Life::kAborted);
    return {};
  }
  if (!isBlocking())
    return Status(Code::kInProgress, "operations are ending; poll ncclCommGetAsyncError");
  return remoteError(
      "rank {}: an operation did not end within {} ms of ncclCommRevoke: something else on its "
      "stream may block it",
      index(rank()), std::chrono::duration_cast<std::chrono::milliseconds>(patience).count());
}

// Nobody expects an error of an end that has worked.
void Communicator::warnOfDifferentCalls() {
  if (const Status status = runner_->compareCalls(); !status.ok())
    log::warn("comm {} rank {}: {}", static_cast<const void*>(this), index(rank()),
              status.message());
}

void Communicator::shutDown() {
  if (state_.load(std::memory_order_acquire) == State::kNew) requestAbort();
  [[maybe_unused]] const Status initialised = joinInitialise();
  while (!leaveChildren(kIdleCheck)) {
  }
  if (runner_ != nullptr) {
    while (!runner_->waitIdle(kIdleCheck, process_.clock())) {
    }
    if (!runner_->hasFailed()) warnOfDifferentCalls();
    runner_->fail(Status(Code::kInvalidUsage, "the communicator is destroyed"));
    if (links_ != nullptr) links_->markFault(wire::LinkFault::kDestroyed);
    runner_->retire(observe::Life::kDestroyed);
  }
  log::info(log::Subsystem::kInit, "comm {} rank {} nranks {} - Destroy COMPLETE",
            static_cast<const void*>(this), index(rank()), rankCount());
}

void Communicator::requestAbort() {
  abort_.store(true, std::memory_order_release);
  std::lock_guard lock(childMutex_);
  for (const auto& weak : children_) {
    const auto child = weak.lock();
    if (child != nullptr && child->isInitialising()) child->requestAbort();
  }
}

bool Communicator::waitQuiet(Nanoseconds bound) {
  const Instant deadline = process_.clock().now() + bound;
  const auto left = [&] { return deadline - process_.clock().now(); };
  if (!waitInitialised(bound) || !leaveChildren(left())) return false;
  if (runner_ == nullptr) return true;
  runner_->fail(Status(Code::kInternalError, "the communicator was aborted"));
  if (!runner_->waitIdle(left(), process_.clock())) return false;
  // Not only when the object goes, which its other users decide; and also to peers without a link.
  if (links_ != nullptr) links_->markFault(wire::LinkFault::kAborted);
  runner_->retire(observe::Life::kAborted);
  return true;
}

Status Communicator::adopt(const std::shared_ptr<Communicator>& child) {
  std::lock_guard lock(childMutex_);
  if (isLeft_ || abort_.load(std::memory_order_acquire)) {
    return invalidUsage("rank {}: the communicator was ended while a new one was made of it",
                        index(rank()));
  }
  std::erase_if(outsiders_, [](const auto& other) { return !other->mayInitialise(); });
  std::erase_if(children_, [](const auto& weak) {
    const auto other = weak.lock();
    return other == nullptr || !other->mayInitialise();
  });
  if (child->derivation_->color == kNoColor) outsiders_.push_back(child);
  children_.push_back(child);
  return {};
}

bool Communicator::hasFormingChild() {
  std::lock_guard lock(childMutex_);
  return std::ranges::any_of(children_, [](const auto& weak) {
    const auto child = weak.lock();
    return child != nullptr && child->isInitialising();
  });
}

// True when no child initialises any more; there will be no others.
bool Communicator::leaveChildren(Nanoseconds bound) {
  const Instant deadline = process_.clock().now() + bound;
  std::vector<std::shared_ptr<Communicator>> children;
  {
    std::lock_guard lock(childMutex_);
    isLeft_ = true;
    for (const auto& weak : children_) {
      if (auto child = weak.lock()) children.push_back(std::move(child));
    }
  }
  for (const auto& child : children) {
    if (!child->waitInitialised(deadline - process_.clock().now())) return false;
  }
  std::lock_guard lock(childMutex_);
  children_.clear();
  outsiders_.clear();
  return true;
}

void Communicator::setLastError(std::string_view text) {
  std::lock_guard lock(errorMutex_);
  lastError_ = text;
}

std::string Communicator::lastError() const {
  std::lock_guard lock(errorMutex_);
  return lastError_;
}

Result<void*> Communicator::addBuffer(const void* buffer, size_t bytes) {
  TUTTI_TRY_ASSIGN(void* const handle,
                   registrations_.add(Registrations::Kind::kBuffer, buffer, bytes));
  const bool isWanted = process_.settings().integer("NCCL_LOCAL_REGISTER") != 0;
  if (gpuLauncher_ == nullptr || !isWanted) return handle;
  const Status status = gpuLauncher_->addBuffer(handle, buffer, bytes);
  if (!status.ok()) {
    log::info(log::Subsystem::kReg, "rank {}: {} bytes at {} are registered in name only: {}",
              index(rank()), bytes, buffer, status.message());
  }
  return handle;
}

Status Communicator::removeBuffer(Registrations::Kind kind, const void* handle) {
  TUTTI_TRY(registrations_.remove(kind, handle));
  if (gpuLauncher_ != nullptr) gpuLauncher_->removeBuffer(handle);
  return {};
}

// Of GPU ranks: the peers register theirs at the same time, so that the first call finds them.
Result<void*> Communicator::addGpuWindow(const void* buffer, size_t bytes, bool isSymmetric) {
  if (process_.settings().integer("NCCL_WIN_ENABLE") == 0) return static_cast<void*>(nullptr);
  TUTTI_TRY_ASSIGN(void* const handle,
                   registrations_.add(Registrations::Kind::kWindow, buffer, bytes));
  using Kind = channel::PeerBuffers::Kind;
  const Status status =
      gpuLauncher_->addBuffer(handle, buffer, bytes, isSymmetric ? Kind::kWindow : Kind::kBuffer);
  if (status.ok()) {
    gpuLauncher_->settleBuffers();
    return handle;
  }
  log::info(log::Subsystem::kReg, "rank {}: no window for {} bytes at {}: {}", index(rank()), bytes,
            buffer, status.message());
  TUTTI_TRY(registrations_.remove(Registrations::Kind::kWindow, handle));
  return static_cast<void*>(nullptr);
}

Result<void*> Communicator::addWindow(const void* buffer, size_t bytes, bool isSymmetric) {
  if (gpuLauncher_ != nullptr) return addGpuWindow(buffer, bytes, isSymmetric);
  device::SharedMemory* shared = sharedMemory();
  if (shared != nullptr && shared->find(buffer, bytes).serial != 0)
    return registrations_.add(Registrations::Kind::kWindow, buffer, bytes);
  log::info(log::Subsystem::kReg, "rank {}: no window for {} bytes at {}: {}", index(rank()), bytes,
            buffer,
            shared == nullptr ? "peers' memory is not used in place here (NCCL_P2P_DISABLE)"
                              : "they are not within one allocation of ncclMemAlloc");
  return static_cast<void*>(nullptr);
}

device::SharedMemory* Communicator::sharedMemory() {
  if (process_.settings().integer("NCCL_P2P_DISABLE") != 0) return nullptr;
  return device_.sharedMemory();
}

}  // namespace tutti::comm
