#include "launch/form_trial.h"

#include <gtest/gtest.h>

namespace tutti::launch {
namespace {

using Form = FormTrial::Form;
using std::chrono::microseconds;

struct Prices {
  Nanoseconds copy;
  Nanoseconds reference;
};

// So many calls, each as long as its form takes; returns how many were references.
int makeCalls(FormTrial& trial, int count, const Prices& prices) {
  int references = 0;
  for (int i = 0; i < count; ++i) {
    const bool isMeasured = trial.isMeasuring();
    const Form form = trial.next();
    if (form == Form::kReference) ++references;
    if (isMeasured) trial.ended(form == Form::kReference ? prices.reference : prices.copy);
  }
  return references;
}

// Until nothing is measured any more.
void settle(FormTrial& trial, const Prices& prices) {
  for (int i = 0; i < 1000 && trial.isMeasuring(); ++i) makeCalls(trial, 1, prices);
  ASSERT_FALSE(trial.isMeasuring());
}

TEST(FormTrial, KeepsTheFasterForm) {
  FormTrial trial;
  settle(trial, {.copy = microseconds(10), .reference = microseconds(6)});
  EXPECT_EQ(makeCalls(trial, 100, {}), 100);
  FormTrial other;
  settle(other, {.copy = microseconds(10), .reference = microseconds(15)});
  EXPECT_EQ(makeCalls(other, 100, {}), 0);
}

TEST(FormTrial, CopiesWhereReferencesGainNothing) {
  FormTrial trial;
  settle(trial, {.copy = microseconds(100), .reference = microseconds(99)});
  EXPECT_EQ(makeCalls(trial, 100, {}), 0);
}

TEST(FormTrial, TriesBothEquallyOftenAndBeginsWithCopies) {
  FormTrial trial;
  int calls = 0;
  int references = 0;
  EXPECT_EQ(trial.next(), Form::kCopy);
  for (; trial.isMeasuring(); ++calls)
    references += makeCalls(trial, 1, {.copy = microseconds(1), .reference = microseconds(1)});
  EXPECT_EQ(2 * references, calls);
}

TEST(FormTrial, OneOutlierEachWayDecidesNothing) {
  FormTrial trial;
  bool hasStalled = false;
  bool hasRun = false;
  while (trial.isMeasuring()) {
    const Form form = trial.next();
    Nanoseconds spent = microseconds(form == Form::kCopy ? 10 : 6);
    if (form == Form::kReference && !hasStalled) {
      spent = microseconds(5000);
      hasStalled = true;
    } else if (form == Form::kCopy && hasStalled && !hasRun) {
      spent = microseconds(1);
      hasRun = true;
    }
    trial.ended(spent);
  }
  EXPECT_EQ(makeCalls(trial, 100, {}), 100);
}

TEST(FormTrial, TriesAgainWhenTimesMayHaveChanged) {
  FormTrial trial;
  settle(trial, {.copy = microseconds(10), .reference = microseconds(6)});
  const Prices dearer{.copy = microseconds(10), .reference = microseconds(15)};
  for (int i = 0; i < 10000 && !trial.isMeasuring(); ++i) makeCalls(trial, 1, dearer);
  settle(trial, dearer);
  EXPECT_EQ(makeCalls(trial, 100, dearer), 0);
}

}  // namespace
}  // namespace tutti::launch
