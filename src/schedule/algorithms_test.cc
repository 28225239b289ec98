#include "schedule/algorithms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "base/rng.h"
#include "schedule/catalog.h"
#include "schedule/prover.h"
#include "schedule/test_algorithms.h"

namespace tutti::schedule {
namespace {

std::vector<Rank> shuffledRanks(int32_t rankCount, SeededRng& rng) {
  std::vector<Rank> order;
  for (int32_t rank = 0; rank < rankCount; ++rank) order.push_back(Rank{rank});
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
  return order;
}

TEST(Rings, AreProvedInAnyOrderOfRanks) {
  SeededRng rng(20240817);
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
        Collective::kBroadcast, Collective::kReduce}) {
    const Algorithm& ring = *findAlgorithm(collective, "ring");
    for (int32_t n = 1; n <= 24; ++n) {
      const std::vector<Rank> order = shuffledRanks(n, rng);
      for (int32_t root = 0; root < n; ++root) {
        const Schedule schedule =
            makeSchedule(ring, {.rankCount = n, .root = Rank{root}, .order = order});
        for (const bool inPlace : {false, true}) {
          const Proof proof = prove(schedule, {.inPlace = inPlace});
          ASSERT_TRUE(proof.ok()) << name(collective) << ' ' << n << ' ' << proof.refusal;
        }
      }
    }
  }
}

TEST(Rings, SendOnlyToTheNextRankOfTheOrder) {
  const std::vector<Rank> order{Rank{2}, Rank{0}, Rank{3}, Rank{1}};
  const Program program = ringAllReduce({.rankCount = 4, .order = order}, Rank{0});
  EXPECT_EQ(program.sendsTo, std::vector<Rank>{Rank{3}});
  EXPECT_EQ(program.receivesFrom, std::vector<Rank>{Rank{2}});
}

TEST(RingAllReduce, FoldsTheArrivingPartialFirstAndPostsWhatItFinishes) {
  EXPECT_EQ(describeAll(ringAllReduce({.rankCount = 3}, Rank{0})),
            (std::vector<std::string>{
                "chunk 2: in[2] -> link->1",
                "chunk 1: link<-2 + in[1] -> link->1",
                "chunk 0: link<-2 + in[0] -> out[0], link->1 post",
                "chunk 2: link<-2 -> out[2], link->1",
                "chunk 1: link<-2 -> out[1]",
            }));
}

TEST(RingReduce, EndsAtTheRootAndWritesNoOtherRanksOutput) {
  const ScheduleOptions options{.rankCount = 3, .root = Rank{1}};
  EXPECT_EQ(describeAll(ringReduce(options, Rank{2})),
            std::vector<std::string>{"chunk 0: in[0] -> link->0"});
  EXPECT_EQ(describeAll(ringReduce(options, Rank{0})),
            std::vector<std::string>{"chunk 0: link<-2 + in[0] -> link->1"});
  EXPECT_EQ(describeAll(ringReduce(options, Rank{1})),
            std::vector<std::string>{"chunk 0: link<-0 + in[0] -> out[0] post"});
}

TEST(RingBroadcast, ReadsNoInputButTheRoots) {
  const ScheduleOptions options{.rankCount = 3, .root = Rank{1}};
  EXPECT_EQ(describeAll(ringBroadcast(options, Rank{1})),
            std::vector<std::string>{"chunk 0: in[0] -> out[0], link->2"});
  EXPECT_EQ(describeAll(ringBroadcast(options, Rank{2})),
            std::vector<std::string>{"chunk 0: link<-1 -> out[0], link->0"});
  EXPECT_EQ(describeAll(ringBroadcast(options, Rank{0})),
            std::vector<std::string>{"chunk 0: link<-2 -> out[0]"});
}

TEST(OneShot, FoldsAllRanksInTheOrderOfTheirNumbers) {
  EXPECT_EQ(describeAll(oneShotAllReduce({.rankCount = 3}, Rank{1})),
            (std::vector<std::string>{
                "chunk 0: in[0] -> out[0], link->2, link->0",
                "chunk 0: link<-0 + out[0] + link<-2 -> out[0] post",
            }));
}

using Lines = std::vector<std::string>;

TEST(TreeAllReduce, IsALeafFirstOnTheWayUpAndLastOnTheWayDown) {
  const ScheduleOptions options{.rankCount = 5};
  // The first tree: 0 above 4, 4 above 2, 2 above 1 and 3. The second: 0 above 1 above 3 above 4
  // and 2.
  EXPECT_EQ(describeAll(treeAllReduce(options, Rank{2})),
            (Lines{"chunk 1: in[1] -> link->3", "chunk 0: link<-1 + in[0] + link<-3 -> link->4",
                   "chunk 0: link<-4 -> out[0], link->1, link->3", "chunk 1: link<-3 -> out[1]"}));
  EXPECT_EQ(describeAll(treeAllReduce(options, Rank{0})),
            (Lines{"chunk 0: in[0] + link<-4 -> out[0], link->4 post",
                   "chunk 1: in[1] + link<-1 -> out[1], link->1 post"}));
}

TEST(Trees, HaveNoRankButTheRootAboveOthersInBoth) {
  for (int32_t n = 3; n <= 64; ++n) {
    for (int32_t rank = 1; rank < n; ++rank) {
      const Program program = treeBroadcast({.rankCount = n}, Rank{rank});
      const auto forwards = [](const Step& step) { return step.destinationCount > 1; };
      EXPECT_LE(std::count_if(program.steps.begin(), program.steps.end(), forwards), 1) << n;
    }
  }
}

TEST(TreeBroadcast, ReadsNoInputButTheRoots) {
  const ScheduleOptions options{.rankCount = 3, .root = Rank{1}};
  EXPECT_EQ(describeAll(treeBroadcast(options, Rank{1})),
            (Lines{"chunk 0: in[0] -> out[0], link->0", "chunk 1: in[1] -> out[1], link->2"}));
  EXPECT_EQ(describeAll(treeBroadcast(options, Rank{2})),
            (Lines{"chunk 1: link<-1 -> out[1], link->0", "chunk 0: link<-0 -> out[0]"}));
}

TEST(TreeReduce, WritesNoOutputButTheRoots) {
  const ScheduleOptions options{.rankCount = 3, .root = Rank{1}};
  EXPECT_EQ(describeAll(treeReduce(options, Rank{1})),
            (Lines{"chunk 0: in[0] + link<-0 -> out[0] post",
                   "chunk 1: in[1] + link<-2 -> out[1] post"}));
  EXPECT_EQ(describeAll(treeReduce(options, Rank{2})),
            (Lines{"chunk 0: in[0] -> link->0", "chunk 1: link<-0 + in[1] -> link->1"}));
}

TEST(Direct, SendsStraightToWhoWantsIt) {
  EXPECT_EQ(describeAll(directAllGather({.rankCount = 3}, Rank{1})),
            (Lines{"chunk 1: in[1] -> out[1], link->2, link->0", "chunk 0: link<-0 -> out[0]",
                   "chunk 2: link<-2 -> out[2]"}));
  EXPECT_EQ(describeAll(directReduceScatter({.rankCount = 3}, Rank{1})),
            (Lines{"chunk 2: in[2] -> link->2", "chunk 0: in[0] -> link->0",
                   "chunk 1: link<-2 + link<-0 + in[1] -> out[1] post"}));
  const ScheduleOptions rooted{.rankCount = 3, .root = Rank{1}};
  EXPECT_EQ(describeAll(directBroadcast(rooted, Rank{1})),
            Lines{"chunk 0: in[0] -> out[0], link->2, link->0"});
  EXPECT_EQ(describeAll(directBroadcast(rooted, Rank{0})), Lines{"chunk 0: link<-1 -> out[0]"});
  EXPECT_EQ(describeAll(directReduce(rooted, Rank{1})),
            Lines{"chunk 0: link<-0 + in[0] + link<-2 -> out[0] post"});
  EXPECT_EQ(describeAll(directReduce(rooted, Rank{0})), Lines{"chunk 0: in[0] -> link->1"});
}

TEST(TwoShot, FoldsAtTheOwnerInTheOrderOfARingAndSendsToAll) {
  EXPECT_EQ(describeAll(twoShotAllReduce({.rankCount = 3}, Rank{1})),
            (Lines{"chunk 2: in[2] -> link->2", "chunk 0: in[0] -> link->0",
                   "chunk 1: link<-2 + link<-0 + in[1] -> out[1], link->2, link->0 post",
                   "chunk 0: link<-0 -> out[0]", "chunk 2: link<-2 -> out[2]"}));
}

TEST(TwoShot, LetsTheRootOfABroadcastOrAReductionOwnNothing) {
  const ScheduleOptions options{.rankCount = 3, .root = Rank{1}};
  EXPECT_EQ(describeAll(twoShotBroadcast(options, Rank{1})),
            (Lines{"chunk 0: in[0] -> out[0], link->2", "chunk 1: in[1] -> out[1], link->0"}));
  EXPECT_EQ(describeAll(twoShotBroadcast(options, Rank{2})),
            (Lines{"chunk 0: link<-1 -> out[0], link->0", "chunk 1: link<-0 -> out[1]"}));
  EXPECT_EQ(describeAll(twoShotReduce(options, Rank{1})),
            (Lines{"chunk 0: in[0] -> link->2", "chunk 1: in[1] -> link->0",
                   "chunk 0: link<-2 -> out[0]", "chunk 1: link<-0 -> out[1]"}));
  EXPECT_EQ(
      describeAll(twoShotReduce(options, Rank{2})),
      (Lines{"chunk 1: in[1] -> link->0", "chunk 0: link<-0 + link<-1 + in[0] -> link->1 post"}));
}

TEST(Doubling, FoldsTheLowerHalfFirstOnBothSides) {
  EXPECT_EQ(
      describeAll(doublingAllReduce({.rankCount = 4}, Rank{1})),
      (Lines{"chunk 0: in[0] -> out[0], link->0", "chunk 0: link<-0 + out[0] -> out[0], link->3",
             "chunk 0: out[0] + link<-3 -> out[0] post"}));
}

TEST(Doubling, TakesTheRanksOverAPowerOfTwoInFirstAndAnswersThemLast) {
  EXPECT_EQ(describeAll(doublingAllReduce({.rankCount = 3}, Rank{0})),
            (Lines{"chunk 0: in[0] + link<-1 -> out[0], link->2",
                   "chunk 0: out[0] + link<-2 -> out[0], link->1 post"}));
  EXPECT_EQ(describeAll(doublingAllReduce({.rankCount = 3}, Rank{1})),
            (Lines{"chunk 0: in[0] -> link->0", "chunk 0: link<-0 -> out[0]"}));
  EXPECT_EQ(
      describeAll(doublingAllReduce({.rankCount = 3}, Rank{2})),
      (Lines{"chunk 0: in[0] -> out[0], link->0", "chunk 0: link<-0 + out[0] -> out[0] post"}));
}

TEST(Pat, PassesOnWhatArrivesInTheStepThatReadsIt) {
  EXPECT_EQ(describeAll(patAllGather({.rankCount = 4}, Rank{0})),
            (Lines{"chunk 0: in[0] -> out[0], link->1, link->2", "chunk 3: link<-3 -> out[3]",
                   "chunk 2: link<-2 -> out[2], link->1", "chunk 1: link<-3 -> out[1]"}));
  EXPECT_EQ(
      describeAll(patReduceScatter({.rankCount = 4}, Rank{0})),
      (Lines{"chunk 1: in[1] -> link->3", "chunk 2: in[2] + link<-1 -> link->2",
             "chunk 3: in[3] -> link->3", "chunk 0: in[0] + link<-1 + link<-2 -> out[0] post"}));
}

TEST(Pat, TalksOnlyToRanksAPowerOfTwoAway) {
  for (int32_t n = 2; n <= 64; ++n) {
    for (const Rank peer : patAllReduce({.rankCount = n}, Rank{0}).sendsTo) {
      const auto ahead = static_cast<uint32_t>(index(peer));
      const auto behind = static_cast<uint32_t>(n - index(peer));
      EXPECT_TRUE(std::has_single_bit(ahead) || std::has_single_bit(behind)) << n;
    }
  }
}

TEST(PairwiseAllToAll, MakesEveryRoundAMatching) {
  for (int32_t n = 2; n <= 16; ++n) {
    // The partners in the order of exchange; a local copy counts as the rank itself.
    std::vector<std::vector<int32_t>> partners(static_cast<size_t>(n));
    for (int32_t rank = 0; rank < n; ++rank) {
      const Program program = pairwiseAllToAll({.rankCount = n}, Rank{rank});
      for (const Step& step : program.steps) {
        const Operand& written = program.operands[step.firstOperand + 1];
        if (written.place == Place::kOutput) {
          partners[static_cast<size_t>(rank)].push_back(written.index);
        }
      }
      ASSERT_EQ(partners[static_cast<size_t>(rank)].size(), static_cast<size_t>(n));
    }
    for (size_t round = 0; round < static_cast<size_t>(n); ++round) {
      for (int32_t rank = 0; rank < n; ++rank) {
        const int32_t partner = partners[static_cast<size_t>(rank)][round];
        EXPECT_EQ(partners[static_cast<size_t>(partner)][round], rank);
      }
    }
  }
}

TEST(DirectTransfer, LeavesTheOtherRanksIdle) {
  const ScheduleOptions options{.rankCount = 4, .root = Rank{3}, .sender = Rank{1}};
  EXPECT_EQ(describeAll(directTransfer(options, Rank{1})),
            std::vector<std::string>{"chunk 0: in[0] -> link->3"});
  EXPECT_EQ(describeAll(directTransfer(options, Rank{3})),
            std::vector<std::string>{"chunk 0: link<-1 -> out[0]"});
  EXPECT_TRUE(directTransfer(options, Rank{0}).steps.empty());
}

}  // namespace
}  // namespace tutti::schedule
