#include "plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/units.h"
#include "plan/algorithm_filter.h"
#include "plan/cost_model.h"
#include "schedule/catalog.h"

namespace tutti::plan {
namespace {

Agreement agreementOf(int32_t rankCount, std::string algorithms = "") {
  return {.rank = Rank{0},
          .rankCount = rankCount,
          .geometry = {.slotCount = 8, .slotBytes = 64_KiB},
          .algorithms = std::move(algorithms)};
}

CallShape allReduceOf(uint64_t count) {
  return {.collective = Collective::kAllReduce, .count = count};
}

TEST(Choose, FewHopsForShortVectorsLittleTrafficForLongOnes) {
  EXPECT_EQ(choose(allReduceOf(2), agreementOf(4))->algorithm, "oneshot");
  EXPECT_EQ(choose(allReduceOf(1_MiB), agreementOf(4))->algorithm, "pat");
  EXPECT_EQ(choose(allReduceOf(2), agreementOf(64))->algorithm, "doubling");
  EXPECT_EQ(choose(allReduceOf(64_MiB), agreementOf(64))->algorithm, "ring");
}

TEST(Choose, GoesByTheBytesOfAllBlocks) {
  const CallShape gather{.collective = Collective::kAllGather, .count = 128_KiB};
  EXPECT_EQ(vectorBytes(gather, 64), 32_MiB);
  EXPECT_EQ(vectorBytes(allReduceOf(128_KiB), 64), 512_KiB);
  EXPECT_EQ(choose(gather, agreementOf(64))->algorithm, "ring");
  EXPECT_EQ(choose(gather, agreementOf(17))->algorithm, "pat");
}

TEST(Choose, SaysWhy) {
  EXPECT_THAT(choose(allReduceOf(2), agreementOf(4))->reason,
              testing::HasSubstr("8 bytes on 4 ranks: oneshot up to "));
  EXPECT_THAT(choose(allReduceOf(1_MiB), agreementOf(4))->reason,
              testing::HasSubstr("4194304 bytes on 4 ranks: pat above "));
  EXPECT_EQ(choose(allReduceOf(2), agreementOf(4, "^oneshot"))->reason,
            "NCCL_ALGO forbids oneshot");
}

TEST(Choose, GoesByTheMachinesPricesWhereThereAreSome) {
  Agreement agreement = agreementOf(4);
  // Hops are dear and bytes nearly free, then the other way round.
  const auto priced = [](CostTerms us) {
    return std::make_shared<Tuning>(Tuning{
        .date = "2026-11-21", .cpuCount = 4, .prices = {{Collective::kAllReduce, false, us}}});
  };
  agreement.tuning = priced({0, 100, 0, 1e-6, 0});
  EXPECT_EQ(choose(allReduceOf(4_MiB), agreement)->algorithm, "oneshot");
  EXPECT_THAT(choose(allReduceOf(4_MiB), agreement)->reason, testing::HasSubstr("prices of 2026"));
  agreement.tuning = priced({0, 1e-6, 1e-6, 100, 0});
  EXPECT_NE(choose(allReduceOf(4_MiB), agreement)->algorithm, "oneshot");
  agreement.algorithms = "oneshot,tree";
  EXPECT_EQ(choose(allReduceOf(4_MiB), agreement)->algorithm, "tree");
  // Another collective, or another kind of ranks: the table.
  agreement.algorithms = "";
  agreement.readsPeers = true;
  EXPECT_EQ(choose(allReduceOf(2), agreement)->algorithm, "oneshot");
}

TEST(Choose, LeavesOutWhatNeedsMoreSlotsThanThereAre) {
  Agreement agreement = agreementOf(4);
  agreement.geometry.slotCount = 1;
  for (const uint64_t count : {1u, 1000u, 1000000u}) {
    const std::string_view algorithm = choose(allReduceOf(count), agreement)->algorithm;
    EXPECT_EQ(schedule::findAlgorithm(Collective::kAllReduce, algorithm)->minSlotCount, 1);
  }
}

TEST(Choose, AllRanksChooseAlike) {
  for (const uint64_t count : {1u, 1000u, 5000u, 20000u, 1000000u}) {
    Agreement first = agreementOf(8);
    Agreement last = agreementOf(8);
    last.rank = Rank{7};
    EXPECT_EQ(choose(allReduceOf(count), first)->algorithm,
              choose(allReduceOf(count), last)->algorithm);
  }
}

TEST(Choose, FollowsNcclAlgo) {
  EXPECT_EQ(choose(allReduceOf(2), agreementOf(4, "Ring"))->algorithm, "ring");
  EXPECT_EQ(choose(allReduceOf(2), agreementOf(4, "Tree"))->algorithm, "tree");
  EXPECT_EQ(choose(allReduceOf(2), agreementOf(4, "PAT"))->algorithm, "pat");
  EXPECT_EQ(choose(allReduceOf(2), agreementOf(4, "allreduce:ring;oneshot"))->algorithm, "ring");
  EXPECT_EQ(choose(allReduceOf(2), agreementOf(4, "^NVLS"))->algorithm, "oneshot");
}

TEST(Choose, TakesTheNearestThatNcclAlgoAllows) {
  EXPECT_EQ(choose(allReduceOf(2), agreementOf(4, "^oneshot"))->algorithm, "pat");
  EXPECT_EQ(choose(allReduceOf(1_MiB), agreementOf(4, "^pat"))->algorithm, "oneshot");
  EXPECT_EQ(choose(allReduceOf(2), agreementOf(4, "tree,doubling"))->algorithm, "tree");
}

TEST(Choose, RefusesAnNcclAlgoThatLeavesNothing) {
  const Result<Choice> choice = choose(allReduceOf(2), agreementOf(4, "nvls"));
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.status().code(), Code::kInvalidUsage);
  EXPECT_THAT(std::string(choice.status().message()), testing::HasSubstr("NCCL_ALGO=nvls"));
}

TEST(Choose, NcclAlgoDoesNotTouchCollectivesWithoutAChoice) {
  const CallShape shape{.collective = Collective::kAllToAll, .count = 10};
  EXPECT_TRUE(choose(shape, agreementOf(4, "tree")).ok());
}

TEST(Planner, PlansOfOneAlgorithmShareItsProgram) {
  Planner planner(agreementOf(4));
  const Plan small = planner.make(allReduceOf(1_MiB)).value();
  const Plan large = planner.make(allReduceOf(2_MiB)).value();
  EXPECT_EQ(small.program, large.program);
  EXPECT_NE(small.signature, large.signature);
}

TEST(Planner, PiecesFitASlot) {
  Planner planner(agreementOf(3));
  for (const uint64_t count : {0ull, 1ull, 17ull, 100000ull, 100000000ull, 1ull << 40}) {
    const Plan plan = planner.make(allReduceOf(count)).value();
    EXPECT_LE(plan.layout.pieceElements * sizeOf(DataType::kFloat32), 64_KiB);
    EXPECT_GE(plan.layout.pieceElements, 1u);
    EXPECT_GE(plan.layout.pieceElements * plan.layout.pieceCount, plan.layout.chunkElements);
    EXPECT_GE(plan.layout.chunkElements * static_cast<size_t>(plan.layout.chunksPerBlock), count);
    EXPECT_EQ(plan.layout.pieceCount == 0, count == 0);
  }
}

TEST(Planner, ASendAndItsReceiveAgree) {
  Planner planner(agreementOf(2));
  const Plan send =
      planner.make({.collective = Collective::kSend, .peer = Rank{1}, .count = 9}).value();
  const Plan receive =
      planner.make({.collective = Collective::kRecv, .peer = Rank{1}, .count = 9}).value();
  const Plan other =
      planner.make({.collective = Collective::kRecv, .peer = Rank{1}, .count = 8}).value();
  EXPECT_EQ(send.signature, receive.signature);
  EXPECT_NE(send.signature, other.signature);
}

TEST(AlgorithmFilter, TakesListsExclusionsAndRulesACollective) {
  EXPECT_TRUE(AlgorithmFilter("").allows(Collective::kAllReduce, "ring"));
  EXPECT_TRUE(AlgorithmFilter("tree, RING").allows(Collective::kAllReduce, "ring"));
  EXPECT_FALSE(AlgorithmFilter("^ring,tree").allows(Collective::kAllReduce, "ring"));
  EXPECT_FALSE(AlgorithmFilter("allreduce:oneshot").allows(Collective::kAllReduce, "ring"));
  EXPECT_TRUE(AlgorithmFilter("reduce:tree").allows(Collective::kAllReduce, "ring"));
  EXPECT_TRUE(AlgorithmFilter(";;").allows(Collective::kAllReduce, "ring"));
}

TEST(AlgorithmFilter, SpeaksOfAllToAllByNameOnly) {
  EXPECT_TRUE(AlgorithmFilter("ring").allows(Collective::kAllToAll, "direct"));
  EXPECT_TRUE(AlgorithmFilter("^direct").allows(Collective::kAllToAll, "direct"));
  EXPECT_FALSE(AlgorithmFilter("alltoall:pairwise").allows(Collective::kAllToAll, "direct"));
}

}  // namespace
}  // namespace tutti::plan
