#include "observe/link_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::observe {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int64_t kSecond = 1'000'000'000;

// Rank 1 of three waits for a message of rank 0's, and for room on the way to rank 2.
Examination examination(const std::string& name) {
  Examination found{.name = name, .evidence = {}, .finding = {}};
  found.evidence.now = 10 * kSecond;
  for (int32_t rank = 0; rank < 3; ++rank) {
    RankView view;
    view.rank = rank;
    view.life = Life::kReady;
    found.evidence.ranks.push_back(std::move(view));
  }
  found.evidence.ranks[1].waits = {
      {.peer = 0, .direction = Direction::kReceive, .step = 3, .piece = 1, .since = 8 * kSecond},
      {.peer = 2, .direction = Direction::kSend, .step = 4, .since = 9 * kSecond}};
  return found;
}

LinkState link(int32_t rank, int32_t peer, bool isOutgoing) {
  return {.communicator = "job",
          .rank = rank,
          .peer = peer,
          .isOutgoing = isOutgoing,
          .lane = "collectives",
          .transport = "shm",
          .isConnected = true,
          .published = 17,
          .givenBack = 12,
          .slots = 8,
          .notes = {}};
}

TEST(LinkTable, ShowsWhatIsUnderWayAndTheWaitOnIt) {
  const std::vector<Examination> found = {examination("other"), examination("job")};
  const std::vector<LinkState> links = {link(1, 0, false)};
  const std::string text = linkTable(links, found);
  EXPECT_THAT(text, HasSubstr("communicator job\n  rank 1 from 0, collectives: shm; 17 messages "
                              "in, 12 given back, 5 of 8 slots taken\n"));
  EXPECT_THAT(text, HasSubstr("rank 1 waits for a message from rank 0"));
  EXPECT_THAT(text, HasSubstr("step 3, piece 1, for 2.0 s"));
  EXPECT_THAT(text, Not(HasSubstr("rank 2")));
}

TEST(LinkTable, HasAWaitAtItsOwnLinkOnly) {
  const std::vector<Examination> found = {examination("job")};
  const auto hasWait = [&found](const LinkState& each) {
    return linkTable({&each, 1}, found).find("waits") != std::string::npos;
  };
  EXPECT_TRUE(hasWait(link(1, 0, false)));
  EXPECT_TRUE(hasWait(link(1, 2, true)));
  EXPECT_FALSE(hasWait(link(1, 0, true)));   // the other direction
  EXPECT_FALSE(hasWait(link(1, 2, false)));  // likewise
  EXPECT_FALSE(hasWait(link(0, 1, true)));   // another rank's
  EXPECT_FALSE(hasWait(link(7, 0, false)));  // no rank of the board
  LinkState elsewhere = link(1, 0, false);
  elsewhere.communicator = "another";
  EXPECT_FALSE(hasWait(elsewhere));
}

TEST(LinkTable, ShowsWhatANetworkCarriesAndWhatIsNotConnected) {
  LinkState carried = link(0, 2, true), incoming = link(0, 2, false), early = link(0, 1, true);
  carried.isCarried = incoming.isCarried = true;
  carried.carriedMessages = 16;
  carried.carriedBytes = 4000;
  carried.notes = "its receiver sleeps";
  early.isConnected = false;
  const std::vector<LinkState> links = {carried, incoming, early};
  const std::string text = linkTable(links, {});
  EXPECT_THAT(text, HasSubstr("16 messages, 4000 bytes given to the network; its receiver sleeps"));
  EXPECT_THAT(text, HasSubstr("0 messages, 0 bytes brought by the network\n"));
  EXPECT_THAT(text, HasSubstr("rank 0 to 1, collectives: not connected yet\n"));
  EXPECT_EQ(linkTable({}, {}), "");
}

}  // namespace
}  // namespace tutti::observe
