// What the watcher's thread finds of a launcher: how far its kernels are, and whom they wait for.
#include <atomic>
#include <string>

#include "base/char_field.h"
#include "launch/gpu_launcher.h"
#include "observe/process_state.h"

namespace tutti::launch {
namespace {

using observe::RankView;

// Below this a launch that goes on is nothing to ask about.
constexpr Nanoseconds kPatience = std::chrono::milliseconds(100);
// Looks within T, at least, while only replays may run: a death is certain at the second.
constexpr int kReplayLooks = 8;

std::string who(const bootstrap::PeerInfo& peer) {
  return fmt::format("rank {} ({}, pid {}, GPU {})", peer.rank, textOf(peer.hostName),
                     peer.processId, peer.deviceIndex);
}

}  // namespace

Status GpuLauncher::faultOfKernels() {
  const wire::GpuError& error = words().error;
  const auto fault = static_cast<wire::GpuFault>(
      std::atomic_ref(const_cast<uint32_t&>(error.fault)).load(std::memory_order_acquire));
  if (fault == wire::GpuFault::kNone) return {};
  const bool isKnown = error.peer >= 0 && static_cast<size_t>(error.peer) < parts_.peers.size();
  const std::string peer = isKnown ? who(parts_.peers[static_cast<size_t>(error.peer)]) : "a rank";
  const auto what = name(static_cast<Collective>(error.collective % kCollectiveCount));
  switch (fault) {
    case wire::GpuFault::kNone: break;
    case wire::GpuFault::kAborted:
      return Status(Code::kRemoteError,
                    fmt::format("aborted while waiting for {} in {}", peer, what));
    case wire::GpuFault::kTimedOut:
      return remoteError(
          "rank {} waited {} ms for {} in {} (message {}); TUTTI_GPU_WAIT_MS sets "
          "how long a kernel waits",
          parts_.recorder->rank(),
          std::chrono::duration_cast<std::chrono::milliseconds>(parts_.options.waitLimit).count(),
          peer, what, error.number);
    case wire::GpuFault::kMismatch:
      return invalidUsage("rank {} is in {} but {} runs another call", parts_.recorder->rank(),
                          what, peer);
  }
  return {};
}

// A launch may stand still in the middle, with the mutex. While a thread frees or allocates device
// or pinned memory (a rank that leaves, on our GPU and in our process), the driver waits for the
// kernels that run there, and launches and records wait for that thread (H200, driver 580,
// 2026-11-22: docs/results/2026-11-22-gpu4.md). And some thousand launches ahead of the GPU the
// driver holds the next one up until a kernel ends, which is never while it waits for a rank that
// is dead. Only the abort word ends this. So what the board alone can tell is judged without mutex
// and driver.
Nanoseconds GpuLauncher::look() {
  if (hasFailed()) return kUntilWoken;
  const auto ranks = observe::readBoard(parts_.recorder->board());
  if (const Status abandoned = judgeAbandoned(ranks); !abandoned.ok()) {
    fail(abandoned);
    return kUntilWoken;
  }
  Pending pending;
  bool mayReplay = false;
  uint64_t newest = 0;
  {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) {
      if (const Status status = judgeHeldUp(ranks); !status.ok()) fail(status);
      return kSoon;
    }
    heldEntry_ = 0;
    pending = findPending();
    mayReplay = order_.isInGraphs();
    newest = last_.entry;
  }
  Status status = judgeToldFaults(pending.entry);
  Nanoseconds pause = pending.launch != 0 ? kSoon : kUntilWoken;
  if (status.ok() && pending.launch == 0 && mayReplay) {
    Result<bool> isSuspicious = judgeReplays(newest);
    status = isSuspicious.takeStatus();
    pause = status.ok() && *isSuspicious ? kSoon : parts_.options.timeout / kReplayLooks;
  } else if (status.ok()) {
    status = judge(pending);
  }
  if (status.ok()) return pause;
  fail(status);
  return kUntilWoken;
}

// What another rank or our kernels have told.
Status GpuLauncher::judgeToldFaults(uint64_t entry) {
  TUTTI_TRY(watch_.verdict());
  Status status = faultOfKernels();
  return status.ok() ? std::move(status) : watch_.explain(std::move(status), entry, {});
}

// While another thread has the mutex: its launch is held up when its calls stay the newest.
Status GpuLauncher::judgeHeldUp(const std::vector<RankView>& ranks) {
  const auto& history = ranks[static_cast<size_t>(parts_.recorder->rank())].history;
  const uint64_t newest = history.empty() ? 0 : history.front().number;
  TUTTI_TRY(judgeToldFaults(newest));
  const Instant now = parts_.clock.now();
  if (heldEntry_ != newest) {
    heldEntry_ = newest;
    heldSince_ = now;
  }
  const Nanoseconds idle = now - heldSince_;
  return newest == 0 || idle < kPatience ? Status() : judgeWaits(ranks, newest, idle);
}

Status GpuLauncher::judgeAbandoned(const std::vector<RankView>& ranks) {
  const auto waits = findAbandoned(ranks, parts_.recorder->rank());
  return waits.empty() ? Status() : watch_.look(waits, kPatience.count());
}

Status GpuLauncher::judge(const Pending& pending) {
  const Instant now = parts_.clock.now();
  if (pending.launch == 0 || pending.launch != seenLaunch_) {
    watch_.advanced();
    seenLaunch_ = pending.launch;
    seenSince_ = now;
    return {};
  }
  const Nanoseconds idle = now - seenSince_;
  if (idle < kPatience) return {};
  return judgeWaits(observe::readBoard(parts_.recorder->board()), pending.entry, idle);
}

Status GpuLauncher::judgeWaits(const std::vector<RankView>& ranks, uint64_t entry,
                               Nanoseconds idle) {
  return watch_.look(findGpuWaits(ranks, parts_.recorder->rank(), entry, deathTest()),
                     idle.count());
}

// Nobody tells when a graph runs. One that does would wait for good for a rank that has died. True:
// one seems to have, which another look will tell.
Result<bool> GpuLauncher::judgeReplays(uint64_t newest) {
  const auto ranks = observe::readBoard(parts_.recorder->board());
  const auto waits = findDeaths(ranks, parts_.recorder->rank(), newest, deathTest());
  if (waits.empty()) {
    watch_.advanced();
    return false;
  }
  TUTTI_TRY(watch_.look(waits, kPatience.count()));
  return true;
}

DeathTest GpuLauncher::deathTest() const {
  return [this](const RankView& peer) {
    return observe::stateOf(peer.process, parts_.recorder->pidNamespace()) ==
           observe::ProcessState::kDead;
  };
}

}  // namespace tutti::launch
