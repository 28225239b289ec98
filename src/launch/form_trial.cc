#include "launch/form_trial.h"

namespace tutti::launch {
namespace {

// References make a sender wait for its readers, and another algorithm takes links: they must gain
// something.
bool isBetter(Nanoseconds candidate, Nanoseconds than) { return candidate < than - than / 20; }

}  // namespace

void FormTrial::Shortest::add(Nanoseconds spent) {
  if (spent < first) {
    second = first;
    first = spent;
  } else if (spent < second) {
    second = spent;
  }
}

FormTrial::Turn FormTrial::next() const {
  switch (phase_) {
    case Phase::kWatch: return {.form = Form::kReference, .agrees = couldRefer_};
    case Phase::kSettle: return {.form = Form::kCopy, .agrees = saysLong(), .isMeasured = true};
    case Phase::kTrial: return {.form = formOf(call_), .agrees = saysLong(), .isMeasured = true};
    case Phase::kVerdict: return {.form = own_, .agrees = wantsOther_};
    case Phase::kKept: return {.form = kept_, .agrees = kept_ == Form::kOther && couldRefer_};
  }
  return {};
}

void FormTrial::ended(const Outcome& outcome) {
  switch (phase_) {
    case Phase::kWatch: watch(outcome); return;
    case Phase::kSettle:
      count(outcome.spent);
      isSettled_ = ++call_ == kSettlingCalls || isLongEnough(outcome);
      if (isSettled_) start(Phase::kTrial);
      return;
    case Phase::kTrial:
      if (call_ % kWindow != 0) shortest_[static_cast<size_t>(formOf(call_))].add(outcome.spent);
      count(outcome.spent);
      ++call_;
      if (call_ >= formCount() * kWindow * (isLongEnough(outcome) ? 1 : kRounds)) endTrial();
      return;
    case Phase::kVerdict: keep(outcome.isAgreed ? Form::kOther : own_); return;
    case Phase::kKept:
      couldRefer_ = outcome.couldRefer;
      const bool isRefused = kept_ == Form::kOther && !outcome.isAgreed;
      if (++call_ == kKeptCalls || isRefused) start(Phase::kWatch);
      return;
  }
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
  shortest_ = {};
}

void FormTrial::endTrial() {
  const auto time = [this](Form form) { return shortest_[static_cast<size_t>(form)].second; };
  own_ = isBetter(time(Form::kReference), time(Form::kCopy)) ? Form::kReference : Form::kCopy;
  wantsOther_ = isBetter(time(Form::kOther), time(own_));
  if (hasOther_) {
    phase_ = Phase::kVerdict;
  } else {
    keep(own_);
  }
}

void FormTrial::keep(Form form) {
  phase_ = Phase::kKept;
  call_ = 0;
  kept_ = form;
  couldRefer_ = true;
}

}  // namespace tutti::launch
