// Calls on buffers that peers have mapped.
#include <gtest/gtest.h>

#include "launch/gpu_batch_testing.h"

namespace tutti::launch {
namespace {

TEST_F(GpuBatchTest, ALongCallOnAReachedOutputTellsWhereItIs) {
  GpuBatcher batcher = make();
  reached_ = {out_};
  add(Collective::kAllGather, kLong);
  const auto emitted = build(batcher);
  ASSERT_EQ(emitted.size(), 1u);
  ASSERT_EQ(emitted[0].reaches.size(), 1u);
  EXPECT_EQ(emitted[0].calls[0].reach, 0);
  EXPECT_EQ(emitted[0].reaches[0].output[3], kElsewhere);
  EXPECT_EQ(emitted[0].reaches[0].alive, &alive_);
  EXPECT_EQ(asked_[0].second, kLong * 4 * 4) << "all-gather's output has a block of each rank";
}

TEST_F(GpuBatchTest, WhatCannotGainIsNotAskedFor) {
  GpuBatcher batcher = make();
  add(Collective::kAllReduce, 1000);  // by lines
  for (const auto collective :
       {Collective::kAllReduce, Collective::kReduce, Collective::kReduceScatter})
    add(collective, kLong);
  add(Collective::kAllGather, kLong + 1);  // blocks that are not aligned
  for (const Emitted& one : build(batcher)) EXPECT_EQ(one.calls[0].reach, -1);
  EXPECT_TRUE(asked_.empty());
}

TEST_F(GpuBatchTest, AnUnalignedOutputAndAnAllToAllInPlaceAreNotShared) {
  GpuBatcher batcher = make();
  reached_ = {out_, out_ + 4};
  calls_.push_back({.shape = {.collective = Collective::kAllGather, .count = kLong},
                    .input = in_,
                    .output = out_ + 4});
  calls_.push_back({.shape = {.collective = Collective::kAllToAll, .count = kLong},
                    .input = out_,
                    .output = out_});
  for (const Emitted& one : build(batcher)) EXPECT_EQ(one.calls[0].reach, -1);
}

TEST_F(GpuBatchTest, MoreReachedCallsThanALaunchHasRoomForTakeAnother) {
  GpuBatcher batcher = make();
  reached_ = {out_};
  for (int i = 0; i < wire::kGpuMaxReaches + 1; ++i) add(Collective::kAllGather, kLong);
  const auto emitted = build(batcher);
  ASSERT_EQ(emitted.size(), 2u);
  EXPECT_EQ(emitted[0].reaches.size(), static_cast<size_t>(wire::kGpuMaxReaches));
  EXPECT_EQ(emitted[1].reaches.size(), 1u);
  EXPECT_EQ(emitted[1].calls[0].reach, 0);
}

TEST_F(GpuBatchTest, TheReceiverOfALongSendTellsItsPlaceOrThatItHasNone) {
  for (const bool isReached : {true, false}) {
    GpuBatcher batcher = make();
    calls_.clear();
    reached_.clear();
    if (isReached) reached_ = {out_};
    add(Collective::kSend, kLong, 2);
    add(Collective::kRecv, kLong, 2);
    add(Collective::kRecv, 1000, 3);
    const auto emitted = build(batcher);
    ASSERT_EQ(emitted.size(), 1u);
    const auto& transfers = emitted[0].transfers;
    ASSERT_EQ(transfers.size(), 3u);
    EXPECT_TRUE(transfers[0].tellsPlace);
    EXPECT_EQ(transfers[0].reach, nullptr);
    EXPECT_TRUE(transfers[1].tellsPlace) << "the sender waits for it in any case";
    EXPECT_EQ(transfers[1].reach, isReached ? kElsewhere : nullptr);
    EXPECT_FALSE(transfers[2].tellsPlace);
  }
}

}  // namespace
}  // namespace tutti::launch
