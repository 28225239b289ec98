// Graphs of several communicators on one GPU: nobody tells when they run, so whoever has no room
// beside what they hold is in their order.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>

#include "launch/gpu_launcher_testing.h"

namespace tutti::launch {
namespace {

constexpr int32_t kRanks = 4;
constexpr size_t kSelf = 1;
constexpr uint64_t kLong = 64 << 20, kShort = 16;  // elements

void* streamAt(size_t number) { return reinterpret_cast<void*>(0x1000 * (number + 1)); }

// Two communicators; of each the same rank.
class GpuGraphRoom : public testing::Test {
 protected:
  explicit GpuGraphRoom(bool mixesGraphs = true) : processes_(kRanks) {
    for (auto& communicator : communicators_) {
      communicator = std::make_unique<GpuCommunicator>(
          processes_, GpuRankOptions{.limits = {.rankCount = kRanks}, .mixesGraphs = mixesGraphs});
      EXPECT_TRUE(communicator->open(kSelf).ok());
    }
    gpu().hold();
  }
  device::FakeAccelerator& gpu() { return processes_.gpus[kSelf]; }
  // The number of its launch.
  uint64_t call(size_t communicator, void* stream, uint64_t count = kLong) {
    Group group;
    group.on(stream).add(Collective::kAllReduce, count);
    const Status status = group.launch(*communicators_[communicator]->launcher(kSelf));
    EXPECT_TRUE(status.ok()) << status.message();
    return gpu().launches().size();
  }
  void capture(uint64_t id, size_t communicator, uint64_t count = kLong) {
    gpu().beginCapture(streamAt(9), id);
    call(communicator, streamAt(9), count);
    gpu().endCapture(id);
  }
  // The number of the one launch that it has.
  uint64_t replay(uint64_t id, size_t stream) {
    const std::map<uint64_t, uint64_t> numbers = gpu().replay(id, streamAt(stream));
    EXPECT_EQ(numbers.size(), 1u);
    return numbers.begin()->second;
  }
  bool isAfter(uint64_t later, uint64_t earlier) {
    return gpu().launches()[later - 1].after.contains(earlier);
  }

  GpuProcesses processes_;
  std::array<std::unique_ptr<GpuCommunicator>, 2> communicators_;
};

class GpuGraphRoomOfPrograms : public GpuGraphRoom {
 protected:
  GpuGraphRoomOfPrograms() : GpuGraphRoom(false) {}
};

TEST_F(GpuGraphRoom, ACallWithoutRoomBesideAGraphIsInItsOrder) {
  capture(1, 0);
  const uint64_t first = replay(1, 0);
  const uint64_t between = call(1, streamAt(1));
  const uint64_t second = replay(1, 2);
  const uint64_t last = call(1, streamAt(3));
  EXPECT_TRUE(isAfter(between, first));
  EXPECT_TRUE(isAfter(second, between));
  EXPECT_TRUE(isAfter(last, second));
}

TEST_F(GpuGraphRoom, GraphsWithoutRoomBesideEachOtherRunInTheOrderOfTheirReplays) {
  capture(1, 0);
  capture(2, 1);
  uint64_t last = 0;
  for (const uint64_t id : {1, 2, 2, 1, 2, 1, 1}) {
    const uint64_t next = replay(id, static_cast<size_t>(last % 5));
    if (last != 0) {
      EXPECT_TRUE(isAfter(next, last));
    }
    last = next;
  }
}

TEST_F(GpuGraphRoom, WhatHasRoomWaitsForNobodysGraph) {
  capture(1, 0, kShort);
  capture(2, 1, kShort);
  const uint64_t first = replay(1, 0);
  EXPECT_FALSE(isAfter(replay(2, 1), first));
  EXPECT_FALSE(isAfter(call(1, streamAt(2), kShort), first));
}

TEST_F(GpuGraphRoom, AGraphThatIsGoneCountsNoMore) {
  capture(1, 0);
  const uint64_t first = replay(1, 0);
  gpu().destroyGraph(1);
  gpu().finish();
  gpu().hold();
  const uint64_t again = call(1, streamAt(1));
  EXPECT_FALSE(isAfter(again, first));
  // Nor what it held when there is another.
  capture(2, 0, kShort);
  const uint64_t other = replay(2, 2);
  EXPECT_FALSE(isAfter(call(1, streamAt(1), kShort), other));
}

// Its event is there for the other's graphs, which wait for it and record it.
TEST_F(GpuGraphRoom, TheOrderOutlivesTheCommunicatorWhoseItIs) {
  capture(1, 0);
  capture(2, 1);
  communicators_[0]->launcher(kSelf).reset();
  gpu().destroyGraph(1);
  const uint64_t first = replay(2, 0);
  EXPECT_TRUE(isAfter(replay(2, 1), first));
  communicators_[1]->launcher(kSelf).reset();
  gpu().destroyGraph(2);
  EXPECT_EQ(gpu().replay(2, streamAt(3)).size(), 1u);
}

TEST_F(GpuGraphRoom, EachGraphHasANodeForEachOrderAtEitherEnd) {
  capture(1, 0);
  gpu().beginCapture(streamAt(9), 2);
  for (int i = 0; i < 5; ++i) call(1, streamAt(9));
  gpu().endCapture(2);
  EXPECT_EQ(gpu().eventNodes(1), std::pair(size_t{1}, size_t{1}));
  EXPECT_EQ(gpu().eventNodes(2), std::pair(size_t{2}, size_t{2}));
}

// NCCL_GRAPH_MIXING_SUPPORT=0: the program orders the runs of graphs.
TEST_F(GpuGraphRoomOfPrograms, GraphsWithoutAnOrderOfTheirOwnAreLeftToTheProgram) {
  capture(1, 0);
  const uint64_t first = replay(1, 0);
  EXPECT_FALSE(isAfter(call(1, streamAt(1)), first));
}

}  // namespace
}  // namespace tutti::launch
