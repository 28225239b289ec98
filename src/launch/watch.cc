#include "launch/watch.h"

#include <algorithm>
#include <utility>

#include "base/futex.h"
#include "base/log.h"
#include "observe/activity.h"

namespace tutti::launch {
namespace {

using observe::Life;
using observe::OperationNote;
using observe::ProcessState;
using observe::RankView;
using observe::Verdict;
using observe::WaitNote;

// Shorter waits are ordinary; a look costs some 10 us a rank that is awaited.
constexpr Nanoseconds kLookInterval = std::chrono::milliseconds(100);

// Processes of ranks that are not awaited whose state a look asks for, at some 10 us each.
constexpr int32_t kPeeksALook = 8;

double seconds(Nanoseconds span) { return std::chrono::duration<double>(span).count(); }

// Empty for a rank that may still call.
std::string_view howLeft(Life life) {
  switch (life) {
    case Life::kFinalized: return "finalized";
    case Life::kDestroyed: return "destroyed";
    case Life::kAborted: return "aborted";
    case Life::kAbsent:
    case Life::kElsewhere:
    case Life::kReady:
    case Life::kExited: break;
  }
  return {};
}

// With its part of that collective; only what its page no longer shows is not known.
bool mayBeThrough(const RankView& rank, uint64_t sequence) {
  const OperationNote* newest = rank.newestCollective();
  if (newest == nullptr) return rank.history.size() >= observe::kHistory;
  return newest->sequence > sequence ||
         (newest->sequence == sequence && newest->state == observe::EntryState::kDone);
}

Verdict stopVerdict(const RankView& peer, Nanoseconds span) {
  return {.code = Code::kRemoteError,
          .guilty = peer.rank,
          .text = fmt::format("{} not responding for {:.1f} s (alive, stopped){}; TUTTI_TIMEOUT_MS "
                              "sets how long that may last",
                              observe::who(peer), seconds(span), observe::lastCallClause(peer))};
}

}  // namespace

bool isDead(observe::Recorder& recorder, int32_t rank) {
  const RankView view = observe::readRank(recorder.board(), rank);
  return observe::stateOf(view.process, recorder.pidNamespace()) == ProcessState::kDead;
}

Status Watch::verdict() const {
  if (!hasVerdict()) return {};
  const Verdict verdict = parts_.recorder.board().verdict();
  const bool isUs = verdict.guilty == parts_.recorder.rank() && verdict.code == Code::kRemoteError;
  return Status(verdict.code,
                isUs ? "this rank was given up by the others: " + verdict.text : verdict.text);
}

transport::Parting Watch::parting() const {
  observe::Board& board = parts_.recorder.board();
  if (!board.hasVerdict()) return {};
  Verdict verdict = board.verdict();
  return {.guilty = verdict.guilty, .text = std::move(verdict.text), .code = verdict.code};
}

std::string Watch::lastCall() const {
  return observe::lastCall(observe::readRank(parts_.recorder.board(), parts_.recorder.rank()));
}

std::string Watch::lastCallOf(int32_t rank) const {
  return lastCallOf(observe::readRank(parts_.recorder.board(), rank));
}

// What a rank of another host has told is all that is known of it here.
std::string Watch::lastCallOf(RankView view) const {
  far_.addTold(view);
  return observe::lastCallClause(view);
}

bool Watch::isDue(int64_t idleNanoseconds) {
  if (idleNanoseconds < kLookInterval.count()) return false;
  const Instant now = parts_.clock.now();
  if (now < nextLook_) return false;
  nextLook_ = now + kLookInterval;
  return true;
}

Status Watch::give(Verdict verdict) {
  if (!parts_.recorder.giveVerdict(verdict)) {
    // Another rank's came first. It may still be written: ours could blame one that left for what
    // that one says. Who does not end it has died amid it.
    for (int looks = 1;; ++looks) {
      if (Status first = this->verdict(); !first.ok()) return first;
      if (looks == kDeathLooks) break;
      sleepFor(kBetweenDeathLooks);
    }
  }
  return makeError(verdict.code, std::move(verdict.text));
}

Status Watch::giveTold(int32_t peer) {
  std::vector<RankView> ranks = observe::readBoard(parts_.recorder.board());
  Verdict told = far_.toldBy(ranks, {&peer, 1});
  return told.code == Code::kOk ? Status() : give(std::move(told));
}

Status Watch::compareCalls() {
  if (Status known = verdict(); !known.ok())
    return known.code() == Code::kInvalidUsage ? std::move(known) : Status();
  const auto ranks = observe::readBoard(parts_.recorder.board());
  if (auto verdict = observe::findMismatch(ranks, observe::kHistory))
    return give(std::move(*verdict));
  return {};
}

Status Watch::look(std::span<const WaitNote> waits, int64_t idleNanoseconds,
                   std::span<const int32_t> carriers) {
  const Instant now = parts_.clock.now();
  const int64_t since = static_cast<int64_t>(now) - idleNanoseconds;
  // Between two waits nobody looked: who stood still in the one before has gone on since.
  const auto isOld = [&](const Suspect& suspect) {
    return static_cast<int64_t>(suspect.since) < since;
  };
  std::erase_if(stopped_, isOld);
  std::erase_if(moved_, isOld);
  std::vector<WaitNote> notes(waits.begin(), waits.end());
  for (WaitNote& note : notes) note.since = quietSince(note.peer, since, now);
  parts_.recorder.publishWaits(notes.data(), notes.size());
  far_.beginLook();

  std::vector<RankView> ranks = observe::readBoard(parts_.recorder.board());
  if (auto verdict = judgePeers(ranks, now)) return give(std::move(*verdict));
  if (auto verdict = judgeCarriers(ranks, carriers, now)) return give(std::move(*verdict));
  if (auto verdict = judgeAbsentees(ranks)) return give(std::move(*verdict));
  if (Verdict told = far_.addAwaited(ranks, parts_.recorder.rank()); told.code != Code::kOk)
    return give(std::move(told));
  if (auto verdict = observe::findMismatch(ranks)) return give(std::move(*verdict));
  if (idleNanoseconds >= circleAge()) {
    if (auto verdict = judgeCircle(ranks, now)) return give(std::move(*verdict));
  }
  if (idleNanoseconds >= parts_.timeout.count() / 2) warnOnce(ranks, idleNanoseconds);
  return {};
}

// One that stands for this long is none of messages on their way. Between hosts they may be longer
// on it, or lost.
std::optional<Verdict> Watch::judgeCircle(const std::vector<RankView>& ranks, Instant now) const {
  const auto circle = observe::findCycle(ranks, static_cast<int64_t>(now), circleAge());
  if (circle.empty() || !areAlive(ranks, circle)) return std::nullopt;
  const auto isFar = [&](int32_t rank) {
    return ranks[static_cast<size_t>(rank)].life == Life::kElsewhere;
  };
  if (std::ranges::any_of(circle, isFar) && !observe::isOfCalls(ranks, circle)) return std::nullopt;
  return observe::cycleVerdict(ranks, circle);
}

// What a stopped or dead rank waits for is old news.
bool Watch::areAlive(const std::vector<RankView>& ranks, std::span<const int32_t> some) const {
  return std::ranges::all_of(some, [&](int32_t rank) {
    const ProcessState state =
        observe::stateOf(ranks[static_cast<size_t>(rank)].process, parts_.recorder.pidNamespace());
    return state != ProcessState::kStopped && state != ProcessState::kDead;
  });
}

std::optional<Verdict> Watch::judgePeers(const std::vector<RankView>& ranks, Instant now) {
  const RankView& self = ranks[static_cast<size_t>(parts_.recorder.rank())];
  for (const WaitNote& wait : self.waits) {
    const RankView& peer = ranks[static_cast<size_t>(wait.peer)];
    const OperationNote* waiting = self.operation(wait.number);
    const ProcessState state = observe::stateOf(peer.process, parts_.recorder.pidNamespace());
    if (auto verdict = judgeLife(peer, self, {.state = state, .waiting = waiting})) return verdict;
    if (auto verdict = judgeStop(peer, state, now)) return verdict;
    // Of another host, or in a container whose processes cannot be seen, say.
    if (state != ProcessState::kUnknown) continue;
    if (auto verdict = judgeSilence(peer, now)) return verdict;
  }
  return std::nullopt;
}

// Their users may do what they like; that a process has died, its channel tells.
std::optional<Verdict> Watch::judgeCarriers(const std::vector<RankView>& ranks,
                                            std::span<const int32_t> carriers, Instant now) {
  for (const int32_t carrier : carriers) {
    const RankView& view = ranks[static_cast<size_t>(carrier)];
    const ProcessState state = observe::stateOf(view.process, parts_.recorder.pidNamespace());
    if (auto verdict = judgeStop(view, state, now)) return verdict;
    if (state != ProcessState::kUnknown) continue;
    if (auto verdict = judgeSilence(view, now)) return verdict;
  }
  return std::nullopt;
}

// A collective needs all its ranks: one that has left or died before it, or amid it, ends it also
// for those that wait for another rank, which may be late for as long as it likes.
std::optional<Verdict> Watch::judgeAbsentees(const std::vector<RankView>& ranks) {
  const RankView& self = ranks[static_cast<size_t>(parts_.recorder.rank())];
  const OperationNote* waiting =
      self.waits.empty() ? nullptr : self.operation(self.waits.front().number);
  if (waiting == nullptr || isPointToPoint(waiting->collective)) return std::nullopt;
  const auto first = static_cast<size_t>(
      std::exchange(nextPeek_, (nextPeek_ + kPeeksALook) % static_cast<int32_t>(ranks.size())));
  for (const RankView& rank : ranks) {
    // Who is awaited was judged before, and twice in one look is once too often.
    if (rank.rank == self.rank ||
        std::ranges::find(self.waits, rank.rank, &WaitNote::peer) != self.waits.end())
      continue;
    const size_t place = (static_cast<size_t>(rank.rank) + ranks.size() - first) % ranks.size();
    const ProcessState state = place < kPeeksALook
                                   ? observe::stateOf(rank.process, parts_.recorder.pidNamespace())
                                   : ProcessState::kUnknown;
    if (howLeft(rank.life).empty() && state != ProcessState::kDead) continue;
    if (mayBeThrough(rank, waiting->sequence)) continue;
    if (auto verdict = judgeLife(rank, self, {.state = state, .waiting = waiting})) return verdict;
  }
  return std::nullopt;
}

// A rank that has left or died sends nothing more. What it sent before, to us or to those we wait
// for, may have come after our last poll, so the judgement falls at the second look.
std::optional<Verdict> Watch::judgeLife(const RankView& peer, const RankView& self,
                                        const Seen& seen) {
  const OperationNote* waiting = seen.waiting;
  const bool isDead = seen.state == ProcessState::kDead;
  const std::string_view how = howLeft(peer.life);
  if (how.empty() && !isDead) return std::nullopt;
  if (std::ranges::find(gone_, peer.rank, &Suspect::rank) == gone_.end()) {
    gone_.push_back({.rank = peer.rank});
    return std::nullopt;
  }
  if (isDead) return observe::deathVerdict(peer, self, waiting);
  return Verdict{.code = Code::kRemoteError,
                 .guilty = peer.rank,
                 .text = fmt::format("{} has {} its communicator while rank {} waits for it{}; {}",
                                     observe::who(peer), how, parts_.recorder.rank(),
                                     waiting == nullptr ? "" : " in " + observe::what(*waiting),
                                     observe::lastCall(peer))};
}

std::optional<Verdict> Watch::judgeStop(const RankView& peer, ProcessState state, Instant now) {
  const auto found = std::ranges::find(stopped_, peer.rank, &Suspect::rank);
  if (state != ProcessState::kStopped) {
    if (found != stopped_.end()) stopped_.erase(found);
    return std::nullopt;
  }
  if (found == stopped_.end()) {
    stopped_.push_back({.rank = peer.rank, .since = now});
    return std::nullopt;
  }
  // The stop was seen up to one interval after it began.
  const Nanoseconds seen = now - found->since + kLookInterval;
  if (seen < parts_.timeout) return std::nullopt;
  return stopVerdict(peer, seen);
}

// Of another host, or one whose process cannot be looked at: its service thread answers while its
// process runs and the network carries. An answer may queue for long behind messages on a slow
// wire; then these arrive.
std::optional<Verdict> Watch::judgeSilence(const RankView& view, Instant now) {
  if (parts_.bootstrap == nullptr) return std::nullopt;
  const int32_t rank = view.rank;
  auto found = std::ranges::find(silent_, rank, &Suspect::rank);
  if (found == silent_.end()) found = silent_.insert(found, {.rank = rank, .since = now});
  // Whoever has answered since is asked anew by this look.
  const auto sign = parts_.bootstrap->lastSign(Rank{rank});
  if (sign && sign->last >= found->since) found->since = now;
  far_.ask(rank);
  const uint64_t arrived = parts_.arrivedBytes ? parts_.arrivedBytes(Rank{rank}) : 0;
  if (std::exchange(found->arrivedBytes, arrived) != arrived) found->since = now;
  const Nanoseconds silence = now - found->since + kLookInterval;
  if (silence < parts_.timeout) return std::nullopt;
  const bootstrap::PeerInfo& peer = (*parts_.peers)[static_cast<size_t>(rank)];
  return Verdict{.code = Code::kRemoteError,
                 .guilty = rank,
                 .text = fmt::format(
                     "{} gave rank {} no sign of life for {:.1f} s: its process has "
                     "ended or stands still, or the network to it is cut{}; "
                     "TUTTI_TIMEOUT_MS sets how long that may last",
                     describe(peer), parts_.recorder.rank(), seconds(silence), lastCallOf(view))};
}

// A long message on a slow wire is not here yet, but no circle either.
int64_t Watch::quietSince(int32_t peer, int64_t since, Instant now) {
  if (!parts_.arrivedBytes) return since;
  const uint64_t arrived = parts_.arrivedBytes(Rank{peer});
  auto found = std::ranges::find(moved_, peer, &Suspect::rank);
  if (found == moved_.end())
    found = moved_.insert(
        found, {.rank = peer, .since = static_cast<Instant>(since), .arrivedBytes = arrived});
  if (std::exchange(found->arrivedBytes, arrived) != arrived) found->since = now;
  return static_cast<int64_t>(found->since);
}

void Watch::warnOnce(const std::vector<RankView>& ranks, int64_t idleNanoseconds) {
  const RankView& self = ranks[static_cast<size_t>(parts_.recorder.rank())];
  if (self.waits.empty()) return;
  const WaitNote& wait = self.waits.front();
  if (warnedNumber_ == wait.number) return;
  warnedNumber_ = wait.number;
  const auto chain = observe::followWaits(ranks, self.rank);
  const RankView& last = ranks[static_cast<size_t>(chain.back())];
  std::string activity;
  if (observe::isOutside(last)) {
    activity = observe::activityOf(last.process, last.threadId, parts_.recorder.pidNamespace());
    if (!activity.empty()) activity.insert(0, "; it is outside the library, ");
  }
  log::warn("{} for {:.1f} s; {}{}", observe::waitText(self, wait),
            seconds(Nanoseconds(idleNanoseconds)),
            observe::whyLate(last, self, self.operation(wait.number)), activity);
}

const RankView* Watch::findDead(const std::vector<RankView>& ranks) const {
  const auto isDead = [this](const RankView& rank) {
    return howLeft(rank.life).empty() &&
           observe::stateOf(rank.process, parts_.recorder.pidNamespace()) == ProcessState::kDead;
  };
  const auto found = std::ranges::find_if(ranks, isDead);
  return found == ranks.end() ? nullptr : &*found;
}

Status Watch::explain(Status error, uint64_t operation, std::span<const int32_t> peers) {
  if (Status known = verdict(); !known.ok()) return known;
  std::vector<RankView> ranks = observe::readBoard(parts_.recorder.board());
  const RankView& self = ranks[static_cast<size_t>(parts_.recorder.rank())];
  const OperationNote* own = self.operation(operation);
  const bool isOfPeers =
      error.code() == Code::kRemoteError && own != nullptr && !isPointToPoint(own->collective);
  if (Verdict told = far_.toldBy(ranks, peers); told.code != Code::kOk)
    return give(std::move(told));
  for (int looks = 1;; ++looks) {
    for (const int32_t peer : peers) {
      const RankView& other = ranks[static_cast<size_t>(peer)];
      const ProcessState state = observe::stateOf(other.process, parts_.recorder.pidNamespace());
      if (state == ProcessState::kDead) return give(observe::deathVerdict(other, self, own));
      if (state == ProcessState::kStopped) return give(stopVerdict(other, parts_.timeout));
    }
    // A rank that learned of a death leaves, and who waits for that one would blame it.
    if (const RankView* dead = isOfPeers ? findDead(ranks) : nullptr)
      return give(observe::deathVerdict(*dead, self, own));
    if (error.code() != Code::kRemoteError || looks == kDeathLooks) break;
    sleepFor(kBetweenDeathLooks);
    if (Status known = verdict(); !known.ok()) return known;
  }
  if (error.code() != Code::kInvalidUsage) return tell(std::move(error), self, own);
  far_.addFresh(ranks, peers);
  if (Verdict told = far_.toldBy(ranks, peers); told.code != Code::kOk)
    return give(std::move(told));
  if (own != nullptr && own->collective == Collective::kRecv && own->peer >= 0 &&
      own->peer < parts_.recorder.board().rankCount()) {
    if (auto verdict = observe::compareTransfer(ranks, self.rank, own->peer, *own))
      return give(std::move(*verdict));
  }
  if (auto verdict = observe::findMismatch(ranks, observe::kHistory))
    return give(std::move(*verdict));
  return tell(std::move(error), self, own);
}

// This rank's error, of which the others hear as their verdict.
Status Watch::tell(Status error, const RankView& self, const OperationNote* own) {
  parts_.recorder.giveVerdict(
      {.code = Code::kRemoteError,
       .guilty = self.rank,
       .text = fmt::format("{} failed{}: {}", observe::who(self),
                           own == nullptr ? "" : " in " + observe::what(*own), error.message())});
  return error;
}

}  // namespace tutti::launch
