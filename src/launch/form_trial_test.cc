#include "launch/form_trial.h"

#include <gtest/gtest.h>

#include <array>

#include "base/rng.h"

namespace tutti::launch {
namespace {

using Form = FormTrial::Form;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// By form.
struct Prices {
  int copy = 0;
  int reference = 0;
  int other = 0;
  Nanoseconds of(Form form) const {
    switch (form) {
      case Form::kCopy: return microseconds(copy);
      case Form::kReference: return microseconds(reference);
      case Form::kOther: return microseconds(other);
    }
    return {};
  }
};

// One call of a rank that can refer and whose peers do as it does.
Form makeCall(FormTrial& trial, const Prices& prices, Instant end = {}) {
  const FormTrial::Turn turn = trial.next();
  trial.ended(
      {.couldRefer = true, .isAgreed = turn.agrees, .spent = prices.of(turn.form), .at = end});
  return turn.form;
}

int countOf(FormTrial& trial, Form form, int calls, const Prices& prices) {
  int count = 0;
  for (int i = 0; i < calls; ++i) count += makeCall(trial, prices) == form ? 1 : 0;
  return count;
}

// Through the first trial.
void settle(FormTrial& trial, const Prices& prices) {
  bool hasTried = false;
  for (int i = 0; i < 100; ++i) {
    if (hasTried && !trial.isTrying()) break;
    hasTried |= trial.isTrying();
    makeCall(trial, prices);
  }
  ASSERT_TRUE(hasTried);
  makeCall(trial, prices);
}

TEST(FormTrial, LongCallsOfMappedMemoryAreNotTriedAtOnce) {
  for (const bool canAgree : {false, true}) {
    FormTrial trial(false, canAgree);
    int calls = 0;
    for (; !trial.next().isMeasured; ++calls) {
      ASSERT_LT(calls, 1000);
      const FormTrial::Turn turn = trial.next();
      EXPECT_EQ(turn.form, Form::kReference);
      trial.ended({.couldRefer = true, .isAgreed = turn.agrees, .isLong = true});
    }
    EXPECT_GE(calls, 100);
    EXPECT_LE(calls, 102);
    settle(trial, {.copy = 6, .reference = 10});
    EXPECT_EQ(countOf(trial, Form::kCopy, 100, {}), 100);
  }
}

// Whose peers' memory is not mapped.
TEST(FormTrial, ARankThatIsAloneTriesLongCallsInTheEnd) {
  FormTrial trial(false, true);
  int calls = 0;
  for (; !trial.next().isMeasured && calls < 1000; ++calls)
    trial.ended({.couldRefer = true, .isLong = true});
  EXPECT_GT(calls, 100);
  EXPECT_LT(calls, 200);
}

TEST(FormTrial, KeepsTheFasterForm) {
  for (const bool hasOther : {false, true}) {
    FormTrial trial(hasOther, true);
    settle(trial, {.copy = 10, .reference = 6, .other = 20});
    EXPECT_EQ(countOf(trial, Form::kReference, 100, {}), 100);
    FormTrial second(hasOther, true);
    settle(second, {.copy = 10, .reference = 15, .other = 20});
    EXPECT_EQ(countOf(second, Form::kCopy, 100, {}), 100);
  }
  FormTrial third(true, true);
  settle(third, {.copy = 10, .reference = 6, .other = 4});
  EXPECT_EQ(countOf(third, Form::kOther, 100, {}), 100);
}

TEST(FormTrial, CopiesWhereReferencesGainNothing) {
  FormTrial trial;
  settle(trial, {.copy = 100, .reference = 99});
  EXPECT_EQ(countOf(trial, Form::kCopy, 100, {}), 100);
}

TEST(FormTrial, TriesNothingUntilMessagesCanBeReferences) {
  FormTrial trial;
  for (int i = 0; i < 100; ++i) {
    const FormTrial::Turn turn = trial.next();
    EXPECT_FALSE(turn.isMeasured);
    EXPECT_EQ(turn.form, Form::kReference);
    trial.ended({.couldRefer = false, .isAgreed = false, .spent = {}});
  }
}

TEST(FormTrial, OneOutlierEachWayDecidesNothing) {
  FormTrial trial;
  makeCall(trial, {});
  bool hasStalled = false;
  bool hasRun = false;
  while (trial.next().isMeasured) {
    const Form form = trial.next().form;
    Prices prices{.copy = 10, .reference = 6};
    if (form == Form::kReference && !hasStalled) {
      prices.reference = 5000;
      hasStalled = true;
    } else if (form == Form::kCopy && hasStalled && !hasRun) {
      prices.copy = 1;
      hasRun = true;
    }
    makeCall(trial, prices);
  }
  EXPECT_EQ(countOf(trial, Form::kReference, 100, {}), 100);
}

// A rank that comes first finds no message and waits; in the next call it finds one. What counts is
// both together, not the shorter.
TEST(FormTrial, CallsThatTakeTurnsCountTogether) {
  for (const int first : {0, 1}) {
    FormTrial trial;
    makeCall(trial, {});
    for (int call = first; trial.next().isMeasured; ++call)
      makeCall(trial, {.copy = call % 2 == 0 ? 4 : 10, .reference = 6});
    EXPECT_FALSE(trial.keepsCopies());
  }
}

TEST(FormTrial, TriesAgainWhenTimesMayHaveChanged) {
  FormTrial trial;
  settle(trial, {.copy = 10, .reference = 6});
  const Prices dearer{.copy = 10, .reference = 15};
  for (int i = 0; i < 10000 && !trial.next().isMeasured; ++i) makeCall(trial, dearer);
  settle(trial, dearer);
  EXPECT_EQ(countOf(trial, Form::kCopy, 100, dearer), 100);
}

// Whatever each rank's clock says and whatever buffers its calls come with.
TEST(FormTrial, AllRanksTakeTheOtherAlgorithmAtTheSameCalls) {
  SeededRng rng(20261121);
  int others = 0;
  for (int round = 0; round < 20; ++round) {
    std::array<FormTrial, 3> ranks = {FormTrial(true, true), FormTrial(true, true),
                                      FormTrial(true, true)};
    for (int call = 0; call < 3000; ++call) {
      std::array<FormTrial::Turn, 3> turns;
      bool isAgreed = true;
      for (size_t rank = 0; rank < ranks.size(); ++rank) {
        turns[rank] = ranks[rank].next();
        isAgreed = isAgreed && turns[rank].agrees;
        ASSERT_EQ(turns[rank].form == Form::kOther, turns[0].form == Form::kOther);
      }
      others += turns[0].form == Form::kOther ? 1 : 0;
      for (size_t rank = 0; rank < ranks.size(); ++rank) {
        const bool isCheap = turns[rank].form == Form::kOther && rng.below(10) > 0;
        ranks[rank].ended({.couldRefer = rng.below(200) > 0,
                           .isAgreed = isAgreed,
                           .spent = microseconds(isCheap ? 10 : 100 + rng.below(100))});
      }
    }
  }
  EXPECT_GT(others, 20 * 3000 / 4);
}

// Where some send copies while others read, each would time a mixture.
TEST(FormTrial, RanksTryFormsAtTheSameCallsWhateverTheirClocksSay) {
  SeededRng rng(20261125);
  for (int round = 0; round < 50; ++round) {
    std::array<FormTrial, 4> ranks;
    ranks.fill(FormTrial(false, true));
    int tried = 0;
    for (int call = 0; call < 60; ++call) {
      std::array<FormTrial::Turn, 4> turns;
      bool isAgreed = true;
      for (size_t rank = 0; rank < ranks.size(); ++rank) {
        turns[rank] = ranks[rank].next();
        isAgreed = isAgreed && turns[rank].agrees;
        ASSERT_EQ(ranks[rank].isTrying(), ranks[0].isTrying()) << "call " << call;
        ASSERT_TRUE(!ranks[0].isTrying() || turns[rank].form == turns[0].form) << "call " << call;
      }
      tried += ranks[0].isTrying() ? 1 : 0;
      for (FormTrial& rank : ranks) {
        rank.ended({.couldRefer = true,
                    .isMapped = call > 5 || rng.below(3) > 0,
                    .isAgreed = isAgreed,
                    .spent = microseconds(500 + rng.below(3000))});
      }
    }
    EXPECT_GT(tried, 8);
    EXPECT_LT(tried, 45) << "long calls are tried less";
  }
}

TEST(FormTrial, WaitsForMemoryToBeMappedAndNotForEver) {
  for (const bool isMapped : {true, false}) {
    FormTrial trial(false, true);
    int calls = 0;
    for (; calls < 100 && !trial.next().isMeasured; ++calls) {
      const FormTrial::Turn turn = trial.next();
      trial.ended(
          {.couldRefer = true, .isMapped = isMapped && calls >= 5, .isAgreed = turn.agrees});
    }
    // A call that could, and one in which all say so.
    EXPECT_EQ(calls, isMapped ? 7 : 24);
  }
}

// What runs at once counts as well, or a form would be kept for ever.
TEST(FormTrial, CallsThatRunAtOnceCount) {
  FormTrial trial;
  EXPECT_FALSE(trial.keepsCopies());
  trial.endedAtOnce();  // nothing to count yet
  settle(trial, {.copy = 10, .reference = 15});
  int kept = 0;
  for (; trial.keepsCopies() && kept < 4000; ++kept) trial.endedAtOnce();
  EXPECT_GE(kept, 1900);
  EXPECT_LE(kept, 2000);
  settle(trial, {.copy = 15, .reference = 10});
  EXPECT_FALSE(trial.keepsCopies());
}

TEST(FormTrial, CopiesIntoNewSlotsDecideNothing) {
  FormTrial trial;
  trial.ended({.couldRefer = true});
  for (int call = 0; trial.next().isMeasured; ++call) {
    const bool isFirst = call < 20;
    makeCall(trial, {.copy = isFirst ? 300 : 14, .reference = 100});
  }
  EXPECT_TRUE(trial.keepsCopies());
}

// What copies take may depend on caches that the ranks share or not; references are as they were.
TEST(FormTrial, AnAnswerThatIsSlowerThanWhatItBeatIsTriedAgain) {
  FormTrial trial(false, true);
  const Prices near{.copy = 150, .reference = 200};
  const Prices far{.copy = 600, .reference = 200};
  settle(trial, near);
  EXPECT_EQ(countOf(trial, Form::kCopy, 200, near), 200);
  EXPECT_EQ(countOf(trial, Form::kCopy, 8, far), 8);
  EXPECT_LE(countOf(trial, Form::kCopy, 60, far), 30);  // the trial's, and before it
  EXPECT_EQ(countOf(trial, Form::kReference, 100, far), 100);
}

TEST(FormTrial, AnotherAlgorithmThatHasBecomeSlowerIsTriedAgain) {
  FormTrial trial(true, true);
  const Prices before{.copy = 300, .reference = 200, .other = 100};
  settle(trial, before);
  EXPECT_EQ(countOf(trial, Form::kOther, 100, before), 100);
  const Prices after{.copy = 150, .reference = 200, .other = 400};
  countOf(trial, Form::kOther, 100, after);
  EXPECT_EQ(countOf(trial, Form::kCopy, 100, after), 100);
}

// Whatever else the program did meanwhile.
TEST(FormTrial, ReferencesAreNotKeptForLong) {
  for (const Nanoseconds between : {Nanoseconds(200'000), Nanoseconds(10'000'000)}) {
    FormTrial trial(false, true);
    settle(trial, {.copy = 600, .reference = 200});
    const Prices near{.copy = 150, .reference = 200};
    Instant now{};
    int calls = 0;
    for (; !trial.isTrying() && calls < 10000; ++calls) makeCall(trial, near, now = now + between);
    const int expected = between < milliseconds(1) ? 2000 : 128;
    EXPECT_GE(calls, expected);
    EXPECT_LE(calls, expected + 5);
    settle(trial, near);
    EXPECT_TRUE(trial.keepsCopies());
  }
}

TEST(FormTrial, ShortCallsAreNotWatched) {
  FormTrial trial(false, true);
  settle(trial, {.copy = 12, .reference = 6});
  EXPECT_FALSE(trial.next().isMeasured);
}

// A trial whose slower calls have cost much has an answer for longer.
TEST(FormTrial, WhatATrialCostsIsALittleOfTheTime) {
  for (const int copy : {250, 8000}) {
    FormTrial trial(false, true);
    settle(trial, {.copy = copy, .reference = 200});
    Instant now{};
    int calls = 0;
    for (; !trial.isTrying() && calls < 10000; ++calls)
      makeCall(trial, {.copy = copy, .reference = 200}, now = now + milliseconds(1));
    EXPECT_GT(calls, copy == 250 ? 390 : 1500);
    EXPECT_LT(calls, copy == 250 ? 410 : 1600);
  }
}

// An all-to-all in place, between others of the plan.
TEST(FormTrial, CallsThatCanOnlyCopyLeaveTheAnswer) {
  for (const bool hasOther : {false, true}) {
    FormTrial trial(hasOther, true);
    const Prices prices{.copy = 600, .reference = 200, .other = 300};
    settle(trial, prices);
    Instant now{};
    for (int call = 0; call < 500; ++call) {
      const FormTrial::Turn turn = trial.next();
      EXPECT_EQ(turn.form, Form::kReference);
      trial.ended({.isAgreed = turn.agrees,
                   .isCopyOnly = true,
                   .spent = microseconds(600),
                   .at = now = now + microseconds(600)});
    }
    EXPECT_EQ(countOf(trial, Form::kReference, 100, prices), 100);
  }
}

TEST(FormTrial, CallsThatCanOnlyCopyEndTheOtherAlgorithm) {
  FormTrial trial(true, true);
  const Prices prices{.copy = 600, .reference = 300, .other = 200};
  settle(trial, prices);
  int others = 0;
  for (int call = 0; call < 100; ++call) {
    const FormTrial::Turn turn = trial.next();
    others += turn.form == Form::kOther ? 1 : 0;
    trial.ended({.couldRefer = turn.form == Form::kOther,
                 .isAgreed = turn.agrees,
                 .isCopyOnly = true,
                 .spent = microseconds(600)});
  }
  EXPECT_LE(others, 2);
  settle(trial, prices);
  EXPECT_EQ(countOf(trial, Form::kOther, 100, prices), 100);
}

TEST(FormTrial, ADoubtThatWasWrongIsRarer) {
  FormTrial trial(false, true);
  const Prices prices{.copy = 100, .reference = 200};
  settle(trial, prices);
  int reads = 0;
  for (int call = 0; call < 1900; ++call) {
    const bool isTrial = trial.next().form == Form::kReference;
    reads += isTrial ? 1 : 0;
    // Others run, but while it is tried.
    const Prices disturbed{.copy = 900, .reference = 200};
    makeCall(trial, reads % 20 != 0 ? prices : disturbed);
  }
  EXPECT_GT(reads, 0);
  EXPECT_LE(reads, 100);  // trials after 64, 128, 256, 512 calls
}

TEST(FormTrial, WhereCallsDoNotTellNobodyDoubts) {
  FormTrial trial(false, false);
  settle(trial, {.copy = 150, .reference = 200});
  EXPECT_EQ(countOf(trial, Form::kCopy, 1800, {.copy = 600, .reference = 200}), 1800);
}

// A send's time is its distance from the last one that was measured: in the trial before.
TEST(FormTrial, TheFirstCallsTimeCutsNoTrialShort) {
  FormTrial trial;
  const Prices prices{.copy = 15, .reference = 10};
  settle(trial, prices);
  for (int i = 0; i < 4000 && !trial.next().isMeasured; ++i) makeCall(trial, prices);
  trial.ended({.couldRefer = true, .spent = std::chrono::seconds(1)});
  int calls = 1;
  for (; trial.next().isMeasured; ++calls) makeCall(trial, prices);
  EXPECT_EQ(calls, 40);
}

TEST(FormTrial, LongCallsAreTriedLess) {
  for (const bool isCopyBetter : {true, false}) {
    FormTrial trial;
    trial.ended({.couldRefer = true});
    std::array<int, 2> calls{};
    while (trial.next().isMeasured) {
      const bool isCopy = trial.next().form == FormTrial::Form::kCopy;
      ++calls[isCopy ? 0 : 1];
      trial.ended({.couldRefer = !isCopy, .spent = milliseconds(isCopy == isCopyBetter ? 10 : 15)});
    }
    EXPECT_EQ(calls[0], 3 + 5);  // until slots are warm, too
    EXPECT_EQ(calls[1], 5);
    EXPECT_EQ(trial.keepsCopies(), isCopyBetter);
  }
}

}  // namespace
}  // namespace tutti::launch
