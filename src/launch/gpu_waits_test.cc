#include "launch/gpu_waits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::launch {
namespace {

using observe::EntryState;
using observe::Life;
using observe::OperationNote;
using observe::RankView;
using observe::WaitNote;
using testing::ElementsAre;
using testing::IsEmpty;

OperationNote reduction(uint64_t number, EntryState state = EntryState::kRunning) {
  OperationNote note;
  note.number = number;
  note.sequence = number;
  note.collective = Collective::kAllReduce;
  note.state = state;
  return note;
}

OperationNote transfer(uint64_t number, Collective collective, int32_t peer) {
  OperationNote note = reduction(number);
  note.collective = collective;
  note.peer = peer;
  return note;
}

// Calls `last`, `last - 1` … `first`, as the board lists them.
RankView rankWith(int32_t rank, uint64_t first, uint64_t last) {
  RankView view;
  view.rank = rank;
  view.life = Life::kReady;
  for (uint64_t number = last; number >= first && number > 0; --number)
    view.history.push_back(reduction(number));
  return view;
}

bool nobodyIsDead(const RankView&) { return false; }

std::vector<int32_t> peersOf(const std::vector<WaitNote>& waits) {
  std::vector<int32_t> peers;
  for (const WaitNote& wait : waits) peers.push_back(wait.peer);
  return peers;
}

TEST(GpuWaits, ThoseWhoHaveNotCalledAreAwaited) {
  const std::vector<RankView> ranks = {rankWith(0, 1, 5), rankWith(1, 1, 5), rankWith(2, 1, 4),
                                       rankWith(3, 1, 0)};
  const auto waits = findGpuWaits(ranks, 0, 5, nobodyIsDead);
  EXPECT_THAT(peersOf(waits), ElementsAre(2, 3));
  EXPECT_EQ(waits[0].number, 5u);
  EXPECT_THAT(findGpuWaits(ranks, 0, 4, nobodyIsDead).size(), 1u);
}

TEST(GpuWaits, ADeadRankIsAwaitedEvenIfItHasCalled) {
  const std::vector<RankView> ranks = {rankWith(0, 1, 5), rankWith(1, 1, 9)};
  EXPECT_THAT(findGpuWaits(ranks, 0, 5, nobodyIsDead), IsEmpty());
  const auto waits = findGpuWaits(ranks, 0, 5, [](const RankView& peer) { return peer.rank == 1; });
  EXPECT_THAT(peersOf(waits), ElementsAre(1));
}

// A rank may put hundreds of calls on its stream while the first of them hangs.
TEST(GpuWaits, ACallThatTheBoardHasForgottenIsStoodInForByTheOldestItHolds) {
  const std::vector<RankView> ranks = {rankWith(0, 100, 163), rankWith(1, 1, 5),
                                       rankWith(2, 120, 183)};
  const auto waits = findGpuWaits(ranks, 0, 6, nobodyIsDead);
  EXPECT_THAT(peersOf(waits), ElementsAre(1));
  EXPECT_EQ(waits[0].number, 100u);
  EXPECT_THAT(findGpuWaits({rankWith(0, 1, 0), rankWith(1, 1, 5)}, 0, 6, nobodyIsDead), IsEmpty());
}

TEST(GpuWaits, ATransferWaitsForItsPeerAlone) {
  std::vector<RankView> ranks = {rankWith(0, 1, 0), rankWith(1, 1, 0), rankWith(2, 1, 0)};
  ranks[0].history = {transfer(1, Collective::kSend, 2)};
  EXPECT_THAT(peersOf(findGpuWaits(ranks, 0, 1, nobodyIsDead)), ElementsAre(2));
  ranks[2].history = {transfer(1, Collective::kRecv, 0)};
  EXPECT_THAT(findGpuWaits(ranks, 0, 1, nobodyIsDead), IsEmpty());
}

TEST(GpuWaits, WhoHasLeftWithoutCallingOurCollectiveHasAbandonedIt) {
  std::vector<RankView> ranks = {rankWith(0, 1, 5), rankWith(1, 1, 4), rankWith(2, 1, 4),
                                 rankWith(3, 1, 5), rankWith(4, 1, 0)};
  EXPECT_THAT(findAbandoned(ranks, 0), IsEmpty()) << "all are there";
  for (size_t peer = 2; peer < ranks.size(); ++peer) ranks[peer].life = Life::kDestroyed;
  EXPECT_THAT(peersOf(findAbandoned(ranks, 0)), ElementsAre(2, 4));
  // Whose collectives the board may have forgotten.
  for (uint64_t number = 0; number < observe::kHistory; ++number)
    ranks[4].history.push_back(transfer(number, Collective::kSend, 3));
  EXPECT_THAT(peersOf(findAbandoned(ranks, 0)), ElementsAre(2));
  ranks[0].history.front().state = EntryState::kDone;
  EXPECT_THAT(findAbandoned(ranks, 0), IsEmpty());
}

TEST(GpuWaits, WhoHasLeftInOrderIsNoDeath) {
  std::vector<RankView> ranks = {rankWith(0, 1, 5), rankWith(1, 1, 5), rankWith(2, 1, 5)};
  ranks[1].life = Life::kDestroyed;
  const auto waits = findDeaths(ranks, 0, 5, [](const RankView&) { return true; });
  EXPECT_THAT(peersOf(waits), ElementsAre(2));
  EXPECT_THAT(findDeaths(ranks, 0, 5, nobodyIsDead), IsEmpty());
}

}  // namespace
}  // namespace tutti::launch
