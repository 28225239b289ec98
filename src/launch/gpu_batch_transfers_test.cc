// Sends and receives, and long calls of two ranks, which are transfers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "launch/gpu_batch_testing.h"

namespace tutti::launch {
namespace {

using testing::HasSubstr;

TEST_F(GpuBatchTest, TheKthTransferOfAPairGoesIntoTheKthLaunch) {
  add(Collective::kRecv, 10, 0);
  add(Collective::kSend, 10, 0);
  add(Collective::kSend, 20, 0);
  add(Collective::kSend, 30, 2);
  add(Collective::kAllReduce, 4);
  GpuBatcher batcher = make();
  const auto emitted = build(batcher);
  ASSERT_EQ(emitted.size(), 3u);
  EXPECT_FALSE(emitted[0].isTransfers) << "collectives come first";
  ASSERT_EQ(emitted[1].transfers.size(), 3u);
  ASSERT_EQ(emitted[2].transfers.size(), 1u);
  EXPECT_EQ(emitted[2].transfers[0].bytes, 80u);
  int32_t blocks = 0;
  for (const wire::GpuTransfer& transfer : emitted[1].transfers) {
    EXPECT_EQ(transfer.firstBlock, blocks) << "each has blocks of its own";
    blocks += transfer.blocks;
  }
  EXPECT_EQ(emitted[1].blocks, blocks);
}

TEST_F(GpuBatchTest, ATransferWithOneselfIsACopy) {
  add(Collective::kSend, 10, kRank);
  add(Collective::kRecv, 10, kRank);
  GpuBatcher batcher = make();
  const auto emitted = build(batcher);
  ASSERT_EQ(emitted.size(), 1u);
  ASSERT_EQ(emitted[0].transfers.size(), 1u);
  EXPECT_EQ(static_cast<const void*>(emitted[0].transfers[0].source), in_);
  EXPECT_EQ(static_cast<void*>(emitted[0].transfers[0].buffer), out_);
}

TEST_F(GpuBatchTest, LongBroadcastsOfTwoRanksAreTransfers) {
  GpuBatcher batcher = make(2);
  add(Collective::kAllReduce, 10);
  add(Collective::kBroadcast, 8 << 20, kRank);
  add(Collective::kBroadcast, 8 << 20, 0);
  add(Collective::kAllGather, 4 << 20);
  const auto emitted = build(batcher);
  ASSERT_EQ(emitted.size(), 4u) << "in the order of calls";
  EXPECT_FALSE(emitted[0].isTransfers);
  ASSERT_EQ(emitted[1].transfers.size(), 2u);
  EXPECT_TRUE(emitted[1].transfers[0].isSend);
  EXPECT_EQ(emitted[1].transfers[0].peer, 0);
  EXPECT_EQ(static_cast<const void*>(emitted[1].transfers[1].source), in_);
  ASSERT_EQ(emitted[2].transfers.size(), 1u);
  EXPECT_FALSE(emitted[2].transfers[0].isSend);
  ASSERT_EQ(emitted[3].transfers.size(), 3u);
  const auto output = reinterpret_cast<uintptr_t>(out_);
  const auto addressOf = [&](size_t i) {
    return reinterpret_cast<uintptr_t>(emitted[3].transfers[i].buffer);
  };
  EXPECT_EQ(addressOf(1), output) << "the block of rank 0";
  EXPECT_EQ(addressOf(2), output + (uintptr_t{16} << 20)) << "the own block";
  EXPECT_EQ(emitted[3].blocks, emitted[3].transfers[2].firstBlock + emitted[3].transfers[2].blocks);
}

TEST_F(GpuBatchTest, LongReductionsOfTwoRanksAreTransfersThatFold) {
  GpuBatcher batcher = make(2);
  add(Collective::kReduce, 4 << 20, kRank);
  add(Collective::kReduce, 4 << 20, 0);
  add(Collective::kReduceScatter, 4 << 20);
  calls_.push_back({.shape = {.collective = Collective::kAllReduce, .count = 4 << 20},
                    .input = in_,
                    .output = in_});
  const auto emitted = build(batcher);
  ASSERT_EQ(emitted.size(), 4u);
  for (const Emitted& one : emitted) {
    EXPECT_EQ(one.kernel, "tuttiFoldTransfers");
    for (const wire::GpuTransfer& transfer : one.transfers) {
      EXPECT_EQ(transfer.peer, 0);
      EXPECT_EQ(transfer.messages, wire::GpuMessages::kSlots);
      EXPECT_FALSE(transfer.tellsPlace);
      EXPECT_EQ(transfer.isInPlace, &one == &emitted[3]);
    }
  }
  const auto at = [](const void* address) { return reinterpret_cast<uintptr_t>(address); };
  ASSERT_EQ(emitted[0].transfers.size(), 1u) << "the root receives only";
  EXPECT_FALSE(emitted[0].transfers[0].isSend);
  EXPECT_EQ(at(emitted[0].transfers[0].source), at(in_));
  EXPECT_EQ(at(emitted[0].transfers[0].buffer), at(out_));
  ASSERT_EQ(emitted[1].transfers.size(), 1u);
  EXPECT_TRUE(emitted[1].transfers[0].isSend);
  ASSERT_EQ(emitted[2].transfers.size(), 2u);
  EXPECT_EQ(at(emitted[2].transfers[0].buffer), at(in_)) << "rank 0's block goes there";
  EXPECT_EQ(at(emitted[2].transfers[1].source), at(in_) + (uintptr_t{16} << 20));
  EXPECT_EQ(at(emitted[2].transfers[1].buffer), at(out_));
  EXPECT_EQ(emitted[3].transfers.size(), 2u);
}

TEST_F(GpuBatchTest, WhatOneOfTwoRanksSendsIsPulledWhereItIsLong) {
  GpuBatcher batcher = make(2);
  add(Collective::kReduce, 32 << 20, kRank);
  add(Collective::kReduce, 32 << 20, 0);
  add(Collective::kReduce, 1 << 18, kRank);
  add(Collective::kAllReduce, 32 << 20);
  add(Collective::kBroadcast, 32 << 20, kRank);
  add(Collective::kReduce, 128 << 20, kRank);
  add(Collective::kSend, 32 << 20, 0);
  const auto emitted = build(batcher);
  using enum wire::GpuPull;
  const std::array pulls{kHalf, kHalf, kNone, kNone, kHalf, kHalf, kNone};
  ASSERT_EQ(emitted.size(), pulls.size());
  for (size_t i = 0; i < emitted.size(); ++i) {
    const wire::GpuTransfer& first = emitted[i].transfers[0];
    EXPECT_EQ(first.pull, pulls[i]) << i;
    EXPECT_TRUE(first.pull != kHalf || first.blocks == wire::kGpuMaxRings) << i;
    EXPECT_EQ(first.tellsPlace, i == 6) << "a receiver that loads needs no place";
  }
}

TEST_F(GpuBatchTest, LongAllToAllsOfTwoRanksAreTransfersThatHeedTheirOwnInput) {
  constexpr size_t kBytes = size_t{16} << 20;
  GpuBatcher batcher = make(2);
  const auto at = [](const void* address) { return reinterpret_cast<uintptr_t>(address); };
  const auto farAway = at(out_) + 4 * kBytes;
  reached_ = {out_, in_};
  const plan::CallShape shape{.collective = Collective::kAllToAll, .count = kBytes / 4};
  calls_.push_back(
      {.shape = shape, .input = reinterpret_cast<const void*>(farAway), .output = out_});
  calls_.push_back({.shape = shape, .input = in_, .output = in_});
  const auto emitted = build(batcher);
  ASSERT_EQ(emitted.size(), 2u);
  const auto& apart = emitted[0].transfers;
  ASSERT_EQ(apart.size(), 3u);
  EXPECT_EQ(at(apart[0].buffer), farAway) << "what is for rank 0";
  EXPECT_EQ(at(apart[1].buffer), at(out_)) << "what is of rank 0";
  EXPECT_EQ(at(apart[2].source), farAway + kBytes);
  EXPECT_EQ(at(apart[2].buffer), at(out_) + kBytes);
  EXPECT_FALSE(apart[0].isInPlace || apart[1].isInPlace);
  EXPECT_EQ(apart[1].reach, kElsewhere);
  const auto& inPlace = emitted[1].transfers;
  ASSERT_EQ(inPlace.size(), 2u) << "nothing to copy";
  EXPECT_TRUE(inPlace[0].isInPlace && inPlace[1].isInPlace);
  EXPECT_TRUE(inPlace[1].tellsPlace) << "its peer may not be in place";
  EXPECT_EQ(inPlace[1].reach, nullptr);
}

TEST_F(GpuBatchTest, ShortTransfersGoByLinesAndCopiesDoNot) {
  add(Collective::kSend, 100, 0);
  add(Collective::kRecv, 1 << 20, 2);
  add(Collective::kSend, 100, kRank);
  add(Collective::kRecv, 100, kRank);
  GpuBatcher batcher = make();
  const auto emitted = build(batcher);
  ASSERT_EQ(emitted.size(), 1u);
  ASSERT_EQ(emitted[0].transfers.size(), 3u);
  EXPECT_EQ(emitted[0].transfers[0].messages, wire::GpuMessages::kLines);
  EXPECT_EQ(emitted[0].transfers[1].messages, wire::GpuMessages::kSlots);
  EXPECT_EQ(emitted[0].transfers[2].messages, wire::GpuMessages::kSlots);
}

TEST_F(GpuBatchTest, RefusesHalfATransferWithOneself) {
  add(Collective::kSend, 10, kRank);
  GpuBatcher batcher = make();
  build(batcher);
  EXPECT_EQ(status_.code(), Code::kInvalidUsage);
  EXPECT_THAT(std::string(status_.message()), HasSubstr("1 send(s) to itself and 0 receive(s)"));
}

TEST_F(GpuBatchTest, RefusesUnequalSizesWithOneself) {
  add(Collective::kSend, 10, kRank);
  add(Collective::kRecv, 11, kRank);
  GpuBatcher batcher = make();
  build(batcher);
  EXPECT_EQ(status_.code(), Code::kInvalidUsage);
}

TEST_F(GpuBatchTest, ASendAndItsReceiveHaveOneSignature) {
  add(Collective::kSend, 10, 0);
  add(Collective::kRecv, 10, 0);
  GpuBatcher batcher = make();
  const auto emitted = build(batcher);
  ASSERT_EQ(emitted.size(), 1u);
  EXPECT_EQ(emitted[0].transfers[0].signature, emitted[0].transfers[1].signature);
}

}  // namespace
}  // namespace tutti::launch
