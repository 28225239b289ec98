// Calls into windows that the GPUs' copy engines carry.
#include <gtest/gtest.h>

#include "launch/gpu_batch_testing.h"

namespace tutti::launch {
namespace {

TEST_F(GpuBatchTest, LongAllGathersIntoWindowsGoByCopyEngines) {
  constexpr uint64_t kBytes = uint64_t{64} << 20;
  GpuBatcher batcher = make(2);
  inWindow_ = out_;
  theirs_ = kElsewhere + 4096;
  reached_ = {out_};
  add(Collective::kAllGather, kBytes / 4);
  add(Collective::kAllGather, 1 << 20);
  add(Collective::kAllReduce, kBytes / 4);
  const auto emitted = build(batcher);
  ASSERT_EQ(emitted.size(), 3u);
  EXPECT_FALSE(emitted[1].engines.has_value()) << "short";
  EXPECT_FALSE(emitted[2].engines.has_value()) << "it folds";
  ASSERT_TRUE(emitted[0].engines.has_value());
  const EngineWork& work = *emitted[0].engines;
  ASSERT_EQ(work.toPeerCount, 1);
  const EngineWork::Copy& toPeer = work.toPeers[0];
  EXPECT_EQ(toPeer.to, theirs_ + kBytes) << "rank 1's block of rank 0's output";
  EXPECT_EQ(toPeer.from, in_);
  EXPECT_EQ(toPeer.bytes, kBytes);
  const auto& after = emitted[0].transfers;
  ASSERT_EQ(after.size(), 2u);
  ASSERT_EQ(work.gate.transferCount, 2);
  for (const auto* part : {&after[0], &work.gate.transfers[0]}) {
    EXPECT_TRUE(part[0].isSend && part[0].tellsPlace);
    EXPECT_EQ(part[0].source, toPeer.to);
    EXPECT_FALSE(part[1].isSend);
    EXPECT_EQ(part[1].reach, kElsewhere);
    EXPECT_EQ(part[0].signature, part[1].signature);
    EXPECT_EQ(part[0].blocks, part[1].blocks);
    EXPECT_EQ(emitted[0].blocks, part[1].firstBlock + part[1].blocks);
  }
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(work.gate.transfers[i].engine, wire::GpuEngine::kGate);
    EXPECT_EQ(after[i].engine, wire::GpuEngine::kTell);
  }
  EXPECT_EQ(work.gate.view.rank, kRank);
  ASSERT_EQ(work.own.transferCount, 1);
  EXPECT_EQ(work.own.transfers[0].source, reinterpret_cast<std::byte*>(in_));
  EXPECT_EQ(work.own.transfers[0].blocks, work.ownBlocks);
  EXPECT_GT(work.ownBlocks, emitted[0].blocks);
}

TEST_F(GpuBatchTest, WhatGoesByCopyEnginesHasASignatureOfItsOwn) {
  GpuBatcher batcher = make(2);
  theirs_ = kElsewhere;
  // As far apart as the bytes are long, or the call would be in place.
  add(Collective::kAllToAll, uint64_t{16} << 20);
  calls_[0].input = kElsewhere;
  const auto apart = build(batcher);
  inWindow_ = out_;
  const auto together = build(batcher);
  ASSERT_TRUE(!apart.empty() && !together.empty());
  EXPECT_NE(apart[0].transfers[0].signature, together[0].transfers[0].signature)
      << "a rank without a window must find out that the others have one";
  EXPECT_EQ(together[0].transfers[0].signature & wire::kGpuShares, 0u);
}

TEST_F(GpuBatchTest, CtaPolicyZeroGivesShortCallsAndOwnBlocksToCopyEngines) {
  GpuBatcher batcher = make(2, true);
  inWindow_ = out_;
  theirs_ = kElsewhere;
  add(Collective::kAllToAll, 16);
  calls_[0].input = kElsewhere;
  const auto emitted = build(batcher);
  ASSERT_EQ(emitted.size(), 1u);
  ASSERT_TRUE(emitted[0].engines.has_value());
  EXPECT_EQ(emitted[0].engines->ownBlocks, 0);
  EXPECT_EQ(emitted[0].engines->ownByEngine.to, out_ + 64);
  EXPECT_EQ(emitted[0].engines->ownByEngine.from, kElsewhere + 64);
}

TEST_F(GpuBatchTest, KernelsSendWhileThePeersWindowIsNotMapped) {
  GpuBatcher batcher = make(2);
  inWindow_ = out_;
  add(Collective::kAllGather, uint64_t{16} << 20);
  const auto emitted = build(batcher);
  ASSERT_EQ(emitted.size(), 1u);
  ASSERT_TRUE(emitted[0].engines.has_value());
  EXPECT_EQ(emitted[0].engines->toPeerCount, 0);
  ASSERT_EQ(emitted[0].transfers.size(), 2u);
  EXPECT_TRUE(emitted[0].transfers[0].isSend);
  EXPECT_EQ(emitted[0].transfers[0].engine, wire::GpuEngine::kNone);
  EXPECT_EQ(emitted[0].transfers[1].engine, wire::GpuEngine::kNone);
  EXPECT_EQ(emitted[0].transfers[0].blocks, emitted[0].transfers[1].blocks) << "as its peer's";
}

TEST_F(GpuBatchTest, MoreRanksGoByCopyEnginesWhereThePolicyIsZero) {
  constexpr uint64_t kBytes = uint64_t{64} << 20;
  inWindow_ = out_;
  theirs_ = kElsewhere;
  add(Collective::kAllToAll, kBytes / 4);
  calls_[0].input = kElsewhere + (uint64_t{1} << 39);
  GpuBatcher usual = make(4);
  EXPECT_FALSE(build(usual).at(0).engines.has_value());
  GpuBatcher batcher = make(4, true);
  const auto emitted = build(batcher);
  ASSERT_EQ(emitted.size(), 1u);
  ASSERT_TRUE(emitted[0].engines.has_value());
  const EngineWork& work = *emitted[0].engines;
  ASSERT_EQ(work.toPeerCount, 3);
  const auto* input = static_cast<const std::byte*>(calls_[0].input);
  for (size_t i = 0; i < 3; ++i) {
    const size_t peer = (kRank + 1 + i) % 4;
    EXPECT_EQ(work.toPeers[i].from, input + peer * kBytes);
    EXPECT_EQ(work.toPeers[i].to, kElsewhere + kRank * kBytes) << "of the peer's output";
  }
  EXPECT_EQ(work.gate.transferCount, 6);
  EXPECT_EQ(emitted[0].transfers.size(), 6u);
  int32_t blocks = 0;
  for (const wire::GpuTransfer& transfer : emitted[0].transfers) {
    EXPECT_EQ(transfer.engine, wire::GpuEngine::kTell);
    EXPECT_EQ(transfer.firstBlock, blocks) << "each in blocks of its own";
    blocks += transfer.blocks;
  }
  EXPECT_EQ(emitted[0].blocks, blocks);
  EXPECT_LE(blocks, 2 * wire::kGpuEngineBlocks);
}

// The gate has all receives, or ranks of which some are mapped could wait for each other in a ring.
TEST_F(GpuBatchTest, KernelsSendToThosePeersWhoseWindowIsNotMapped) {
  inWindow_ = out_;
  theirs_ = kElsewhere;
  unmapped_ = {0, 3};
  add(Collective::kAllGather, uint64_t{16} << 20);
  GpuBatcher batcher = make(4, true);
  const auto emitted = build(batcher);
  ASSERT_EQ(emitted.size(), 1u);
  ASSERT_TRUE(emitted[0].engines.has_value());
  const EngineWork& work = *emitted[0].engines;
  EXPECT_EQ(work.toPeerCount, 1);
  ASSERT_EQ(work.gate.transferCount, 4);
  int sends = 0;
  for (const wire::GpuTransfer& transfer : std::span(work.gate.transfers).first(4)) {
    EXPECT_EQ(transfer.engine, wire::GpuEngine::kGate);
    sends += transfer.isSend ? 1 : 0;
    if (transfer.isSend) {
      EXPECT_EQ(transfer.peer, 2);
    }
  }
  EXPECT_EQ(sends, 1);
  ASSERT_EQ(emitted[0].transfers.size(), 6u);
  for (const wire::GpuTransfer& transfer : emitted[0].transfers) {
    const bool isByKernel = transfer.isSend && transfer.peer != 2;
    EXPECT_EQ(transfer.engine, isByKernel ? wire::GpuEngine::kNone : wire::GpuEngine::kTell);
  }
}

}  // namespace
}  // namespace tutti::launch
