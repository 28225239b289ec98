#include "launch/form_trial.h"

#include <algorithm>
#include <utility>

namespace tutti::launch {
namespace {

// References make a sender wait for its readers, and another algorithm takes links: they must gain
// something.
bool isBetter(Nanoseconds candidate, Nanoseconds than) { return candidate < than - than / 20; }

}  // namespace

void FormTrial::Windows::end() {
  ended_[count_++] = std::exchange(open_, {});
  std::sort(ended_.begin(), ended_.begin() + count_);
}

Nanoseconds FormTrial::Windows::time() const { return ended_[count_ > 1 ? 1 : 0]; }

FormTrial::Turn FormTrial::next() const {
  switch (phase_) {
    case Phase::kWatch: return {.form = Form::kReference, .agrees = couldRefer_};
    case Phase::kSettle: return {.form = Form::kCopy, .agrees = saysLong(), .isMeasured = true};
    case Phase::kTrial: return {.form = formOf(call_), .agrees = saysLong(), .isMeasured = true};
    case Phase::kVerdict: return {.form = own_, .agrees = wantsOther_};
    case Phase::kKept:
      return {.form = kept_,
              .agrees = kept_ == Form::kOther ? couldRefer_ && !doubts() : doubts(),
              .isMeasured = limit_ > Nanoseconds()};
  }
  return {};
}

void FormTrial::ended(const Outcome& outcome) {
  if (outcome.at != Instant()) lastEnd_ = outcome.at;
  switch (phase_) {
    case Phase::kWatch: watch(outcome); return;
    case Phase::kSettle:
      count(outcome.spent);
      isSettled_ = ++call_ == kSettlingCalls || isLongEnough(outcome);
      if (isSettled_) start(Phase::kTrial);
      return;
    case Phase::kTrial: tried(outcome); return;
    case Phase::kVerdict: keep(outcome.isAgreed ? Form::kOther : own_); return;
    case Phase::kKept: kept(outcome); return;
  }
}

void FormTrial::tried(const Outcome& outcome) {
  Windows& windows = windows_[static_cast<size_t>(formOf(call_))];
  if (call_ % kWindow != 0) windows.add(outcome.spent);
  count(outcome.spent);
  ++call_;
  if (call_ % kWindow == 0) windows.end();
  const uint32_t round = formCount() * kWindow;
  const bool isLast = call_ == kRounds * round || isLongEnough(outcome);
  if (call_ % round == 0 && isLast) endTrial();
}

// By the word of all the answer is doubted, and by that of one where it is the other algorithm.
void FormTrial::kept(const Outcome& outcome) {
  couldRefer_ = outcome.couldRefer && !outcome.isCopyOnly;
  const bool isOther = kept_ == Form::kOther;
  isCopyOnly_ = outcome.isCopyOnly;
  ++call_;
  watchAnswer(outcome.spent);
  const bool isOver = outcome.isAgreed != isOther;
  if (!isOver && call_ != kKeptCalls) return;
  isDoubted_ = isOver && slowWindows_ >= 2;
  start(isOver && !isOther ? Phase::kTrial : Phase::kWatch);
}

// What calls that can only copy take says nothing of the others.
bool FormTrial::doubts() const {
  if (limit_ == Nanoseconds() || isCopyOnly_) return false;
  if (slowWindows_ >= 2 && call_ >= trust_) return true;
  return kept_ != Form::kCopy && lastEnd_ >= goodUntil_ && call_ >= kReferencesKeptCalls;
}

void FormTrial::watchAnswer(Nanoseconds spent) {
  if (isCopyOnly_) {
    window_ = {};
    slowWindows_ = 0;
    return;
  }
  if (limit_ == Nanoseconds()) return;
  window_ += spent;
  if (call_ % kCounted == 0)
    slowWindows_ = std::exchange(window_, {}) > limit_ ? slowWindows_ + 1 : 0;
}

void FormTrial::watch(const Outcome& outcome) {
  const uint32_t patience = outcome.isLong && !isSettled_ ? kPatientCalls : 0;
  couldRefer_ = outcome.couldRefer && outcome.isMapped && call_ >= patience;
  if (outcome.couldRefer) ++call_;
  const bool isAlone = !hasOther_ && call_ == patience + kSettlingCalls;
  if (isAlone || (canAgree_ ? outcome.isAgreed : couldRefer_))
    start(isSettled_ ? Phase::kTrial : Phase::kSettle);
}

// The first call's time may reach back to the last one that was measured.
void FormTrial::count(Nanoseconds spent) {
  if (call_ > 0) tried_ += spent;
}

void FormTrial::start(Phase phase) {
  phase_ = phase;
  call_ = 0;
  tried_ = {};
  windows_ = {};
}

void FormTrial::endTrial() {
  own_ = isBetter(timeOf(Form::kReference), timeOf(Form::kCopy)) ? Form::kReference : Form::kCopy;
  wantsOther_ = isBetter(timeOf(Form::kOther), timeOf(own_));
  if (hasOther_) {
    phase_ = Phase::kVerdict;
  } else {
    keep(own_);
  }
}

void FormTrial::keep(Form form) {
  const bool isConfirmed = std::exchange(isDoubted_, false) && form == kept_;
  trust_ = isConfirmed ? std::min(2 * trust_, kKeptCalls) : kLeastTrust;
  phase_ = Phase::kKept;
  kept_ = form;
  couldRefer_ = true;
  noteLimit();
  call_ = 0;
}

// After as many calls as the trial had.
void FormTrial::noteLimit() {
  limit_ = {};
  window_ = {};
  slowWindows_ = 0;
  const Nanoseconds own = timeOf(kept_);
  if (!canAgree_ || own < kCounted * kLeastWatched) return;
  Nanoseconds beaten = Nanoseconds::max() / 2;
  Nanoseconds cost{};
  for (uint32_t i = 0; i < formCount(); ++i) {
    const auto form = static_cast<Form>(i);
    if (form == kept_) continue;
    beaten = std::min(beaten, timeOf(form));
    cost += std::max(timeOf(form) - own, Nanoseconds());
  }
  limit_ = std::max(beaten + beaten / 8, own + own / 2);
  const uint32_t rounds = call_ / (formCount() * kWindow);
  goodUntil_ = lastEnd_ + std::max(kReferencesKept, kKeptForCost * rounds * cost);
}

}  // namespace tutti::launch
