#include "launch/gpu_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launch/stream_calls.h"

namespace tutti::launch {
namespace {

using testing::HasSubstr;

struct Emitted {
  bool isTransfers = false;
  std::string kernel;
  int32_t blocks = 0;
  int32_t threads = 0;
  uint32_t sharedBytes = 0;
  bool isBulk = false;
  std::vector<wire::GpuCall> calls{};
  std::vector<wire::GpuTransfer> transfers{};
  std::vector<wire::GpuReach> reaches{};
  std::optional<EngineWork> engines{};
  std::optional<wire::GpuProgramLaunch> program{};
  std::optional<wire::GpuProgramTransfers> programTransfers{};
};

class GpuBatchTest : public testing::Test {
 protected:
  static constexpr int32_t kRank = 1;

  GpuBatcher make(int32_t rankCount = 4, bool prefersEngines = false, bool hasBulk = false) const {
    wire::GpuView view{};
    view.rank = kRank;
    view.rankCount = rankCount;
    return GpuBatcher(view, {.rankCount = rankCount,
                             .maxBlocks = hasBulk ? 32 : wire::kGpuMaxBlocks,
                             .prefersEngines = prefersEngines,
                             .hasBulk = hasBulk});
  }
  void add(Collective collective, uint64_t count, int peer = 0,
           DataType type = DataType::kFloat32) {
    calls_.push_back(
        {.shape = {.collective = collective, .type = type, .peer = Rank{peer}, .count = count},
         .input = in_,
         .output = out_});
  }
  std::vector<Emitted> build(GpuBatcher& batcher) {
    std::vector<StreamCall> items;
    for (const Call& call : calls_) items.push_back({.call = &call});
    status_ = checkSelfTransfers(items, Rank{kRank});
    std::vector<Emitted> emitted;
    if (!status_.ok()) return emitted;
    const auto find = [&](const void* buffer, size_t bytes, wire::GpuReach& reach) {
      asked_.push_back({buffer, bytes});
      if (!std::ranges::count(reached_, buffer)) return false;
      std::ranges::fill(reach.output, kElsewhere);
      reach.alive = &alive_;
      return true;
    };
    status_ = batcher.build(
        items, find,
        [&](const GpuBatch& batch) -> Status {
          Emitted& one = emitted.emplace_back();
          one.kernel = batch.choice.kernel;
          one.blocks = batch.blocks;
          one.threads = batch.choice.threads;
          one.sharedBytes = batch.sharedBytes;
          one.isTransfers = batch.transfers != nullptr;
          if (batch.engines != nullptr) one.engines = *batch.engines;
          if (batch.program != nullptr) one.program = *batch.program;
          if (batch.programTransfers != nullptr) one.programTransfers = *batch.programTransfers;
          if (one.program || one.programTransfers) return {};
          if (one.isTransfers) {
            one.transfers.assign(batch.transfers->transfers,
                                 batch.transfers->transfers + batch.transfers->transferCount);
          } else {
            one.isBulk = batch.collectives->isBulk != 0;
            one.calls.assign(batch.collectives->calls,
                             batch.collectives->calls + batch.collectives->callCount);
            one.reaches.assign(batch.collectives->reaches,
                               batch.collectives->reaches + batch.collectives->reachCount);
          }
          return {};
        },
        [&](const void* buffer, size_t, GpuBatcher::Places& theirs) {
          theirs.fill(theirs_);
          return buffer == inWindow_;
        });
    return emitted;
  }

  // Where peers have what is reached; not read.
  static inline std::byte* const kElsewhere = reinterpret_cast<std::byte*>(uintptr_t{1} << 40);
  static constexpr uint64_t kLong = uint64_t{64} << 20;  // floats

  alignas(16) char in_[32] = {};
  alignas(16) char out_[32] = {};
  uint32_t alive_ = 1;
  const void* inWindow_ = nullptr;    // an output
  std::byte* theirs_ = nullptr;       // where peers have it
  std::vector<const void*> reached_;  // buffers that peers have mapped
  std::vector<std::pair<const void*, size_t>> asked_;
  std::vector<Call> calls_;
  Status status_;
};

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

TEST_F(GpuBatchTest, EmptyCallsNeedNoKernel) {
  add(Collective::kAllReduce, 0);
  add(Collective::kSend, 0, 2);
  GpuBatcher batcher = make();
  EXPECT_TRUE(build(batcher).empty());
  EXPECT_TRUE(status_.ok());
}

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
      EXPECT_FALSE(transfer.goesByLines || transfer.tellsPlace);
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
  EXPECT_EQ(work.toPeer.to, theirs_ + kBytes) << "rank 1's block of rank 0's output";
  EXPECT_EQ(work.toPeer.from, in_);
  EXPECT_EQ(work.toPeer.bytes, kBytes);
  const auto& after = emitted[0].transfers;
  ASSERT_EQ(after.size(), 2u);
  ASSERT_EQ(work.gate.transferCount, 2);
  for (const auto* part : {&after[0], &work.gate.transfers[0]}) {
    EXPECT_TRUE(part[0].isSend && part[0].tellsPlace);
    EXPECT_EQ(part[0].source, work.toPeer.to);
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
  EXPECT_EQ(emitted[0].engines->toPeer.bytes, 0u);
  ASSERT_EQ(emitted[0].transfers.size(), 2u);
  EXPECT_TRUE(emitted[0].transfers[0].isSend);
  EXPECT_EQ(emitted[0].transfers[0].engine, wire::GpuEngine::kNone);
  EXPECT_EQ(emitted[0].transfers[1].engine, wire::GpuEngine::kNone);
  EXPECT_EQ(emitted[0].transfers[0].blocks, emitted[0].transfers[1].blocks) << "as its peer's";
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
  EXPECT_TRUE(emitted[0].transfers[0].goesByLines);
  EXPECT_FALSE(emitted[0].transfers[1].goesByLines);
  EXPECT_FALSE(emitted[0].transfers[2].goesByLines);
}

TEST_F(GpuBatchTest, ALongCallOnAReachedOutputTellsWhereItIs) {
  GpuBatcher batcher = make();
  reached_ = {out_};
  add(Collective::kAllReduce, kLong);
  add(Collective::kAllGather, kLong);
  const auto emitted = build(batcher);
  ASSERT_EQ(emitted.size(), 2u);
  for (const Emitted& one : emitted) {
    ASSERT_EQ(one.reaches.size(), 1u);
    EXPECT_EQ(one.calls[0].reach, 0);
    EXPECT_EQ(one.reaches[0].output[3], kElsewhere);
    EXPECT_EQ(one.reaches[0].alive, &alive_);
  }
  EXPECT_EQ(asked_[0].second, kLong * 4);
  EXPECT_EQ(asked_[1].second, kLong * 4 * 4) << "all-gather's output has a block of each rank";
}

TEST_F(GpuBatchTest, WhatCannotGainIsNotAskedFor) {
  GpuBatcher batcher = make();
  add(Collective::kAllReduce, 1000);       // by lines
  add(Collective::kReduceScatter, kLong);  // all of it is folded
  add(Collective::kAllGather, kLong + 1);  // blocks that are not aligned
  for (const Emitted& one : build(batcher)) EXPECT_EQ(one.calls[0].reach, -1);
  EXPECT_TRUE(asked_.empty());
}

TEST_F(GpuBatchTest, AnUnalignedOutputAndAnAllToAllInPlaceAreNotShared) {
  GpuBatcher batcher = make();
  reached_ = {out_, out_ + 4};
  calls_.push_back({.shape = {.collective = Collective::kAllReduce, .count = kLong},
                    .input = in_,
                    .output = out_ + 4});
  calls_.push_back({.shape = {.collective = Collective::kAllToAll, .count = kLong},
                    .input = out_,
                    .output = out_});
  for (const Emitted& one : build(batcher)) EXPECT_EQ(one.calls[0].reach, -1);
}

TEST_F(GpuBatchTest, ARankThatGetsNothingOfAReductionAgreesByItsInput) {
  for (const int root : {kRank, 0}) {
    GpuBatcher batcher = make();
    calls_.clear();
    asked_.clear();
    reached_ = {root == kRank ? out_ : in_};
    add(Collective::kReduce, kLong, root);
    const auto emitted = build(batcher);
    ASSERT_EQ(emitted.size(), 1u);
    ASSERT_EQ(emitted[0].calls[0].reach, 0) << "root " << root;
    EXPECT_EQ(emitted[0].reaches[0].output[0], root == kRank ? kElsewhere : nullptr);
  }
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

TEST_F(GpuBatchTest, ASendAndItsReceiveHaveOneSignature) {
  add(Collective::kSend, 10, 0);
  add(Collective::kRecv, 10, 0);
  GpuBatcher batcher = make();
  const auto emitted = build(batcher);
  ASSERT_EQ(emitted.size(), 1u);
  EXPECT_EQ(emitted[0].transfers[0].signature, emitted[0].transfers[1].signature);
}

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
