#include "launch/gpu_batch.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "launch/gpu_batch_testing.h"

namespace tutti::launch {
namespace {

TEST_F(GpuBatchTest, EqualCollectivesShareALaunchUpToItsCapacity) {
  for (int i = 0; i < wire::kGpuMaxCalls + 1; ++i) add(Collective::kAllReduce, 16);
  GpuBatcher batcher = make();
  const auto emitted = build(batcher);
  ASSERT_EQ(emitted.size(), 2u);
  EXPECT_EQ(emitted[0].calls.size(), static_cast<size_t>(wire::kGpuMaxCalls));
  EXPECT_EQ(emitted[1].calls.size(), 1u);
}

TEST_F(GpuBatchTest, ShortCallsOfALaunchTakeBlocksOfTheirOwn) {
  add(Collective::kAllReduce, 16);
  add(Collective::kAllReduce, 3000);
  add(Collective::kAllReduce, 16);
  GpuBatcher batcher = make();
  const auto emitted = build(batcher);
  ASSERT_EQ(emitted.size(), 1u);
  int32_t next = 0;
  for (const wire::GpuCall& call : emitted[0].calls) {
    EXPECT_EQ(call.firstBlock, next);
    next += call.blocks;
  }
  EXPECT_EQ(emitted[0].blocks, next);
  EXPECT_LT(next, 17);
}

TEST_F(GpuBatchTest, CallsForWhichNoBlocksAreLeftFollowOthers) {
  for (int i = 0; i < 3; ++i) add(Collective::kAllReduce, 6 * 1024);
  GpuBatcher batcher = make();
  const auto emitted = build(batcher);
  ASSERT_EQ(emitted.size(), 1u);
  EXPECT_EQ(emitted[0].calls[2].firstBlock, 0);
  EXPECT_LT(emitted[0].blocks, 17);
}

TEST_F(GpuBatchTest, KeepsCallOrderWhereKernelsDiffer) {
  add(Collective::kAllReduce, 16);
  add(Collective::kAllGather, 16);
  add(Collective::kAllReduce, 16);
  GpuBatcher batcher = make();
  const auto emitted = build(batcher);
  ASSERT_EQ(emitted.size(), 3u);
  EXPECT_EQ(emitted[0].kernel, emitted[2].kernel);
  EXPECT_NE(emitted[0].kernel, emitted[1].kernel);
}

TEST_F(GpuBatchTest, TheGridOfLongCallsIsThatOfTheLongest) {
  add(Collective::kAllReduce, uint64_t{1} << 20);
  add(Collective::kAllReduce, uint64_t{1} << 22);
  GpuBatcher batcher = make();
  const auto emitted = build(batcher);
  ASSERT_EQ(emitted.size(), 1u);
  EXPECT_EQ(emitted[0].calls[1].firstBlock, 0);
  const int32_t lanes = std::max(emitted[0].calls[0].blocks, emitted[0].calls[1].blocks);
  EXPECT_EQ(emitted[0].blocks, wire::kGpuLaneParts * lanes);
  EXPECT_EQ(emitted[0].threads, 256);
  EXPECT_FALSE(emitted[0].isBulk);
  EXPECT_EQ(emitted[0].sharedBytes, 0u);
}

TEST_F(GpuBatchTest, LongCallsGoByBulkWhereAllOfALaunchMay) {
  const auto isBulk = [&](const void* input, Collective second) {
    calls_.clear();
    add(Collective::kAllReduce, uint64_t{1} << 22);
    add(second, (uint64_t{1} << 22) + 1);
    calls_[1].input = input;
    GpuBatcher batcher = make(4, false, true);
    const auto emitted = build(batcher);
    EXPECT_EQ(emitted.size(), 1u);
    EXPECT_EQ(emitted[0].sharedBytes, emitted[0].isBulk ? wire::gpuBulkBytes(4) : 0u);
    EXPECT_EQ(emitted[0].blocks, emitted[0].isBulk ? 32 : 48);
    EXPECT_EQ(emitted[0].threads, 512);
    return emitted[0].isBulk;
  };
  EXPECT_TRUE(isBulk(in_, Collective::kAllReduce));
  EXPECT_FALSE(isBulk(in_ + 4, Collective::kAllReduce));
  EXPECT_FALSE(isBulk(in_, Collective::kReduceScatter)) << "blocks of an odd length";
}

// Both are calls of one kernel.
TEST_F(GpuBatchTest, CallsBeforeAndAfterBlocksAreSavedShareNoLaunch) {
  add(Collective::kAllReduce, uint64_t{1} << 22);
  add(Collective::kAllReduce, uint64_t{1} << 22);
  wire::GpuView view{};
  view.rank = kRank;
  view.rankCount = 4;
  GpuBatcher batcher(view, {.rankCount = 4, .adaptsBlocks = true, .hasBulk = true});
  int asked = 0;
  batcher.askWhetherToSave([&] { return ++asked > 1; });
  const auto emitted = build(batcher);
  ASSERT_EQ(emitted.size(), 2u);
  EXPECT_EQ(emitted[0].kernel, emitted[1].kernel);
  EXPECT_FALSE(emitted[0].isBulk);
  EXPECT_EQ(emitted[0].blocks, wire::kGpuLaneParts * wire::kGpuMaxBlocks);
  EXPECT_TRUE(emitted[1].isBulk);
  EXPECT_EQ(emitted[1].blocks, 32);
}

TEST_F(GpuBatchTest, EmptyCallsNeedNoKernel) {
  add(Collective::kAllReduce, 0);
  add(Collective::kSend, 0, 2);
  GpuBatcher batcher = make();
  EXPECT_TRUE(build(batcher).empty());
  EXPECT_TRUE(status_.ok());
}

TEST_F(GpuBatchTest, SignaturesTellCallsApart) {
  add(Collective::kAllReduce, 16);
  add(Collective::kAllReduce, 16);
  add(Collective::kAllReduce, 17);
  GpuBatcher batcher = make();
  const auto emitted = build(batcher);
  ASSERT_EQ(emitted.size(), 1u);
  EXPECT_EQ(emitted[0].calls[0].signature, emitted[0].calls[1].signature);
  EXPECT_NE(emitted[0].calls[0].signature, emitted[0].calls[2].signature);
}

}  // namespace
}  // namespace tutti::launch
