#include "launch/block_accord.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "base/rng.h"

namespace tutti::launch {
namespace {

constexpr int32_t kRanks = 4;

// What kernels tell of a GPU that others use, or that nobody else does.
class Starts {
 public:
  uint64_t next(bool isLate) {
    ++launches_;
    late_ += isLate ? 1 : 0;
    return uint64_t{launches_} << 32 | late_;
  }

 private:
  uint32_t launches_ = 0;
  uint32_t late_ = 0;
};

class BlockAccordTest : public testing::Test {
 protected:
  BlockAccordTest() {
    for (int32_t rank = 0; rank < kRanks; ++rank) accords_.emplace_back(board_, rank);
    starts_.resize(kRanks);
    for (auto& starts : starts_) starts.next(false);
  }

  bool enter(int32_t rank, bool isLate) {
    const auto at = static_cast<size_t>(rank);
    return accords_[at].enter(starts_[at].next(isLate));
  }
  // One call of all ranks, of which rank 2's GPU alone may be busy. Whether it saves blocks.
  bool call(bool isLate) {
    const bool saves = enter(0, false);
    for (int32_t rank = 1; rank < kRanks; ++rank)
      EXPECT_EQ(enter(rank, isLate && rank == 2), saves);
    return saves;
  }
  // Calls until one is as wanted.
  int callsUntil(bool saves, bool isLate, int most = 100'000) {
    int calls = 0;
    while (calls < most && call(isLate) != saves) ++calls;
    return calls;
  }

  observe::Board board_ = observe::Board::create(kRanks, "job", 1).value();
  std::vector<BlockAccord> accords_;
  std::vector<Starts> starts_;
};

TEST_F(BlockAccordTest, OneBusyGpuSavesOnAllRanksUntilItIsQuiet) {
  EXPECT_EQ(callsUntil(true, false, 1000), 1000) << "nobody is late";
  EXPECT_LE(callsUntil(true, true), 64);
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(call(true));
  const int first = callsUntil(false, false);
  EXPECT_GE(first, 64);
  EXPECT_LE(callsUntil(true, true), 64);
  const int second = callsUntil(false, false);
  EXPECT_GE(second, 2 * first - 64) << "two states do not take turns for long";
}

TEST_F(BlockAccordTest, AFewLateLaunchesChangeNothing) {
  for (int i = 0; i < 2000; ++i) ASSERT_FALSE(call(i % 8 == 0)) << i;
}

TEST_F(BlockAccordTest, NothingIsAgreedWithoutARank) {
  for (int i = 0; i < 1000; ++i) {
    for (int32_t rank = 1; rank < kRanks; ++rank) ASSERT_FALSE(enter(rank, true));
  }
  // One that comes to it much later is through the calls of the others before anything changes.
  for (int i = 0; i < 1000; ++i) ASSERT_FALSE(enter(0, true));
  EXPECT_LE(callsUntil(true, true), 64);
}

TEST_F(BlockAccordTest, WhatARankIsAheadOfIsRefused) {
  for (int i = 0; i < 200; ++i) ASSERT_FALSE(enter(3, false));
  for (int i = 0; i < 100; ++i) {
    for (int32_t rank = 0; rank < 3; ++rank) ASSERT_FALSE(enter(rank, true));
  }
  for (int i = 100; i < 200; ++i) {
    for (int32_t rank = 0; rank < 3; ++rank) ASSERT_FALSE(enter(rank, true));
  }
  EXPECT_LE(callsUntil(true, true), 64);
}

// Ranks run ahead of each other, at times farther than a proposal looks, and wish what they like.
TEST(BlockAccordTogether, EveryCallIsTheSameOnAllRanks) {
  constexpr int kCalls = 5'000;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    observe::Board board = observe::Board::create(kRanks, "job", 1).value();
    std::vector<std::vector<char>> saves(kRanks);
    std::vector<std::thread> ranks;
    std::array<std::atomic<int>, kRanks> begun{};
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([&, rank] {
        SeededRng rng(seed * kRanks + static_cast<uint64_t>(rank));
        BlockAccord accord(board, rank);
        Starts starts;
        bool isBusy = false;
        for (int call = 0; call < kCalls; ++call) {
          if (rng.below(200) == 0) isBusy = !isBusy;
          const int most = static_cast<int>(rng.below(24));
          const auto isBehind = [&](const std::atomic<int>& other) { return other + most < call; };
          while (std::ranges::any_of(begun, isBehind)) std::this_thread::yield();
          begun[static_cast<size_t>(rank)] = call + 1;
          saves[static_cast<size_t>(rank)].push_back(accord.enter(starts.next(isBusy)) ? 1 : 0);
        }
      });
    }
    for (std::thread& rank : ranks) rank.join();
    int changes = 0;
    for (size_t call = 0; call < kCalls; ++call) {
      for (const auto& other : saves) ASSERT_EQ(other[call], saves[0][call]) << seed << " " << call;
      if (call > 0 && saves[0][call] != saves[0][call - 1]) ++changes;
    }
    EXPECT_GT(changes, 0) << seed;
  }
}

}  // namespace
}  // namespace tutti::launch
