// Calls that are programs: of many ranks, or by an algorithm without a kernel.
#include <gtest/gtest.h>

#include <span>

#include "launch/gpu_batch_testing.h"

namespace tutti::launch {
namespace {

class GpuProgramBatchTest : public GpuBatchTest {
 protected:
  static constexpr int32_t kRanks = 12;

  static GpuBatcher make(const GpuLimits& limits) {
    wire::GpuView view{};
    view.rank = kRank;
    view.rankCount = limits.rankCount;
    wire::GpuProgramView programs{};
    programs.rank = kRank;
    programs.rankCount = limits.rankCount;
    return GpuBatcher(view, limits, programs);
  }
  static GpuBatcher makeOfMany() { return make({.rankCount = kRanks, .hasPrograms = true}); }
};

TEST_F(GpuProgramBatchTest, CallsOfManyRanksAreALaunchEach) {
  add(Collective::kAllReduce, 16, 0, DataType::kFloat16);
  add(Collective::kBroadcast, kLong, 5);
  add(Collective::kAllReduce, 0);
  GpuBatcher batcher = makeOfMany();
  const auto emitted = build(batcher);
  ASSERT_EQ(emitted.size(), 2u);
  EXPECT_EQ(emitted[0].kernel, "tuttiFoldProgram");
  ASSERT_TRUE(emitted[0].program.has_value());
  EXPECT_EQ(emitted[0].program->call.input, reinterpret_cast<std::byte*>(in_));
  EXPECT_EQ(emitted[0].program->call.elementBytes, 2u);
  EXPECT_EQ(emitted[0].program->call.messages, wire::GpuMessages::kLines);
  EXPECT_EQ(emitted[0].program->view.rank, kRank);
  EXPECT_EQ(emitted[0].blocks, 1);
  EXPECT_EQ(emitted[1].kernel, "tuttiMoveProgram");
  EXPECT_EQ(emitted[1].program->call.messages, wire::GpuMessages::kSlots);
  EXPECT_EQ(emitted[1].blocks, wire::kGpuProgramBlocks);
  EXPECT_TRUE(asked_.empty()) << "programs use no registered buffers";
}

// The program is written once; what differs from call to call is not kept with it.
TEST_F(GpuProgramBatchTest, CallsOfOneShapeDifferInBuffersAndOperation) {
  GpuBatcher batcher = makeOfMany();
  add(Collective::kAllReduce, 16);
  const auto first = build(batcher);
  calls_[0].shape.op = ReduceOp::kMax;
  calls_[0].input = out_;
  const auto second = build(batcher);
  EXPECT_EQ(first[0].program->call.op, ReduceOp::kSum);
  EXPECT_EQ(second[0].program->call.op, ReduceOp::kMax);
  EXPECT_EQ(second[0].program->call.input, reinterpret_cast<std::byte*>(out_));
  EXPECT_NE(first[0].program->call.signature, second[0].program->call.signature);
  EXPECT_EQ(first[0].program->call.wordCount, second[0].program->call.wordCount);
}

TEST_F(GpuProgramBatchTest, ANamedAlgorithmWithoutAKernelIsAProgramAmongKernels) {
  GpuBatcher batcher = make({.rankCount = 4, .hasPrograms = true, .algorithms = "allreduce:ring"});
  add(Collective::kAllReduce, 16);
  add(Collective::kAllGather, 16);
  add(Collective::kAllReduce, 16);
  const auto emitted = build(batcher);
  ASSERT_EQ(emitted.size(), 3u) << "in the order of the calls";
  EXPECT_TRUE(emitted[0].program.has_value());
  EXPECT_EQ(emitted[1].calls.size(), 1u);
  EXPECT_TRUE(emitted[2].program.has_value());
}

TEST_F(GpuProgramBatchTest, TransfersOfManyRanksShareALaunch) {
  for (int32_t peer = 0; peer < kRanks; ++peer) {
    add(Collective::kSend, 100, peer);
    add(Collective::kRecv, 100, peer);
  }
  add(Collective::kSend, 7, 3);
  GpuBatcher batcher = makeOfMany();
  const auto emitted = build(batcher);
  ASSERT_EQ(emitted.size(), 2u) << "the second send to rank 3 goes into the second";
  EXPECT_EQ(emitted[0].kernel, "tuttiProgramTransfers");
  const wire::GpuProgramTransfers& all = *emitted[0].programTransfers;
  EXPECT_EQ(all.transferCount, 2 * kRanks - 1) << "the one with itself is a copy";
  EXPECT_EQ(all.source, reinterpret_cast<std::byte*>(in_));
  int32_t next = 0;
  int32_t sends = 0;
  for (const auto& transfer :
       std::span(all.transfers).first(static_cast<size_t>(all.transferCount))) {
    EXPECT_EQ(transfer.firstBlock, next);
    EXPECT_EQ(transfer.bytes, 400u);
    next += transfer.blocks;
    if ((transfer.peerAndKind & wire::kGpuProgramSends) != 0) ++sends;
  }
  EXPECT_EQ(emitted[0].blocks, next);
  EXPECT_EQ(sends, kRanks - 1);
  EXPECT_EQ(emitted[1].programTransfers->transferCount, 1);
}

}  // namespace
}  // namespace tutti::launch
