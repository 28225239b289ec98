#include "launch/form_trial.h"

namespace tutti::launch {

void FormTrial::Shortest::add(Nanoseconds spent) {
  if (spent < first) {
    second = first;
    first = spent;
  } else if (spent < second) {
    second = spent;
  }
}

FormTrial::Form FormTrial::next() {
  if (kept_ == 0) return formOf(call_);
  --kept_;
  return form_;
}

void FormTrial::ended(Nanoseconds spent) {
  if (call_ % kWindow != 0) shortest_[static_cast<size_t>(formOf(call_))].add(spent);
  if (++call_ == kTrialCalls) decide();
}

// References must gain something: they make the sender wait for its readers.
void FormTrial::decide() {
  const Nanoseconds copy = shortest_[static_cast<size_t>(Form::kCopy)].second;
  const Nanoseconds reference = shortest_[static_cast<size_t>(Form::kReference)].second;
  form_ = reference < copy - copy / 20 ? Form::kReference : Form::kCopy;
  kept_ = kKeptCalls;
  call_ = 0;
  shortest_ = {};
}

}  // namespace tutti::launch
