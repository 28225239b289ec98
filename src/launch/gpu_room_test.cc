// Who fits beside whom, and what a launch waits for that does not.
#include "launch/gpu_room.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

namespace tutti::launch {
namespace {

using Launch = GpuRoom::Launch;

constexpr uint32_t kMultiprocessors = 132;

GpuRoom::Tail tailAt(uintptr_t number) {
  return {reinterpret_cast<device::Event*>(number), [](device::Event*) {}};
}

class GpuRoomTest : public testing::Test {
 protected:
  static constexpr size_t kGuests = 6;

  GpuRoomTest() {
    for (size_t i = 0; i < kGuests; ++i)
      guests_.push_back(std::make_unique<GpuRoom::Guest>(room_, tailAt(i + 1)));
  }
  // Numbers of the guests whose tails the launch has to wait for.
  std::vector<size_t> enter(size_t guest, const Launch& launch) {
    GpuRoom::Tails tails;
    orders_.clear();
    guests_[guest]->enter(launch, tails, orders_);
    std::vector<size_t> numbers;
    for (const auto& tail : tails) numbers.push_back(reinterpret_cast<uintptr_t>(tail.get()) - 1);
    return numbers;
  }
  GpuRoom room_{kMultiprocessors};
  std::vector<std::unique_ptr<GpuRoom::Guest>> guests_;
  GpuRoom::Tails orders_;  // of the launch that entered last
};

using Numbers = std::vector<size_t>;

constexpr Launch kCollective{.blocks = 64, .leastBlocks = 1, .perMultiprocessor = 1};
constexpr Launch kTransfers{.blocks = 128, .leastBlocks = 128, .perMultiprocessor = 3};
constexpr Launch kFolding{.blocks = 128, .leastBlocks = 128, .perMultiprocessor = 2};
constexpr Launch kProgram{.blocks = 64, .leastBlocks = 64, .perMultiprocessor = 1};

// As docs/ARCHITECTURE.md tells it of a H100.
TEST_F(GpuRoomTest, ThreeLongCollectivesGoSideBySideAndTheFourthWaits) {
  EXPECT_EQ(enter(0, kCollective), Numbers());
  EXPECT_EQ(enter(1, kCollective), Numbers());
  EXPECT_EQ(enter(2, kCollective), Numbers());
  EXPECT_EQ(enter(3, kCollective), Numbers({0}));
  EXPECT_EQ(enter(1, kCollective), Numbers({0})) << "of which nobody knows yet that it has ended";
}

TEST_F(GpuRoomTest, ThreeLongTransfersGoSideBySideAndTwoThatFold) {
  for (size_t guest = 0; guest < 3; ++guest) EXPECT_EQ(enter(guest, kTransfers), Numbers());
  EXPECT_EQ(enter(3, kTransfers), Numbers({0}));
  for (auto& guest : guests_) guest->leave();
  EXPECT_EQ(enter(0, kFolding), Numbers());
  EXPECT_EQ(enter(1, kFolding), Numbers());
  EXPECT_EQ(enter(2, kFolding), Numbers({0}));
}

TEST_F(GpuRoomTest, WhatNeedsAllItsBlocksIsNotCrowdedOutByWhatCameLater) {
  EXPECT_EQ(enter(0, kFolding), Numbers());
  EXPECT_EQ(enter(1, kCollective), Numbers());
  EXPECT_EQ(enter(2, kCollective), Numbers({0})) << "of 132 multiprocessors it leaves 4 to 0";
  for (auto& guest : guests_) guest->leave();
  EXPECT_EQ(enter(0, kProgram), Numbers());
  EXPECT_EQ(enter(1, kProgram), Numbers());
  EXPECT_EQ(enter(2, kProgram), Numbers({0}));
}

TEST_F(GpuRoomTest, ShortCallsOfManyCommunicatorsNeverWait) {
  for (size_t guest = 0; guest < kGuests; ++guest) {
    EXPECT_EQ(enter(guest, {.blocks = 16, .leastBlocks = 1}), Numbers());
  }
}

TEST_F(GpuRoomTest, OneAloneNeverWaits) {
  EXPECT_EQ(enter(0, {.blocks = 1000, .leastBlocks = 1000}), Numbers());
  EXPECT_EQ(enter(0, {.blocks = 1000, .leastBlocks = 1000}), Numbers());
}

TEST_F(GpuRoomTest, WhatIsOnTheSameStreamHasEnded) {
  for (size_t guest = 0; guest < 3; ++guest) {
    EXPECT_EQ(enter(guest, kCollective), Numbers());
    guests_[guest]->settle(7);
  }
  Launch launch = kCollective;
  launch.stream = 7;
  EXPECT_EQ(enter(3, launch), Numbers());
  guests_[3]->settle(7);
  launch.stream = 8;
  EXPECT_EQ(enter(4, launch), Numbers({0, 1}));
  EXPECT_TRUE(guests_[5]->tryEnter({.blocks = 1, .leastBlocks = 1, .stream = 7}));
  EXPECT_FALSE(guests_[5]->tryEnter({.blocks = 1, .leastBlocks = 1})) << "it starts early";
}

TEST_F(GpuRoomTest, WhatHasEndedLeavesItsRoom) {
  for (size_t guest = 0; guest < 3; ++guest) enter(guest, kCollective);
  EXPECT_FALSE(guests_[3]->tryEnter(kCollective));
  guests_[0]->leave();
  EXPECT_TRUE(guests_[3]->tryEnter(kCollective));
  EXPECT_EQ(enter(0, kCollective), Numbers({1}));
  guests_[2].reset();
  EXPECT_EQ(enter(0, kCollective), Numbers());
}

TEST_F(GpuRoomTest, AProbeTellsWhichLaunchesHaveEnded) {
  for (size_t guest = 0; guest < 3; ++guest) enter(guest, kCollective);
  guests_[0]->probe();
  EXPECT_FALSE(guests_[3]->tryEnter(kCollective));
  guests_[0]->probeReached();
  EXPECT_TRUE(guests_[3]->tryEnter(kCollective));
  guests_[1]->probe();
  enter(1, kCollective);
  guests_[1]->probeReached();
  EXPECT_EQ(enter(0, kCollective), Numbers({2})) << "1 has another";
}

TEST_F(GpuRoomTest, ACaptureHasARoomOfItsOwn) {
  for (size_t guest = 0; guest < 3; ++guest) enter(guest, kCollective);
  Launch launch = kCollective;
  launch.capture = 5;
  for (size_t guest = 0; guest < 3; ++guest) {
    EXPECT_EQ(enter(guest, launch), Numbers()) << guest;
    guests_[guest]->settleCaptured(5, tailAt(101 + guest));
  }
  EXPECT_EQ(enter(3, launch), Numbers({100}));
  launch.capture = 6;
  EXPECT_EQ(enter(3, launch), Numbers());
}

TEST_F(GpuRoomTest, WhatGraphsHoldCountsForAsLongAsTheyLive) {
  const auto graphs = std::make_shared<char>();
  auto graph = std::make_shared<std::shared_ptr<char>>(graphs);
  const GpuRoom::Tail order = tailAt(50);
  guests_[0]->keepGraphs(graphs, order);
  Launch captured = kProgram;
  captured.blocks = captured.leastBlocks = 100;
  captured.capture = 5;
  EXPECT_EQ(enter(0, captured), Numbers());
  EXPECT_EQ(enter(1, kProgram), Numbers()) << "the order is all that it waits for";
  EXPECT_EQ(orders_, GpuRoom::Tails({order}));
  captured.capture = 6;
  enter(1, captured);
  EXPECT_EQ(orders_, GpuRoom::Tails({order}));
  guests_[1]->leave();
  graph.reset();
  enter(2, kProgram);
  EXPECT_EQ(orders_, GpuRoom::Tails());
}

// Whatever lies on a multiprocessor: if a block finds no room there, twelve twelfths are taken for
// it. Told by the room: so many of such multiprocessors as it has, and a block that needs one.
TEST_F(GpuRoomTest, WhereABlockFindsNoRoomItIsToldSo) {
  for (uint32_t looking = 1; looking <= 4; ++looking) {
    for (uint32_t code = 1; code < 5 * 5 * 5 * 5; ++code) {
      const std::array<uint32_t, 4> count = {code % 5, code / 5 % 5, code / 25 % 5, code / 125};
      double load = 0;
      for (size_t kind = 0; kind < 4; ++kind)
        load += static_cast<double>(count[kind]) / static_cast<double>(kind + 1);
      if (load + 1.0 / looking <= 1 + 1e-9) continue;
      GpuRoom room(kMultiprocessors);
      GpuRoom::Guest self(room, nullptr);
      std::vector<std::unique_ptr<GpuRoom::Guest>> others;
      for (uint32_t kind = 0; kind < 4; ++kind) {
        if (count[kind] == 0) continue;
        others.push_back(std::make_unique<GpuRoom::Guest>(room, nullptr));
        GpuRoom::Tails tails;
        others.back()->enter({.blocks = count[kind] * kMultiprocessors,
                              .leastBlocks = 0,
                              .perMultiprocessor = kind + 1},
                             tails, orders_);
      }
      EXPECT_FALSE(self.tryEnter({.blocks = 1, .leastBlocks = 1, .perMultiprocessor = looking}))
          << "1 / " << looking << " beside " << code;
    }
  }
}

}  // namespace
}  // namespace tutti::launch
