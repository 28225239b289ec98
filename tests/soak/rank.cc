#include "rank.h"

#include <signal.h>
#include <tutti/host.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <list>
#include <mutex>
#include <thread>

#include "calls.h"
#include "random.h"

namespace tutti::soak {
namespace {

using Kind = Action::Kind;
using std::chrono::microseconds;
using std::chrono::steady_clock;

constexpr size_t kStreams = 3;
// A fault that no rank hears of within this time is a hang. Far above TUTTI_TIMEOUT_MS.
constexpr std::chrono::seconds kPatience{20};
// ncclCommAbort returns within a second; the rest is for a machine that runs other things too.
constexpr std::chrono::seconds kAbortBound{5};

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

// What the victim's process does to itself.
void depart(Death death) {
  switch (death) {
    case Death::kKill: ::kill(::getpid(), SIGKILL); break;
    case Death::kExit: ::_exit(0);
    case Death::kStop: ::kill(::getpid(), SIGSTOP); break;
  }
}

}  // namespace

void fail(const Plan& plan, const std::string& text) {
  // Of several ranks that fail in turn the first is the one to read.
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  say("FAIL seed " + std::to_string(plan.seed) + " " + text);
  ::_exit(1);
}

RankRunner::RankRunner(const Plan& plan, size_t roundNumber, int rank)
    : plan_(plan),
      round_(plan.rounds[roundNumber]),
      roundNumber_(roundNumber),
      rank_(rank),
      comms_(round_.teams.size()),
      streams_(kStreams) {}

void RankRunner::failHere(const std::string& text) {
  std::string where = "round " + std::to_string(roundNumber_) + " rank " + std::to_string(rank_);
  if (current_ != nullptr)
    where += " action " + std::to_string(current_ - round_.actions.data()) + " (" +
             describe(*current_) + ")";
  fail(plan_, where + ": " + text);
}

void RankRunner::want(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return;
  failHere(std::string(call) + " gave " + std::to_string(result) + ": " +
           ncclGetLastError(nullptr));
}

void RankRunner::adopt(int team, ncclComm_t comm) {
  int rank = -1;
  int count = -1;
  want(ncclCommUserRank(comm, &rank), "ncclCommUserRank");
  want(ncclCommCount(comm, &count), "ncclCommCount");
  if (rank != teamAt(team).placeOf(rank_) || count != teamAt(team).size())
    failHere("team " + std::to_string(team) + ": rank " + std::to_string(rank) + " of " +
             std::to_string(count) + ", wanted " + std::to_string(teamAt(team).placeOf(rank_)) +
             " of " + std::to_string(teamAt(team).size()));
  commAt(team) = comm;
}

void RankRunner::initialise(std::vector<ncclUniqueId>& ids) {
  ncclComm_t comm = nullptr;
  if (ids.size() == 1) {
    want(ncclCommInitRank(&comm, plan_.rankCount(), ids[0], rank_), "ncclCommInitRank");
  } else {
    want(ncclCommInitRankScalable(&comm, plan_.rankCount(), rank_, static_cast<int>(ids.size()),
                                  ids.data(), nullptr),
         "ncclCommInitRankScalable");
  }
  adopt(0, comm);
  for (cudaStream_t& stream : streams_) want(ncclTuttiStreamCreate(&stream), "StreamCreate");
}

void RankRunner::run(std::vector<ncclUniqueId> ids) {
  initialise(ids);
  for (const Action& action : round_.actions) {
    current_ = &action;
    const uint64_t hash = mix(action.id ^ static_cast<uint64_t>(rank_));
    if (hash % 8 == 0) std::this_thread::sleep_for(microseconds((hash >> 8) % 20000));
    perform(action);
  }
  current_ = nullptr;
  for (cudaStream_t stream : streams_) want(ncclTuttiStreamDestroy(stream), "StreamDestroy");
  for (size_t team = 0; team < comms_.size(); ++team)
    destroy(static_cast<int>(team), rank_ % 2 == 0);
}

void RankRunner::perform(const Action& action) {
  switch (action.kind) {
    case Kind::kCalls: return runCalls(action);
    case Kind::kSplit: return split(action);
    case Kind::kShrink:
      if (isMember(action.children[0])) shrink(action, NCCL_SHRINK_DEFAULT);
      return;
    case Kind::kDestroy: return destroy(action.team, action.finalizes);
    case Kind::kFreeze: return freeze(action);
    case Kind::kAbort:
    case Kind::kRevoke: return endWhileBusy(action);
    case Kind::kDeath: return surviveDeath(action);
  }
}

void RankRunner::runCalls(const Action& action) {
  std::list<PendingCall> pending;
  for (const Call& call : action.calls) {
    if (isMember(call.team))
      pending.emplace_back(call, teamAt(call.team), teamAt(call.team).placeOf(rank_));
  }
  if (action.isGroup) want(ncclGroupStart(), "ncclGroupStart");
  for (PendingCall& call : pending) {
    // Each rank spreads the calls over its streams in its own way.
    const uint64_t hash = mix(call.call().id ^ static_cast<uint64_t>(rank_));
    cudaStream_t stream = action.usesStreams ? streams_[hash % kStreams] : nullptr;
    const ncclResult_t result = call.issue(commAt(call.call().team), stream);
    if (result != ncclSuccess)
      failHere(describe(call.call()) + " gave " + std::to_string(result) + ": " +
               ncclGetLastError(nullptr));
  }
  if (action.isGroup) want(ncclGroupEnd(), "ncclGroupEnd");
  if (action.usesStreams) {
    for (cudaStream_t stream : streams_)
      want(ncclTuttiStreamSynchronize(stream), "StreamSynchronize");
  }
  for (PendingCall& call : pending) {
    ncclResult_t state = ncclSuccess;
    want(ncclCommGetAsyncError(commAt(call.call().team), &state), "ncclCommGetAsyncError");
    if (state != ncclSuccess)
      failHere(describe(call.call()) + ": asynchronous error " + std::to_string(state) + ": " +
               ncclGetLastError(commAt(call.call().team)));
    if (const std::string wrong = call.check(); !wrong.empty()) failHere("WRONG " + wrong);
  }
}

void RankRunner::split(const Action& action) {
  if (!isMember(action.team)) return;
  int color = NCCL_SPLIT_NOCOLOR;
  int own = -1;
  for (const int child : action.children) {
    if (isMember(child)) {
      color = 3 * child;
      own = child;
    }
  }
  const int key = action.reversesKeys ? -teamAt(action.team).placeOf(rank_) : 7;
  ncclComm_t comm = nullptr;
  want(ncclCommSplit(commAt(action.team), color, key, &comm, nullptr), "ncclCommSplit");
  if (own >= 0) {
    adopt(own, comm);
  } else if (comm != nullptr) {
    failHere("a communicator came of no colour");
  }
}

void RankRunner::shrink(const Action& action, int flags) {
  const Team& parent = teamAt(action.team);
  const Team& child = teamAt(action.children[0]);
  std::vector<int> excluded;
  for (int place = 0; place < parent.size(); ++place) {
    if (child.placeOf(parent.members[static_cast<size_t>(place)]) < 0) excluded.push_back(place);
  }
  ncclComm_t comm = nullptr;
  want(ncclCommShrink(commAt(action.team), excluded.data(), static_cast<int>(excluded.size()),
                      &comm, nullptr, flags),
       "ncclCommShrink");
  adopt(action.children[0], comm);
}

void RankRunner::destroy(int team, bool finalizes) {
  ncclComm_t& comm = commAt(team);
  if (comm == nullptr) return;
  if (finalizes) want(ncclCommFinalize(comm), "ncclCommFinalize");
  want(ncclCommDestroy(comm), "ncclCommDestroy");
  comm = nullptr;
}

// The runner lets the process go on: it sees that it stands.
void RankRunner::freeze(const Action& action) {
  const auto first = std::ranges::find(plan_.processOfRank, action.victim);
  if (first - plan_.processOfRank.begin() != rank_) return;
  // Everyone of that process who is in the team may be dead by now; then nobody comes here.
  say("freeze " + std::to_string(action.delayUs));
  // Not kill(): another thread may take that signal, and this one be at its next freeze by then.
  ::raise(SIGSTOP);
}

std::pair<ncclResult_t, std::string> RankRunner::loopUntilError(int team,
                                                                std::atomic<bool>* haveMet) {
  const auto deadline = steady_clock::now() + kPatience;
  const int64_t size = teamAt(team).size();
  while (steady_clock::now() < deadline) {
    std::vector<int64_t> values(64, 3);
    const ncclResult_t result = ncclAllReduce(values.data(), values.data(), values.size(),
                                              ncclInt64, ncclSum, commAt(team), nullptr);
    if (result != ncclSuccess) return {result, ncclGetLastError(nullptr)};
    if (values.front() != 3 * size || values.back() != 3 * size)
      failHere("WRONG sum in the loop: " + std::to_string(values.front()));
    if (haveMet != nullptr) haveMet->store(true, std::memory_order_release);
  }
  failHere("no error came: the fault went unnoticed");
}

void RankRunner::endWhileBusy(const Action& action) {
  if (!isMember(action.team)) return;
  ncclComm_t& comm = commAt(action.team);
  const bool aborts = action.kind == Kind::kAbort;
  const bool isVictim = action.victim == rank_;
  std::thread helper;
  if (isVictim) {
    helper = std::thread([this, &action, aborts, handle = comm] {
      std::this_thread::sleep_for(microseconds(action.delayUs));
      const auto start = steady_clock::now();
      want(aborts ? ncclCommAbort(handle) : ncclCommRevoke(handle, NCCL_REVOKE_DEFAULT),
           aborts ? "ncclCommAbort" : "ncclCommRevoke");
      if (steady_clock::now() - start > kAbortBound) failHere("the abort took too long");
    });
  }
  const auto [code, text] = loopUntilError(action.team);
  if (!isVictim && code != ncclRemoteError)
    failHere("a rank left, and the call gave " + std::to_string(code) + ": " + text);
  if (isVictim) helper.join();
  if (aborts) {
    if (!isVictim) want(ncclCommAbort(comm), "ncclCommAbort");
    comm = nullptr;
    return;
  }
  want(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT), "ncclCommRevoke");
  split(action);
  destroy(action.team, false);
}

void RankRunner::surviveDeath(const Action& action) {
  std::thread helper;
  const auto first = std::ranges::find(plan_.processOfRank, action.victim);
  const bool departs = first - plan_.processOfRank.begin() == rank_;
  // Not before all have come: else one that is behind finds a rank gone that its calls still need.
  std::atomic<bool> haveMet{false};
  if (departs) {
    helper = std::thread([&action, &haveMet] {
      while (!haveMet.load(std::memory_order_acquire))
        std::this_thread::sleep_for(microseconds(50));
      std::this_thread::sleep_for(microseconds(action.delayUs));
      depart(action.death);
    });
  }
  const auto [code, text] = loopUntilError(0, &haveMet);
  haveMet.store(true, std::memory_order_release);  // whatever came of it
  // One that stood still and was let go on learns that it was given up; it has nobody left.
  if (process() == action.victim) {
    if (helper.joinable()) helper.join();
    ::pause();
  }
  bool namesTheDead = false;
  for (int rank = 0; rank < plan_.rankCount(); ++rank) {
    if (plan_.processOfRank[static_cast<size_t>(rank)] == action.victim)
      namesTheDead |= text.find("rank " + std::to_string(rank)) != std::string::npos;
  }
  if (code != ncclRemoteError || !namesTheDead)
    failHere("a process died, and the call gave " + std::to_string(code) + ": " + text);
  shrink(action, NCCL_SHRINK_ABORT);
  for (size_t team = 0; team < comms_.size(); ++team) {
    if (comms_[team] == nullptr || static_cast<int>(team) == action.children[0]) continue;
    want(ncclCommAbort(comms_[team]), "ncclCommAbort");
    comms_[team] = nullptr;
  }
}

}  // namespace tutti::soak
