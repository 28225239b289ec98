#include "launch/block_accord.h"

#include <algorithm>

#include "base/log.h"

namespace tutti::launch {
namespace {

constexpr uint32_t kJudged = 16;          // launches at a time
constexpr uint64_t kLead = 16;            // calls from a proposal to what it is about
constexpr uint32_t kMostQuiet = 1 << 14;  // launches

enum class State : uint64_t { kNone = 0, kProposed = 1, kAgreed = 2, kRefused = 3 };

constexpr uint64_t wordOf(uint64_t call, bool saves, State state) {
  return call << 3 | uint64_t{saves} << 2 | static_cast<uint64_t>(state);
}
constexpr uint64_t callIn(uint64_t word) { return word >> 3; }
constexpr bool savesIn(uint64_t word) { return (word >> 2 & 1) != 0; }
constexpr State stateIn(uint64_t word) { return static_cast<State>(word & 3); }

}  // namespace

// Condition: of the call that a rank has come to, and whether its GPU is busy.
template <typename Condition>
bool BlockAccord::areAll(const Condition& condition) const {
  for (int32_t rank = 0; rank < board_.rankCount(); ++rank) {
    const uint64_t word = board_.page(rank).longCalls.load();
    if (!condition(word >> 1, (word & 1) != 0)) return false;
  }
  return true;
}

bool BlockAccord::enter(uint64_t starts) {
  ++calls_;
  const bool isJudged = judge(starts);
  board_.page(rank_).longCalls.store(calls_ << 1 | uint64_t{isBusy_});
  const uint64_t word = board_.accord().load();
  if (word != settled_ && calls_ >= callIn(word)) settle(word);
  if (isJudged && isBusy_ != saves_) propose(isBusy_);
  return saves_;
}

void BlockAccord::settle(uint64_t word) {
  if (stateIn(word) == State::kProposed) {
    const uint64_t refused = wordOf(callIn(word), savesIn(word), State::kRefused);
    if (board_.accord().compare_exchange_strong(word, refused)) word = refused;
  }
  settled_ = word;
  if (stateIn(word) != State::kAgreed || savesIn(word) == saves_) return;
  saves_ = savesIn(word);
  if (saves_) {
    isBusy_ = true;  // until it has been quiet
    quiet_ = 0;
  } else {
    quietWanted_ = std::min(2 * quietWanted_, kMostQuiet);
  }
  log::info(log::Subsystem::kTuning, "rank {}: {} blocks from long call {} on, since {}", rank_,
            saves_ ? "fewer" : "all", calls_,
            saves_ ? "other kernels have the GPUs" : "no other kernels have the GPUs");
}

// False: too few launches since the last time.
bool BlockAccord::judge(uint64_t starts) {
  const uint32_t launches = static_cast<uint32_t>(starts >> 32) - launchesBefore_;
  if (launches < kJudged) return false;
  const uint32_t late = static_cast<uint32_t>(starts) - lateBefore_;
  launchesBefore_ += launches;
  lateBefore_ += late;
  if (saves_) {
    quiet_ = late <= launches / 16 ? quiet_ + launches : 0;
    isBusy_ = quiet_ < quietWanted_;
  } else {
    isBusy_ = late >= launches / 4;
  }
  return true;
}

void BlockAccord::propose(bool saves) {
  uint64_t word = board_.accord().load();
  if (stateIn(word) == State::kProposed) return;
  const uint64_t before = stateIn(word) == State::kAgreed ? callIn(word) : 0;
  const auto isPast = [&](uint64_t call, bool isBusy) {
    return call > before && (saves || !isBusy);
  };
  if (!areAll(isPast)) return;
  const uint64_t call = calls_ + kLead;
  uint64_t proposed = wordOf(call, saves, State::kProposed);
  if (!board_.accord().compare_exchange_strong(word, proposed)) return;
  const bool isAhead = areAll([&](uint64_t other, bool) { return other < call; });
  board_.accord().compare_exchange_strong(
      proposed, wordOf(call, saves, isAhead ? State::kAgreed : State::kRefused));
}

}  // namespace tutti::launch
