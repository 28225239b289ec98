#include "schedule/references.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::schedule {
namespace {

using testing::HasSubstr;

TEST(References, AreSafeForExactlyTheAlgorithmsThatSaySo) {
  for (int c = 0; c < kCollectiveCount; ++c) {
    for (const Algorithm& algorithm : algorithms(static_cast<Collective>(c))) {
      bool isSafe = true;
      std::string reason;
      for (int32_t ranks = 1; ranks <= 64 && isSafe; ranks += ranks < 17 ? 1 : 5) {
        for (const int32_t root : {0, ranks / 2, ranks - 1}) {
          const Schedule schedule = makeSchedule(
              algorithm,
              {.rankCount = ranks, .root = Rank{root}, .hostCount = ranks % 2 == 0 ? 2 : 1});
          for (const bool inPlace : {false, true}) {
            if (inPlace && algorithm.collective == Collective::kAllToAll) continue;
            reason = whyNotReferable(schedule, inPlace);
            isSafe = isSafe && reason.empty();
          }
        }
      }
      EXPECT_EQ(isSafe, isReferable(algorithm))
          << name(algorithm.collective) << " " << algorithm.name << ": " << reason;
    }
  }
}

TEST(References, AllToAllInPlaceWouldOverwriteWhatItsPartnerReads) {
  const Schedule schedule = makeSchedule(algorithms(Collective::kAllToAll)[0], {.rankCount = 4});
  EXPECT_EQ(whyNotReferable(schedule, false), "");
  EXPECT_THAT(whyNotReferable(schedule, true), HasSubstr("may still have to read"));
}

TEST(References, APartialSumThatIsOnlySentLiesInNoUserBuffer) {
  const Schedule schedule =
      makeSchedule(*findAlgorithm(Collective::kAllReduce, "ring"), {.rankCount = 3});
  EXPECT_THAT(whyNotReferable(schedule, false), HasSubstr("no user buffer"));
}

TEST(References, AnOverwriteThatAReplyAllowsIsSafe) {
  // Rank 0 sends its chunk, rank 1 answers, and only then does rank 0 overwrite it; without the
  // answer it must not.
  for (const bool answers : {true, false}) {
    Schedule schedule{.algorithm = "test", .collective = Collective::kBroadcast, .rankCount = 2};
    ProgramBuilder zero, one;
    zero.add({.sources = {ProgramBuilder::output(0)}, .destinations = {zero.to(Rank{1})}});
    one.add({.sources = {one.from(Rank{0})}, .destinations = {ProgramBuilder::output(0)}});
    if (answers) {
      one.add({.sources = {ProgramBuilder::output(0)}, .destinations = {one.to(Rank{0})}});
      zero.add({.sources = {zero.from(Rank{1})}, .destinations = {ProgramBuilder::output(0)}});
    } else {
      zero.add(
          {.sources = {ProgramBuilder::input(0)}, .destinations = {ProgramBuilder::output(0)}});
    }
    schedule.programs.push_back(std::move(zero).take());
    schedule.programs.push_back(std::move(one).take());
    EXPECT_EQ(whyNotReferable(schedule, false).empty(), answers);
  }
}

// Every algorithm, step by step: what may refer is the whole of what isReferable() says, and of the
// others what is known to lie still.
TEST(References, AreSafeForAllStepsOfTheAlgorithmsThatSaySo) {
  for (int c = 0; c < kCollectiveCount; ++c) {
    for (const Algorithm& algorithm : algorithms(static_cast<Collective>(c))) {
      if (!isReferable(algorithm)) continue;
      const Schedule schedule = makeSchedule(algorithm, {.rankCount = 5});
      for (int32_t rank = 0; rank < 5; ++rank) {
        const auto steps = referableSteps(schedule, Rank{rank}, false);
        EXPECT_EQ(steps, std::vector<uint8_t>(steps.size(), 1)) << algorithm.name;
      }
    }
  }
}

TEST(References, OneShotMayReferUnlessItOverwritesItsInput) {
  const Schedule schedule =
      makeSchedule(*findAlgorithm(Collective::kAllReduce, "oneshot"), {.rankCount = 2});
  EXPECT_THAT(referableSteps(schedule, Rank{1}, false), testing::Each(1));
  EXPECT_THAT(referableSteps(schedule, Rank{1}, true), testing::Contains(0));
}

TEST(References, ARingReducesByCopiesAndGathersByReference) {
  const Schedule schedule =
      makeSchedule(*findAlgorithm(Collective::kAllReduce, "ring"), {.rankCount = 4});
  const Program& program = schedule.programs[0];
  const auto steps = referableSteps(schedule, Rank{0}, false);
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& step = program.steps[i];
    bool hasUserBuffer = step.sourceCount == 1;
    for (const Operand& to : program.destinations(step)) {
      if (to.place == Place::kOutput) hasUserBuffer = true;
    }
    EXPECT_EQ(steps[i] == 1, hasUserBuffer) << describe(program, step);
  }
}

}  // namespace
}  // namespace tutti::schedule
