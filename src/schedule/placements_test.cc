#include "schedule/placements.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "schedule/catalog.h"

namespace tutti::schedule {
namespace {

size_t countPlaced(const Placements& found) {
  return static_cast<size_t>(std::ranges::count(found.placed, 1));
}

// Contributions go to each chunk's owner, which answers each with the result.
TEST(Placements, AreAllResultsOfTwoShot) {
  for (int32_t ranks = 2; ranks <= 64; ranks += ranks < 17 ? 1 : 5) {
    const Schedule schedule =
        makeSchedule(*findAlgorithm(Collective::kAllReduce, "twoshot"), {.rankCount = ranks});
    for (const bool inPlace : {false, true}) {
      for (int32_t rank = 0; rank < ranks; ++rank) {
        const Placements found = placements(schedule, Rank{rank}, inPlace);
        EXPECT_EQ(countPlaced(found), static_cast<size_t>(ranks - 1)) << rank << " of " << ranks;
      }
    }
  }
}

TEST(Placements, AreOfferedByAnEarlierMessageOfTheSameChunk) {
  for (int c = 0; c < kCollectiveCount; ++c) {
    for (const Algorithm& algorithm : algorithms(static_cast<Collective>(c))) {
      if (algorithm.reducesInNetwork()) continue;
      for (const int32_t ranks : {2, 3, 4, 7, 8, 16}) {
        const Schedule schedule = makeSchedule(algorithm, {.rankCount = ranks});
        for (int32_t rank = 0; rank < ranks; ++rank) {
          const auto& steps = schedule.programs[static_cast<size_t>(rank)].steps;
          const Placements found = placements(schedule, Rank{rank}, false);
          ASSERT_EQ(found.offers.size(), steps.size());
          size_t offers = 0;
          for (size_t step = 0; step < steps.size(); ++step) {
            if (found.offers[step] == Placements::kNone) continue;
            ++offers;
            const auto wanted = static_cast<size_t>(found.offers[step]);
            EXPECT_LT(step, wanted);
            EXPECT_EQ(steps[step].chunk, steps[wanted].chunk);
            EXPECT_EQ(found.placed[wanted], 1);
          }
          EXPECT_EQ(offers, countPlaced(found));
        }
      }
    }
  }
}

// Nobody who only receives has told where.
TEST(Placements, AreNoneWhereNothingIsSentBefore) {
  for (const Collective collective : {Collective::kBroadcast, Collective::kAllGather}) {
    const Schedule schedule = makeSchedule(*findAlgorithm(collective, "direct"), {.rankCount = 4});
    EXPECT_EQ(countPlaced(placements(schedule, Rank{1}, false)), 0u);
  }
}

// Rank 0 sends its chunk to rank 1, which answers with the result; `between` comes in between.
template <typename Between>
Placements answered(bool inPlace, Between between) {
  Schedule schedule{.algorithm = "test", .collective = Collective::kAllReduce, .rankCount = 2};
  schedule.chunkCount = 2;
  ProgramBuilder zero, one;
  zero.add({.sources = {ProgramBuilder::input(0)}, .destinations = {zero.to(Rank{1})}});
  between(zero, one);
  zero.add({.sources = {zero.from(Rank{1})}, .destinations = {ProgramBuilder::output(0)}});
  one.add({.sources = {ProgramBuilder::input(0), one.from(Rank{0})},
           .destinations = {ProgramBuilder::output(0), one.to(Rank{0})}});
  schedule.programs.push_back(std::move(zero).take());
  schedule.programs.push_back(std::move(one).take());
  return placements(schedule, Rank{0}, inPlace);
}

TEST(Placements, AreNotWhereAnotherStepTouchesThePlace) {
  const auto nothing = [](ProgramBuilder&, ProgramBuilder&) {};
  EXPECT_EQ(countPlaced(answered(false, nothing)), 1u);
  EXPECT_EQ(countPlaced(answered(true, nothing)), 1u);
  const auto reads = [](ProgramBuilder& zero, ProgramBuilder&) {
    zero.add({.chunk = 1,
              .sources = {ProgramBuilder::input(0)},
              .destinations = {ProgramBuilder::output(1)}});
  };
  EXPECT_EQ(countPlaced(answered(false, reads)), 1u);
  EXPECT_EQ(countPlaced(answered(true, reads)), 0u);
  const auto writes = [](ProgramBuilder& zero, ProgramBuilder&) {
    zero.add({.sources = {ProgramBuilder::input(0)}, .destinations = {ProgramBuilder::output(0)}});
  };
  EXPECT_EQ(countPlaced(answered(false, writes)), 0u);
}

TEST(Placements, AreNotForAMessageThatAnotherPrecedes) {
  const auto another = [](ProgramBuilder& zero, ProgramBuilder& one) {
    one.add({.chunk = 1, .sources = {one.from(Rank{0})}, .destinations = {one.to(Rank{0})}});
    zero.add({.chunk = 1,
              .sources = {zero.from(Rank{1})},
              .destinations = {ProgramBuilder::output(1), zero.to(Rank{1})}});
  };
  EXPECT_EQ(countPlaced(answered(false, another)), 0u);
}

}  // namespace
}  // namespace tutti::schedule
