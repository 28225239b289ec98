#include "bootstrap/meeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace tutti::bootstrap {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr Instant kStart{1'000};

Report reportOf(int rank, int count, uint64_t process = 1) {
  return {
      .rank = Rank{rank},
      .rankCount = count,
      .timeout = milliseconds(300),
      .contact = {.address = {}, .processHash = process, .who = fmt::format("node{}:42", rank)}};
}

std::string messageOf(const Meeting& meeting) { return std::string(meeting.failure().message()); }

TEST(Meeting, IsMetWhenTheLastRankComes) {
  Meeting meeting("job", 9);
  for (int rank : {2, 0, 3}) meeting.arrive(reportOf(rank, 4), kStart);
  EXPECT_EQ(meeting.state(), Meeting::State::kGathering);
  meeting.arrive(reportOf(1, 4), kStart);
  EXPECT_EQ(meeting.state(), Meeting::State::kMet);
  EXPECT_TRUE(meeting.isOneProcess());
}

TEST(Meeting, AnswersWithTheNeighboursOfAnAllGather) {
  Meeting meeting("job", 9);
  for (int rank = 0; rank < 1000; ++rank) meeting.arrive(reportOf(rank, 1000), kStart);
  const Answer answer = meeting.answerFor(Rank{1});
  std::set<int> ranks;
  for (const Answer::Peer& peer : answer.peers) ranks.insert(index(peer.rank));
  EXPECT_EQ(answer.epoch, 9u);
  for (int distance = 1; distance < 1000; distance *= 2) {
    EXPECT_TRUE(ranks.contains((1 + distance) % 1000));
    EXPECT_TRUE(ranks.contains((1001 - distance) % 1000));
  }
  EXPECT_LE(ranks.size(), 20u);
}

TEST(Meeting, NamesBothWhenTwoShareARank) {
  Meeting meeting("job", 9);
  Report second = reportOf(1, 4);
  second.contact.who = "other:7";
  meeting.arrive(reportOf(1, 4), kStart);
  meeting.arrive(second, kStart);
  EXPECT_EQ(meeting.failure().code(), Code::kInvalidUsage);
  EXPECT_THAT(messageOf(meeting), HasSubstr("rank 1 of 4: node1:42 and other:7"));
}

TEST(Meeting, NamesBothWhenTheyDisagreeAboutTheirNumber) {
  Meeting meeting("job", 9);
  meeting.arrive(reportOf(0, 4), kStart);
  meeting.arrive(reportOf(1, 5), kStart);
  EXPECT_EQ(meeting.failure().code(), Code::kInvalidUsage);
  EXPECT_THAT(messageOf(meeting), HasSubstr("rank 0 (node0:42) says 4, rank 1 (node1:42) says 5"));
}

TEST(Meeting, ListsTheMissingWhenPatienceRunsOut) {
  Meeting meeting("job", 9);
  for (int rank : {0, 1, 2, 4}) meeting.arrive(reportOf(rank, 8), kStart);
  meeting.expire(kStart + milliseconds(299));
  EXPECT_FALSE(meeting.isOver());
  meeting.expire(*meeting.deadline());
  EXPECT_EQ(meeting.failure().code(), Code::kRemoteError);
  EXPECT_THAT(messageOf(meeting), HasSubstr("ranks 3, 5-7 of 8 did not come within 300 ms"));
  EXPECT_THAT(messageOf(meeting), HasSubstr("0 (node0:42), 1 (node1:42)"));
  EXPECT_THAT(messageOf(meeting), HasSubstr("TUTTI_INIT_TIMEOUT_MS"));
}

TEST(Meeting, TellsWhoIsMissingEachTimeTheWaitHasDoubled) {
  Meeting meeting("job", 9, milliseconds(10));
  EXPECT_FALSE(meeting.noticeTime());
  meeting.arrive(reportOf(1, 3), kStart);
  EXPECT_EQ(meeting.notice(kStart + milliseconds(9)), "");
  EXPECT_EQ(*meeting.noticeTime(), kStart + milliseconds(10));
  const std::string first = meeting.notice(kStart + milliseconds(100));
  EXPECT_THAT(first, HasSubstr("ranks 0, 2 of 3 did not come for 0.1 s"));
  EXPECT_THAT(first, HasSubstr("present: 1 (node1:42)"));
  EXPECT_EQ(meeting.notice(kStart + milliseconds(199)), "");
  EXPECT_NE(meeting.notice(kStart + milliseconds(200)), "");
  meeting.expire(*meeting.deadline());
  EXPECT_EQ(meeting.notice(kStart + milliseconds(1'000)), "");
  EXPECT_FALSE(meeting.noticeTime());
}

TEST(Meeting, SaysWhyTheRootLetNobodyIn) {
  Meeting meeting("job", 9);
  for (int rank : {0, 1}) meeting.arrive(reportOf(rank, 4), kStart);
  meeting.expire(*meeting.deadline(), "needs one more file descriptor");
  EXPECT_EQ(meeting.failure().code(), Code::kSystemError);
  EXPECT_THAT(messageOf(meeting),
              HasSubstr("could not let in ranks 2-3 of 4 within 300 ms: it "
                        "needs one more file descriptor; present: 0 (node0:42)"));
}

TEST(Meeting, KeepsTheListShortForLargeJobs) {
  Meeting meeting("job", 9);
  for (int rank = 0; rank < 100'000; rank += 2) meeting.arrive(reportOf(rank, 100'000), kStart);
  meeting.expire(*meeting.deadline());
  EXPECT_LT(messageOf(meeting).size(), 600u);
  EXPECT_THAT(messageOf(meeting), HasSubstr("and 49992 more"));
}

TEST(Meeting, TheImpatientRankSetsTheDeadline) {
  Meeting meeting("job", 9);
  meeting.arrive(reportOf(0, 4), kStart);
  Report hasty = reportOf(1, 4);
  hasty.timeout = milliseconds(10);
  meeting.arrive(hasty, kStart + milliseconds(100));
  EXPECT_EQ(*meeting.deadline(), kStart + milliseconds(110));
}

TEST(Meeting, FailsWhenARankLeavesAgain) {
  Meeting meeting("job", 9);
  meeting.arrive(reportOf(2, 4), kStart);
  meeting.leave(Rank{1}, "closed its connection");
  EXPECT_FALSE(meeting.isOver());
  meeting.leave(Rank{2}, "closed its connection");
  EXPECT_THAT(messageOf(meeting),
              HasSubstr("rank 2 (node2:42) closed its connection before all 4"));
}

TEST(Meeting, TellsLateComersThatTheIdWasUsed) {
  Meeting meeting("job", 9);
  meeting.arrive(reportOf(0, 1), kStart);
  const Status told = meeting.failureFor(reportOf(0, 1));
  EXPECT_EQ(told.code(), Code::kInvalidUsage);
  EXPECT_THAT(std::string(told.message()), HasSubstr("id already used"));
}

TEST(Meeting, TellsALateComerOfAnotherCircleThatTheListsDiffer) {
  Meeting meeting("job", 9);
  Report report = reportOf(0, 1);
  report.circle = {.first = 2, .of = 4, .guests = 0, .listHash = 5};
  meeting.arrive(report, kStart);
  report.circle.listHash = 6;
  EXPECT_THAT(std::string(meeting.failureFor(report).message()),
              HasSubstr("different lists of ids"));
}

TEST(Meeting, TellsAllRanksOfAProcessWhereItListens) {
  Meeting meeting("job", 9);
  meeting.arrive(reportOf(0, 3, 1), kStart);
  meeting.arrive(reportOf(1, 3, 2), kStart);
  meeting.arrive(reportOf(2, 3, 1), kStart);
  EXPECT_FALSE(meeting.isOneProcess());
  meeting.setAddress(1, SocketAddress::parse("10.0.0.5:1").value());
  for (const Answer::Peer& peer : meeting.answerFor(Rank{1}).peers) {
    EXPECT_EQ(peer.contact.address.text(), "10.0.0.5:1");
  }
  for (const Answer::Peer& peer : meeting.answerFor(Rank{0}).peers) {
    EXPECT_EQ(peer.contact.address.isEmpty(), peer.rank == Rank{1});
  }
}

}  // namespace
}  // namespace tutti::bootstrap
