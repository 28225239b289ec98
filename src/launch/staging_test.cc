#include "launch/staging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "base/units.h"

namespace tutti::launch {
namespace {

using testing::HasSubstr;

// Cuts the calls of one rank, playing the device: each round's copies are made, and a function
// stands for the host's executor.
class StagingTest : public testing::Test {
 protected:
  static constexpr size_t kSlotBytes = 64_KiB;

  StagingCutter make(int rank, int rankCount) {
    memory_.assign(kStagingSlots * kSlotBytes, std::byte{0xee});
    return StagingCutter({.rank = Rank{rank},
                          .rankCount = rankCount,
                          .slots = {memory_.data(), memory_.data() + kSlotBytes},
                          .slotBytes = kSlotBytes});
  }
  void add(const plan::CallShape& shape, const void* input, void* output) {
    calls_.push_back({.shape = shape, .input = input, .output = output});
  }

  using Executor = std::function<void(const Call&)>;
  Status run(
      StagingCutter& cutter, const Executor& execute = [](const Call&) {}) {
    std::vector<StreamCall> items;
    for (const Call& call : calls_) items.push_back({.call = &call});
    rounds_.clear();
    return cutter.cut(items, [&](StagingRound& round) -> Status {
      if (!rounds_.empty()) {
        EXPECT_NE(round.slot, rounds_.back().slot);
      }
      for (const StagingCopy& copy : round.before) std::memmove(copy.to, copy.from, copy.bytes);
      for (const Call& call : round.calls) {
        expectInSlot(round.slot, call);
        execute(call);
      }
      for (const StagingCopy& copy : round.after) std::memmove(copy.to, copy.from, copy.bytes);
      rounds_.push_back(round);
      return {};
    });
  }
  void expectInSlot(size_t slot, const Call& call) const {
    const std::byte* first = memory_.data() + slot * kSlotBytes;
    for (const void* address : {call.input, static_cast<const void*>(call.output)}) {
      if (address == nullptr) continue;
      EXPECT_GE(address, first);
      EXPECT_LT(address, first + kSlotBytes);
    }
  }

  std::vector<std::byte> memory_;
  std::vector<Call> calls_;
  std::vector<StagingRound> rounds_;
};

std::vector<int32_t> numbers(size_t count) {
  std::vector<int32_t> values(count);
  std::iota(values.begin(), values.end(), 1);
  return values;
}

TEST_F(StagingTest, ShortCollectivesShareARound) {
  auto data = numbers(3000);
  for (size_t i = 0; i < 3; ++i) {
    add({.type = DataType::kInt32, .count = 1000}, data.data() + 1000 * i, data.data() + 1000 * i);
  }
  StagingCutter cutter = make(0, 4);
  ASSERT_TRUE(run(cutter).ok());
  ASSERT_EQ(rounds_.size(), 1U);
  EXPECT_EQ(rounds_[0].calls.size(), 3U);
}

// Their calls are other ones than those on pinned memory, and their slots have numbers of their
// own.
TEST_F(StagingTest, SlotsOfAGpuAreTold) {
  auto data = numbers(60'000);
  std::vector<std::byte> slots(kStagingSlots * kSlotBytes);
  StagingCutter cutter({.rank = Rank{0},
                        .rankCount = 4,
                        .slots = {slots.data(), slots.data() + kSlotBytes},
                        .slotBytes = kSlotBytes,
                        .firstSlot = 5,
                        .isOnGpu = true});
  const Call call{.shape = {.type = DataType::kInt32, .count = data.size()},
                  .input = data.data(),
                  .output = data.data()};
  const StreamCall item{.call = &call};
  std::vector<size_t> used;
  ASSERT_TRUE(cutter
                  .cut({&item, 1},
                       [&](StagingRound& round) -> Status {
                         used.push_back(round.slot);
                         for (const Call& each : round.calls) EXPECT_TRUE(each.shape.isOnGpu);
                         return {};
                       })
                  .ok());
  ASSERT_GE(used.size(), 3U);
  for (size_t i = 0; i < used.size(); ++i) EXPECT_EQ(used[i], 5 + i % kStagingSlots);
}

TEST_F(StagingTest, LongBlocksArriveWhereTheyBelong) {
  constexpr size_t kCount = 10'000;
  constexpr size_t kRanks = 3;
  const auto input = numbers(kRanks * kCount);
  std::vector<int32_t> output(kRanks * kCount, -1);
  add({.collective = Collective::kAllToAll, .type = DataType::kInt32, .count = kCount},
      input.data(), output.data());
  StagingCutter cutter = make(1, kRanks);
  // A single rank's view of an all-to-all among equals: what it sends is what it gets.
  ASSERT_TRUE(run(cutter, [](const Call& call) {
                std::memcpy(call.output, call.input, kRanks * call.shape.count * sizeof(int32_t));
              }).ok());
  EXPECT_GT(rounds_.size(), 2U);
  EXPECT_EQ(output, input);
}

TEST_F(StagingTest, ALeafOfABroadcastCutsAsTheRootDoes) {
  constexpr size_t kCount = 100'001;
  std::vector<uint8_t> data(kCount);
  for (const int rank : {0, 1}) {
    calls_.clear();
    add({.collective = Collective::kBroadcast, .type = DataType::kUint8, .count = kCount},
        data.data(), data.data());
    StagingCutter cutter = make(rank, 2);
    std::vector<uint64_t> pieces;
    ASSERT_TRUE(run(cutter, [&](const Call& call) { pieces.push_back(call.shape.count); }).ok());
    EXPECT_THAT(pieces, testing::ElementsAre(65'408U, kCount - 65'408U)) << "rank " << rank;
  }
}

// The executor's input and output are one block of the slot, and the root's own output comes from
// its input without it.
TEST_F(StagingTest, WhatGoesInPlaceIsStagedOnce) {
  const auto input = numbers(100);
  std::vector<int32_t> output(300, -1);
  const auto expectInPlace = [&](const plan::CallShape& shape, int rank, size_t block) {
    calls_.clear();
    add(shape, input.data(), output.data());
    StagingCutter cutter = make(rank, 3);
    ASSERT_TRUE(run(cutter, [&](const Call& call) {
                  const auto* in = static_cast<const std::byte*>(call.input);
                  EXPECT_EQ(in,
                            static_cast<std::byte*>(call.output) + block * 100 * sizeof(int32_t));
                }).ok());
  };
  expectInPlace({.collective = Collective::kAllReduce, .type = DataType::kInt32, .count = 100}, 1,
                0);
  expectInPlace({.collective = Collective::kAllGather, .type = DataType::kInt32, .count = 100}, 2,
                2);
  std::ranges::fill(output, -1);
  expectInPlace({.collective = Collective::kBroadcast,
                 .type = DataType::kInt32,
                 .peer = Rank{1},
                 .count = 100},
                1, 0);
  EXPECT_TRUE(rounds_[0].after.empty());
  EXPECT_TRUE(std::ranges::equal(input, std::span(output).first(100)));
}

TEST_F(StagingTest, ARoundHasSoManyCallsAtMost) {
  auto data = numbers(1);
  for (size_t i = 0; i < kStagingCalls + 1; ++i)
    add({.type = DataType::kInt32, .count = 1}, data.data(), data.data());
  StagingCutter cutter = make(0, 2);
  ASSERT_TRUE(run(cutter).ok());
  ASSERT_EQ(rounds_.size(), 2U);
  EXPECT_EQ(rounds_[0].calls.size(), kStagingCalls);
}

TEST_F(StagingTest, WhatFitsASlotIsTheSameOnAllRanks) {
  for (const int rank : {0, 1}) {
    StagingCutter cutter = make(rank, 4);
    const plan::CallShape shape{.collective = Collective::kScatter, .type = DataType::kUint8};
    plan::CallShape longer = shape;
    longer.count = kSlotBytes / 4 - 32;
    EXPECT_TRUE(cutter.fits(longer)) << "rank " << rank;
    ++longer.count;
    EXPECT_FALSE(cutter.fits(longer)) << "rank " << rank;
  }
}

TEST_F(StagingTest, FragmentsOfTransfersMeetWhateverElseARankSends) {
  constexpr size_t kCount = 20'000;
  std::vector<int32_t> data(8 * kCount);
  const auto fragmentsTo2 = [&](int rank) {
    StagingCutter cutter = make(rank, 4);
    EXPECT_TRUE(run(cutter).ok());
    std::vector<std::pair<size_t, uint64_t>> fragments;  // round and elements
    for (size_t i = 0; i < rounds_.size(); ++i) {
      for (const Call& call : rounds_[i].calls) {
        if (call.shape.peer == Rank{2}) fragments.emplace_back(i, call.shape.count);
      }
    }
    return fragments;
  };
  const auto send = [&](int peer, uint64_t count) {
    add({.collective = Collective::kSend,
         .type = DataType::kInt32,
         .peer = Rank{peer},
         .count = count},
        data.data(), nullptr);
  };
  send(2, kCount);
  const auto alone = fragmentsTo2(0);
  calls_.clear();
  send(3, 7);
  send(1, 7);
  send(2, kCount);
  EXPECT_EQ(fragmentsTo2(0), alone);
  EXPECT_GT(alone.size(), 3U);
}

TEST_F(StagingTest, ATransferToOneselfIsACopyWithinTheDevice) {
  const auto from = numbers(5);
  std::vector<int32_t> to(5);
  add({.collective = Collective::kSend, .type = DataType::kInt32, .peer = Rank{1}, .count = 5},
      from.data(), nullptr);
  add({.collective = Collective::kRecv, .type = DataType::kInt32, .peer = Rank{1}, .count = 5},
      nullptr, to.data());
  StagingCutter cutter = make(1, 2);
  ASSERT_TRUE(run(cutter).ok());
  ASSERT_EQ(rounds_.size(), 1U);
  EXPECT_TRUE(rounds_[0].calls.empty());
  EXPECT_EQ(to, from);
}

TEST_F(StagingTest, TooManyRanksForASlotAreToldTheSetting) {
  std::vector<int32_t> data(1);
  add({.collective = Collective::kAllGather, .type = DataType::kInt32, .count = 1}, data.data(),
      data.data());
  StagingCutter cutter = make(0, 1024);
  const Status status = run(cutter);
  EXPECT_EQ(status.code(), Code::kInvalidUsage);
  EXPECT_THAT(std::string(status.message()), HasSubstr("TUTTI_STAGING_BYTES"));
}

}  // namespace
}  // namespace tutti::launch
