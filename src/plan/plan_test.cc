#include "plan/plan.h"

#include <gtest/gtest.h>

#include "base/units.h"
#include "plan/agreements_testing.h"
#include "plan/pieces.h"

namespace tutti::plan {
namespace {

TEST(Planner, CutsWhatANetworkGathersToWhatItTakesOfAllHosts) {
  for (const int32_t hosts : {2, 16, 1000}) {
    std::vector<int32_t> hostOf;
    for (int32_t host = 0; host < hosts; ++host) hostOf.push_back(host);
    Planner planner(agreementOfHosts(hostOf, "collnetdirect"));
    const Plan plan = planner.make({.collective = Collective::kAllGather, .count = 16_MiB}).value();
    const size_t pieceBytes = plan.layout.pieceElements * sizeof(float);
    EXPECT_LE(pieceBytes * static_cast<size_t>(hosts),
              networkSetBytes(planner.agreement().geometry.slotBytes, static_cast<size_t>(hosts)));
    EXPECT_GE(pieceBytes, 4_KiB);
  }
}

TEST(Planner, PlansOfOneAlgorithmShareItsProgram) {
  Planner planner(agreementOf(4));
  const Plan small = planner.make(allReduceOf(1_MiB)).value();
  const Plan large = planner.make(allReduceOf(2_MiB)).value();
  EXPECT_EQ(small.program, large.program);
  EXPECT_NE(small.signature, large.signature);
}

TEST(Planner, BesideARingOfRanksThatShareCpusTriesWhatFoldsAlike) {
  const auto otherOf = [](const CallShape& shape, double ranksPerCpu) -> std::string_view {
    Agreement agreement = agreementOf(4);
    agreement.ranksPerCpu = ranksPerCpu;
    Planner planner(agreement);
    Plan ring;
    ring.algorithm = "ring";
    const auto other = planner.makeOther(shape, ring).value();
    return other ? other->algorithm : "";
  };
  CallShape shape = allReduceOf(64_KiB);
  EXPECT_EQ(otherOf(shape, 2), "twoshot");
  EXPECT_EQ(otherOf(shape, 1), "");
  shape.op = ReduceOp::kPreMulSum;
  EXPECT_EQ(otherOf(shape, 2), "");
  shape.op = ReduceOp::kSum;
  shape.type = DataType::kFloat16;  // a ring's partial sums are rounded
  EXPECT_EQ(otherOf(shape, 2), "");
  shape.collective = Collective::kReduceScatter;
  EXPECT_EQ(otherOf(shape, 2), "");
  shape.type = DataType::kFloat64;
  EXPECT_EQ(otherOf(shape, 2), "direct");
  shape.collective = Collective::kAllGather;
  shape.type = DataType::kInt8;
  EXPECT_EQ(otherOf(shape, 2), "direct");
  shape.collective = Collective::kBroadcast;  // whose root hears of nobody
  EXPECT_EQ(otherOf(shape, 2), "");
}

// What goes one way, where the kernel reads fast: both ends of a send, of whatever types.
TEST(Planner, WhatOneRankMovesIsReadInPiecesLongerThanASlot) {
  Agreement agreement = agreementOf(2);
  agreement.readsByKernel = true;
  agreement.readsFastByKernel = true;
  const auto pieceOf = [&agreement](Collective collective, size_t bytes, DataType type) {
    Planner planner(agreement);
    const Plan plan =
        planner.make({.collective = collective, .type = type, .count = bytes / sizeOf(type)})
            .value();
    return plan.isDirect ? plan.layout.pieceElements * sizeOf(type) : 0;
  };
  for (const Collective collective : {Collective::kBroadcast, Collective::kScatter,
                                      Collective::kGather, Collective::kSend, Collective::kRecv}) {
    SCOPED_TRACE(static_cast<int>(collective));
    EXPECT_EQ(pieceOf(collective, 4_MiB, DataType::kInt8), kLongReadBytes);
    EXPECT_EQ(pieceOf(collective, 4_MiB, DataType::kFloat64), kLongReadBytes);
    EXPECT_EQ(pieceOf(collective, kKernelLongMinBytes / 2, DataType::kInt8), 0u);
    EXPECT_EQ(pieceOf(collective, 64_MiB, DataType::kInt8), 0u);  // fits no cache
  }
  agreement.readsFastByKernel = false;  // trials tell
  EXPECT_EQ(pieceOf(Collective::kSend, 4_MiB, DataType::kInt8), 0u);
}

TEST(Planner, BesideReadsOfASlotLongerOnesAreTried) {
  const auto longestOf = [](Collective collective, size_t bytes, const Agreement& agreement) {
    const CallShape shape{.collective = collective, .type = DataType::kInt8, .count = bytes};
    Planner planner(agreement);
    const auto other = planner.makeOther(shape, planner.make(shape).value()).value();
    return other && other->isDirect ? other->layout.pieceElements : 0;
  };
  Agreement agreement = agreementOf(2);
  agreement.readsByKernel = true;
  agreement.readsFastByKernel = true;
  EXPECT_EQ(longestOf(Collective::kAllToAll, 4_MiB, agreement), kLongReadBytes);
  EXPECT_EQ(longestOf(Collective::kAllGather, 128_KiB, agreement), 128_KiB);
  EXPECT_EQ(longestOf(Collective::kAllGather, 64_KiB, agreement), 0);  // fits a slot
  EXPECT_EQ(longestOf(Collective::kAllToAll, 16_MiB, agreement), 0);   // fits no cache
  EXPECT_EQ(longestOf(Collective::kBroadcast, 4_MiB, agreement), 0);   // whose root hears nothing
  EXPECT_EQ(longestOf(Collective::kReduceScatter, 1_MiB, agreement), 0);
  Agreement four = agreementOf(4);
  four.readsByKernel = true;
  EXPECT_EQ(longestOf(Collective::kAllToAll, 1_MiB, four), 0);
  four.ranksPerCpu = 2;
  EXPECT_EQ(longestOf(Collective::kAllToAll, 1_MiB, four), kLongReadBytes);
  EXPECT_EQ(longestOf(Collective::kAllGather, 256_KiB, four), 256_KiB);
  EXPECT_EQ(longestOf(Collective::kReduceScatter, 1_MiB, four), 0);
  four.algorithms = "allgather:ring";
  EXPECT_EQ(longestOf(Collective::kAllGather, 256_KiB, four), 0);
  four.algorithms.clear();
  four.ranksPerCpu = 4;
  EXPECT_EQ(longestOf(Collective::kAllToAll, 1_MiB, four), 0);
  agreement.readsByKernel = false;
  EXPECT_EQ(longestOf(Collective::kAllToAll, 4_MiB, agreement), 0);
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

TEST(Planner, CopiesOnAHostAreAsLongAsMessagesThatMayBeRead) {
  const CallShape shape{.collective = Collective::kAllGather, .count = 16_KiB};
  Agreement agreement = agreementOf(2);
  std::vector<size_t> pieces;
  for (const bool reads : {true, false}) {
    agreement.readsByKernel = reads;
    pieces.push_back(Planner(agreement).make(shape).value().layout.pieceElements);
  }
  EXPECT_EQ(pieces[0] * sizeof(float), 64_KiB);
  EXPECT_EQ(pieces[0], pieces[1]);
}

TEST(Planner, RanksThatShareCpusTryReadsOfTheKernelWhereTheyMayWin) {
  CallShape shape{.collective = Collective::kAllGather, .type = DataType::kInt8, .count = 4_MiB};
  const auto mayRefer = [&shape](bool isFast, double ranksPerCpu) {
    Agreement agreement = agreementOf(4);
    agreement.readsByKernel = true;
    agreement.readsFastByKernel = isFast;
    agreement.ranksPerCpu = ranksPerCpu;
    agreement.algorithms = "direct";
    return Planner(agreement).make(shape).value().mayRefer;
  };
  EXPECT_TRUE(mayRefer(false, 1));
  EXPECT_TRUE(mayRefer(true, 2));
  EXPECT_FALSE(mayRefer(false, 2));
  shape.count = kKernelMinBytes;
  EXPECT_TRUE(mayRefer(true, 1));
  EXPECT_FALSE(mayRefer(true, 2));
  shape.count = 1_MiB;  // by four ranks of four
  EXPECT_TRUE(mayRefer(false, 2));
  shape.count = 1_MiB + 1;
  EXPECT_FALSE(mayRefer(false, 2));
  shape.collective = Collective::kAllToAll;
  EXPECT_TRUE(mayRefer(false, 2));
  shape.count = 4_MiB + 1;
  EXPECT_FALSE(mayRefer(false, 2));
  EXPECT_TRUE(mayRefer(true, 2));
  shape.count = kKernelMinBytes;
  EXPECT_TRUE(mayRefer(true, 2));
  EXPECT_TRUE(mayRefer(false, 2));
  EXPECT_TRUE(mayRefer(true, 4));
  EXPECT_FALSE(mayRefer(false, 4));
  shape.count = kKernelMinBytes - 1;
  EXPECT_FALSE(mayRefer(true, 2));
  shape.collective = Collective::kReduceScatter;  // which also folds what is read
  shape.count = 1_MiB;
  EXPECT_TRUE(mayRefer(true, 2));
  EXPECT_FALSE(mayRefer(false, 2));
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

TEST(Planner, MakesLongerPiecesBetweenHosts) {
  Agreement near = agreementOf(2, "ring");
  near.geometry.slotBytes = 256_KiB;
  near.readsPeers = true;
  Agreement far = near;
  far.isOneHost = far.readsPeers = false;
  Planner within(near);
  Planner across(far);
  const CallShape shape = allReduceOf(64_KiB);
  EXPECT_EQ(within.make(shape).value().layout.pieceCount, 8u);
  EXPECT_EQ(across.make(shape).value().layout.pieceCount, 1u);
}

TEST(LinkGeometry, ShortRingsOfManyRanksAreShorter) {
  const wire::LinkGeometry usual = linkGeometry(512_KiB);
  for (const size_t ranks : {2, 8, 16})
    EXPECT_EQ(amongRanks(usual, ranks).shortCount, 32u) << ranks;
  EXPECT_EQ(amongRanks(usual, 17).shortCount, 16u);
  EXPECT_EQ(amongRanks(usual, 64).shortCount, 8u);
  EXPECT_EQ(amongRanks(usual, 4096).shortCount, usual.slotCount)
      << "as many as there are long ones";
  EXPECT_EQ(amongRanks(linkGeometry(8_KiB), 64).shortCount, 0u);
}

}  // namespace
}  // namespace tutti::plan
