#include "observe/diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "observe/activity.h"
#include "observe/finding.h"

namespace tutti::observe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr int64_t kSecond = 1'000'000'000;

OperationNote note(Collective collective, uint64_t sequence, uint64_t count = 8, int32_t peer = 0) {
  OperationNote made;
  made.collective = collective;
  made.peer = peer;
  made.count = count;
  made.sequence = sequence;
  made.number = sequence == 0 ? 1 : sequence;
  return made;
}

RankView rankView(int32_t rank, std::vector<OperationNote> history = {},
                  std::vector<int32_t> awaited = {}) {
  RankView view;
  view.rank = rank;
  view.life = Life::kReady;
  view.process.processId = 100 + rank;
  view.hostName = "node";
  view.history = std::move(history);
  for (const int32_t peer : awaited) {
    WaitNote wait;
    wait.peer = peer;
    wait.since = kSecond;
    wait.number = view.history.empty() ? 1 : view.history.front().number;
    view.waits.push_back(wait);
  }
  return view;
}

Evidence evidenceOf(std::vector<RankView> ranks) {
  Evidence evidence;
  evidence.states.assign(ranks.size(), ProcessState::kAlive);
  evidence.ranks = std::move(ranks);
  evidence.now = 10 * kSecond;
  return evidence;
}

TEST(FindMismatch, IsSilentWhenAllCallTheSameOrHaveNotComeThatFar) {
  EXPECT_FALSE(findMismatch({rankView(0, {note(Collective::kAllReduce, 2)}),
                             rankView(1, {note(Collective::kAllReduce, 1, 99)}), rankView(2)}));
}

TEST(FindMismatch, NamesTheOneThatDiffersFirst) {
  const auto found = findMismatch({rankView(0, {note(Collective::kAllReduce, 4)}),
                                   rankView(1, {note(Collective::kAllReduce, 4)}),
                                   rankView(2, {note(Collective::kBroadcast, 4, 8, 1)})});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->code, Code::kInvalidUsage);
  EXPECT_EQ(found->guilty, 2);
  EXPECT_THAT(found->text, HasSubstr("collective #4, rank 2 (node, pid 102) differs"));
  EXPECT_LT(found->text.find("Broadcast"), found->text.find("AllReduce"));
}

TEST(FindMismatch, ComparesWithWhatOthersHaveLeftBehind) {
  EXPECT_TRUE(
      findMismatch({rankView(0, {note(Collective::kAllReduce, 5), note(Collective::kBroadcast, 4)}),
                    rankView(1, {note(Collective::kAllReduce, 4)})}));
}

TEST(FindMismatch, ComparesWhatSomeHaveDoneWhileAnotherIsFarBehind) {
  const auto found =
      findMismatch({rankView(0, {note(Collective::kAllReduce, 4), note(Collective::kBroadcast, 3)}),
                    rankView(1, {note(Collective::kAllReduce, 4), note(Collective::kAllReduce, 3)}),
                    rankView(2, {note(Collective::kAllReduce, 2)})});
  ASSERT_TRUE(found);
  EXPECT_THAT(found->text, HasSubstr("collective #3"));
}

TEST(FindMismatch, LooksAsFarBackAsItIsTold) {
  std::vector<OperationNote> first, second;
  for (uint64_t sequence = 40; sequence > 0; --sequence) {
    first.push_back(note(Collective::kAllReduce, sequence));
    second.push_back(note(Collective::kAllReduce, sequence, sequence == 20 ? 9 : 8));
  }
  EXPECT_FALSE(findMismatch({rankView(0, first), rankView(1, second)}));
  EXPECT_TRUE(findMismatch({rankView(0, first), rankView(1, second)}, kHistory));
}

TEST(FindMismatch, CutsTheTableAndCountsTheRest) {
  std::vector<RankView> ranks;
  for (int32_t rank = 0; rank < 40; ++rank)
    ranks.push_back(rankView(rank, {note(Collective::kAllReduce, 1, rank == 39 ? 9 : 8)}));
  const auto found = findMismatch(ranks);
  ASSERT_TRUE(found);
  EXPECT_EQ(std::ranges::count(found->text, '\n'), 1 + 16 + 1);
  EXPECT_THAT(found->text, HasSubstr("\n    39  AllReduce"));
  EXPECT_THAT(found->text, HasSubstr("and 24 more ranks"));
}

TEST(CompareTransfer, NamesBothSizes) {
  const auto receive = note(Collective::kRecv, 0, 200, 0);
  const auto found = compareTransfer(
      {rankView(0, {note(Collective::kSend, 0, 100, 1)}), rankView(1, {receive})}, 1, 0, receive);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->text, HasSubstr("sends 100 elements of float (400 bytes)"));
  EXPECT_THAT(found->text, HasSubstr("receives 200 of float (800 bytes)"));
}

TEST(FindCycle, FindsACircleBehindAWaiterThatIsNotInIt) {
  const std::vector<RankView> ranks = {rankView(0, {}, {2}), rankView(1, {}, {3}),
                                       rankView(2, {}, {1}), rankView(3, {}, {2})};
  EXPECT_THAT(findCycle(ranks, 10 * kSecond, kSecond), ElementsAre(1, 3, 2));
}

TEST(FindCycle, LooksAtEveryWaitOfAGroup) {
  const std::vector<RankView> ranks = {rankView(0, {}, {2, 1}), rankView(1, {}, {0}), rankView(2)};
  EXPECT_THAT(findCycle(ranks, 10 * kSecond, kSecond), ElementsAre(0, 1));
}

TEST(FindCycle, LeavesYoungWaitsAndChainsAlone) {
  const std::vector<RankView> circle = {rankView(0, {}, {1}), rankView(1, {}, {0})};
  EXPECT_THAT(findCycle(circle, kSecond + 5, kSecond), IsEmpty());
  EXPECT_THAT(findCycle({rankView(0, {}, {1}), rankView(1, {}, {2}), rankView(2)}, 10 * kSecond, 0),
              IsEmpty());
}

// Between hosts, where messages may be long on their way.
TEST(IsOfCalls, OnlyWhereNobodyWaitsForWhatAnotherIsAbout) {
  const std::vector<OperationNote> reduce = {note(Collective::kAllReduce, 4)};
  const std::vector<OperationNote> receive = {note(Collective::kRecv, 0)};
  const std::vector<OperationNote> send = {note(Collective::kSend, 0)};
  const std::vector<int32_t> circle = {0, 1};
  const auto pair = [](auto first, auto second) {
    return std::vector<RankView>{rankView(0, first, {1}), rankView(1, second, {0})};
  };
  EXPECT_TRUE(isOfCalls(pair(receive, receive), circle));
  EXPECT_TRUE(isOfCalls(pair(reduce, receive), circle));
  EXPECT_FALSE(isOfCalls(pair(reduce, reduce), circle)) << "each is to send the other something";
  std::vector<RankView> met = pair(send, receive);
  met[0].waits[0].direction = Direction::kSend;
  EXPECT_FALSE(isOfCalls(met, circle)) << "what rank 0 has sent is on its way";
  met[0].waits[0].direction = Direction::kConnect;
  EXPECT_FALSE(isOfCalls(met, circle));
  met[0].history = reduce;
  met[0].waits[0].number = reduce[0].number;
  EXPECT_TRUE(isOfCalls(met, circle)) << "a receive takes no message of a collective";
}

TEST(FollowWaits, EndsAtWhoeverWaitsForNobody) {
  EXPECT_THAT(followWaits({rankView(0, {}, {2}), rankView(1), rankView(2, {}, {1})}, 0),
              ElementsAre(0, 2, 1));
}

TEST(WhyLate, CountsTheOperationsBehind) {
  auto done = note(Collective::kBroadcast, 40);
  done.state = EntryState::kDone;
  const auto waiting = note(Collective::kAllReduce, 41, 1024);
  EXPECT_EQ(whyLate(rankView(2, {done}), rankView(0), &waiting),
            "rank 2 (node, pid 102) has not called AllReduce #41 (1024 of float, sum), 1 operation "
            "behind: its last call was Broadcast #40 (8 of float, root 0), done");
}

TEST(WhyLate, NamesTheCallThatASendWaitsFor) {
  auto send = note(Collective::kSend, 0, 100);
  send.peer = 2;
  EXPECT_EQ(whyLate(rankView(2), rankView(0), &send),
            "rank 2 (node, pid 102) has not called Recv from rank 0 to meet that rank's Send (100 "
            "of float, to rank 2): it has called nothing yet");
}

TEST(WhyLate, SendsToTheHostWhereTheRankIs) {
  auto late = rankView(2);
  late.life = Life::kElsewhere;
  late.hostName = "far";
  const auto waiting = note(Collective::kAllReduce, 41, 1024);
  EXPECT_EQ(whyLate(late, rankView(0), &waiting),
            "rank 2 (far, pid 102) is on another host: \"tutti why\" on far tells what it does");
  EXPECT_FALSE(isOutside(late));
}

TEST(Find, LooksHereForARankThatHasNotInitialised) {
  auto waiter = rankView(0);
  waiter.history = {note(Collective::kAllReduce, 1, 8)};
  waiter.waits = {{.peer = 1, .number = waiter.history.front().number, .since = 1}};
  auto late = rankView(1);
  late.life = Life::kAbsent;
  EXPECT_EQ(find(evidenceOf({waiter, late})).next,
            "see what it does instead: py-spy dump --pid 101, or gdb -p 101");
}

TEST(WhyLate, KnowsARankThatHasNotCome) {
  RankView late;
  late.rank = 2;
  EXPECT_EQ(whyLate(late, rankView(0), nullptr), "rank 2 has not finished its initialisation");
}

TEST(DeathVerdict, TellsAnExitFromADeathAndTheLastCall) {
  auto dead = rankView(3, {note(Collective::kBroadcast, 40, 2)});
  const auto waiting = note(Collective::kAllReduce, 41, 1024);
  EXPECT_EQ(deathVerdict(dead, rankView(0), &waiting).text,
            "rank 3 (node, pid 103) died while rank 0 waited for it in AllReduce #41 (1024 of "
            "float, sum); it is in Broadcast #40 (2 of float, root 0)");
  dead.life = Life::kExited;
  EXPECT_THAT(deathVerdict(dead, rankView(0), nullptr).text, HasSubstr("exited without"));
}

TEST(LastCallClause, IsEmptyWhereNobodyKnows) {
  auto view = rankView(3);
  EXPECT_EQ(lastCallClause(view), "; it has called nothing yet");
  for (const Life unknown : {Life::kAbsent, Life::kElsewhere}) {
    view.life = unknown;
    EXPECT_EQ(lastCallClause(view), "");
  }
  view.hasTold = true;
  EXPECT_EQ(lastCallClause(view), "; it has called nothing yet");
}

TEST(Find, SeesNothingWrongInRanksThatWaitForNobody) {
  EXPECT_FALSE(find(evidenceOf({rankView(0), rankView(1)})).isWrong);
}

TEST(Find, PrefersADeathToTheWaitsItCauses) {
  Evidence evidence = evidenceOf(
      {rankView(0, {note(Collective::kAllReduce, 1)}, {1}), rankView(1, {}, {2}), rankView(2)});
  evidence.states[2] = ProcessState::kDead;
  const Finding finding = find(evidence);
  EXPECT_EQ(finding.guilty, 2);
  EXPECT_EQ(finding.verdict, "rank 2 (node, pid 102) died; it has called nothing yet");
  EXPECT_EQ(finding.waits.size(), 2u);
}

TEST(Find, DoesNotBlameARankThatDestroyedItsCommunicatorBeforeItEnded) {
  Evidence evidence = evidenceOf({rankView(0), rankView(1)});
  evidence.ranks[1].life = Life::kDestroyed;
  evidence.states[1] = ProcessState::kDead;
  EXPECT_FALSE(find(evidence).isWrong);
}

TEST(Find, TellsHowToWakeAStoppedRank) {
  Evidence evidence = evidenceOf({rankView(0, {}, {1}), rankView(1)});
  evidence.states[1] = ProcessState::kStopped;
  EXPECT_EQ(find(evidence).next, "kill -CONT 101");
}

TEST(Find, TellsWhereALateRankIsWhenItIsOutsideTheLibrary) {
  Evidence evidence =
      evidenceOf({rankView(0, {note(Collective::kAllReduce, 1)}, {1}), rankView(1)});
  evidence.activities = {"", "its thread 7 runs"};
  const Finding finding = find(evidence);
  EXPECT_TRUE(finding.isLate);
  EXPECT_EQ(finding.guilty, 1);
  EXPECT_EQ(finding.activity, "it is outside the library, its thread 7 runs");
}

// Rank 1 has called as many operations as the number says; rank 0, one more, and waits if told so.
Evidence lookAt(uint64_t operations, bool waits) {
  auto done = note(Collective::kAllReduce, operations);
  done.number = operations;
  done.state = EntryState::kDone;
  auto next = note(Collective::kAllReduce, operations + 1);
  next.number = operations + 1;
  return evidenceOf({rankView(0, {next}, waits ? std::vector<int32_t>{1} : std::vector<int32_t>{}),
                     rankView(1, {done})});
}

TEST(FindOverTime, CallsARankSlowWhileOperationsGoOn) {
  const Finding finding =
      findOverTime({lookAt(4, true), lookAt(4, true), lookAt(5, false), lookAt(5, true)});
  EXPECT_EQ(finding.guilty, 1);
  EXPECT_THAT(finding.verdict, HasSubstr("rank 1 (node, pid 101) is slow: the others waited for it "
                                         "in 3 of 4 looks, but operations go on (1 in"));
}

TEST(FindOverTime, CallsARankLateWhereNothingGoesOn) {
  EXPECT_THAT(findOverTime({lookAt(4, true), lookAt(4, true)}).verdict,
              HasSubstr("has not called AllReduce #5"));
}

TEST(FindOverTime, IsSilentAboutAWaitThatCameAndWent) {
  EXPECT_FALSE(findOverTime({lookAt(4, true), lookAt(5, false), lookAt(6, false)}).isWrong);
}

TEST(DescribeActivity, ReadsStatesAndSystemCalls) {
  EXPECT_EQ(describeActivity('R', "running\n"), "runs");
  EXPECT_EQ(describeActivity('S', ""), "sleeps");
  EXPECT_EQ(describeActivity('S', fmt::format("{} 0x0 0x1", SYS_futex)),
            "sleeps in futex (a lock or a condition)");
  EXPECT_EQ(describeActivity('D', fmt::format("{} 0x0", SYS_fsync)),
            "waits for a disk or a driver in fsync");
  EXPECT_EQ(describeActivity('S', "100000 0x0"), "sleeps in system call 100000");
}

TEST(ActivityOf, KnowsThisThreadAndNoOtherProcess) {
  const ProcessIdentity self = thisProcess();
  EXPECT_THAT(activityOf(self, ::gettid(), self.pidNamespace), HasSubstr("thread"));
  EXPECT_THAT(activityOf(self, 1 << 30, self.pidNamespace), HasSubstr("main thread"));
  EXPECT_EQ(activityOf({.processId = self.processId, .start = 1, .pidNamespace = 2}, 1, 2), "");
}

TEST(ParseProcessState, ReadsStatesAndStartsBehindAnyCommand) {
  const auto stat = [](std::string_view state, int start) {
    return fmt::format("7 (a) R (b) {} 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 {} 0 0\n",
                       state, start);
  };
  EXPECT_EQ(parseProcessState(stat("S", 42), 42), ProcessState::kAlive);
  EXPECT_EQ(parseProcessState(stat("T", 42), 42), ProcessState::kStopped);
  EXPECT_EQ(parseProcessState(stat("t", 42), 42), ProcessState::kStopped);
  EXPECT_EQ(parseProcessState(stat("Z", 42), 42), ProcessState::kDead);
  EXPECT_EQ(parseProcessState(stat("S", 43), 42), ProcessState::kDead);
  EXPECT_EQ(parseProcessState("", 42), ProcessState::kUnknown);
  EXPECT_EQ(parseProcessState("garbage", 42), ProcessState::kUnknown);
}

TEST(StateOf, KnowsNothingOfAnotherPidNamespace) {
  ProcessIdentity self = thisProcess();
  EXPECT_EQ(stateOf(self, self.pidNamespace + 1), ProcessState::kUnknown);
  EXPECT_EQ(stateOf(self, self.pidNamespace), ProcessState::kAlive);
  ++self.start;
  EXPECT_EQ(stateOf(self, self.pidNamespace), ProcessState::kDead);
}

}  // namespace
}  // namespace tutti::observe
