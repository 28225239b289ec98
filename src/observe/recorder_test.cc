#include "observe/recorder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "observe/diagnosis.h"

namespace tutti::observe {
namespace {

using testing::HasSubstr;

UniqueFd copyOf(const Board& board) { return UniqueFd(::fcntl(board.fd(), F_DUPFD_CLOEXEC, 0)); }

OperationNote allReduce(uint64_t sequence, uint64_t count = 8) {
  return {.count = count, .sequence = sequence};
}

class RecorderTest : public testing::Test {
 protected:
  RecorderTest()
      : reader_(Board::create(2, "job", 500).value()),
        recorder_(Board::open(copyOf(reader_)).value(), 1, "node1", siblings_) {}

  ProcessRecorders siblings_;
  Board reader_;
  Recorder recorder_;
};

TEST_F(RecorderTest, TellsWhoTheRankIs) {
  const RankView view = readRank(reader_, 1);
  EXPECT_EQ(view.life, Life::kReady);
  EXPECT_EQ(view.process.processId, ::getpid());
  EXPECT_EQ(view.hostName, "node1");
  EXPECT_EQ(readRank(reader_, 0).life, Life::kAbsent);
  EXPECT_EQ(stateOf(view.process, view.process.pidNamespace), ProcessState::kAlive);
}

TEST_F(RecorderTest, ShowsOperationsNewestFirstWithTheirStates) {
  const uint64_t first = recorder_.begin(allReduce(1));
  recorder_.end(first, EntryState::kDone);
  recorder_.begin({.collective = Collective::kBroadcast, .peer = 1, .count = 5, .sequence = 2});
  const RankView view = readRank(reader_, 1);
  ASSERT_EQ(view.history.size(), 2u);
  EXPECT_EQ(view.history[0].collective, Collective::kBroadcast);
  EXPECT_EQ(view.history[0].peer, 1);
  EXPECT_EQ(view.history[0].count, 5u);
  EXPECT_EQ(view.history[0].state, EntryState::kRunning);
  EXPECT_EQ(view.history[1].state, EntryState::kDone);
}

TEST_F(RecorderTest, KeepsTheNewestOfMany) {
  for (uint64_t i = 1; i <= 3 * kHistory; ++i) recorder_.begin(allReduce(i));
  const RankView view = readRank(reader_, 1);
  ASSERT_EQ(view.history.size(), kHistory);
  EXPECT_EQ(view.history.front().sequence, 3 * kHistory);
  EXPECT_EQ(view.history.back().sequence, 2 * kHistory + 1);
}

TEST_F(RecorderTest, TakesAnEndOfAnOverwrittenOperationForNothing) {
  const uint64_t first = recorder_.begin(allReduce(1));
  for (uint64_t i = 2; i <= 1 + kHistory; ++i) recorder_.begin(allReduce(i));
  recorder_.end(first, EntryState::kFailed);
  for (const OperationNote& note : readRank(reader_, 1).history)
    EXPECT_EQ(note.state, EntryState::kRunning);
}

TEST_F(RecorderTest, ShowsWaitsUntilTheyAreCleared) {
  const WaitNote wait{.peer = 0, .direction = Direction::kSend, .step = 3, .number = 7, .since = 9};
  recorder_.publishWaits(&wait, 1);
  const RankView view = readRank(reader_, 1);
  ASSERT_EQ(view.waits.size(), 1u);
  EXPECT_EQ(view.waits[0].direction, Direction::kSend);
  EXPECT_EQ(view.waits[0].step, 3u);
  recorder_.clearWaits();
  EXPECT_TRUE(readRank(reader_, 1).waits.empty());
}

TEST_F(RecorderTest, NeverShowsAMixtureOfTwoOperations) {
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint64_t i = 1; !stop.load(std::memory_order_relaxed); ++i)
      recorder_.begin(allReduce(i, i));
  });
  for (int round = 0; round < 2000; ++round) {
    for (const OperationNote& note : readRank(reader_, 1).history)
      ASSERT_EQ(note.count, note.sequence);
  }
  stop.store(true, std::memory_order_relaxed);
  writer.join();
}

TEST_F(RecorderTest, MarksItsPageWhenTheProcessExits) {
  siblings_.mark();
  EXPECT_EQ(readRank(reader_, 1).life, Life::kExited);
}

TEST_F(RecorderTest, LetsALaterStateWin) {
  recorder_.setLife(Life::kDestroyed);
  recorder_.setLife(Life::kFinalized);
  EXPECT_EQ(readRank(reader_, 1).life, Life::kDestroyed);
}

TEST_F(RecorderTest, CostsLittleAnOperation) {
  constexpr int kRounds = 50;  // of which the best is none in which others had the CPU
  constexpr int kOperations = 20'000;
  double best = std::numeric_limits<double>::max();
  for (int round = 0; round < kRounds; ++round) {
    const Instant start = steadyClock().now();
    for (int i = 0; i < kOperations; ++i)
      recorder_.end(recorder_.begin(allReduce(static_cast<uint64_t>(i))), EntryState::kDone);
    const auto took = static_cast<double>((steadyClock().now() - start).count());
    best = std::min(best, took / double{kOperations});
  }
  fmt::print("recorder: {:.1f} ns an operation\n", best);
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(best, 100);
#endif
}

TEST(Recorder, WatchedCloselyKeepsTimesAndTellsOfTheFirstVerdict) {
  ProcessRecorders siblings;
  std::vector<std::string> told;
  siblings.watchClosely([&](const Board& board) { told.push_back(board.verdict().text); });
  Board board = Board::create(1, "job", 500).value();
  Recorder recorder(Board::open(copyOf(board)).value(), 0, "node", siblings);
  const auto before = static_cast<int64_t>(steadyClock().now());
  const uint64_t first = recorder.begin(allReduce(1));
  recorder.end(first, EntryState::kDone);
  recorder.begin(allReduce(2));
  const RankView view = readRank(board, 0);
  EXPECT_GE(view.history[1].began, before);
  EXPECT_GE(view.history[1].ended, view.history[1].began);
  EXPECT_GE(view.history[0].began, view.history[1].ended);
  EXPECT_EQ(view.history[0].ended, 0);
  EXPECT_TRUE(recorder.giveVerdict({.code = Code::kRemoteError, .guilty = 0, .text = "first"}));
  EXPECT_FALSE(recorder.giveVerdict({.code = Code::kRemoteError, .guilty = 0, .text = "second"}));
  EXPECT_THAT(told, testing::ElementsAre("first"));
}

TEST(Board, KeepsTheFirstVerdictForAll) {
  Board first = Board::create(2, "job", 500).value();
  Board second = Board::open(copyOf(first)).value();
  EXPECT_FALSE(second.hasVerdict());
  EXPECT_TRUE(first.giveVerdict({.code = Code::kRemoteError, .guilty = 1, .text = "rank 1 died"}));
  EXPECT_FALSE(second.giveVerdict({.code = Code::kInvalidUsage, .guilty = 0, .text = "no"}));
  EXPECT_EQ(second.verdict().code, Code::kRemoteError);
  EXPECT_EQ(second.verdict().guilty, 1);
  EXPECT_EQ(second.verdict().text, "rank 1 died");
}

TEST(Board, CutsAVerdictThatIsTooLong) {
  Board board = Board::create(1, "job", 500).value();
  board.giveVerdict({.code = Code::kRemoteError, .guilty = -1, .text = std::string(5000, 'x')});
  EXPECT_EQ(board.verdict().text.size(), kVerdictBytes - 1);
}

TEST(Board, RefusesMemoryThatIsNotSealedOrNotABoard) {
  UniqueFd open(::memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(open.get(), 8192), 0);
  UniqueFd other(::fcntl(open.get(), F_DUPFD_CLOEXEC, 0));
  EXPECT_THAT(Board::open(std::move(open)).status().message(), HasSubstr("not sealed"));
  ASSERT_EQ(::fcntl(other.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  UniqueFd third(::fcntl(other.get(), F_DUPFD_CLOEXEC, 0));
  EXPECT_THAT(Board::open(std::move(other)).status().message(), HasSubstr("of version 0"));
  EXPECT_FALSE(Board::openReadOnly(std::move(third)).ok());
}

TEST(Board, SurvivesGarbageOnAPage) {
  Board board = Board::create(2, "job", 500).value();
  auto* bytes = reinterpret_cast<std::byte*>(&board.page(0));
  std::fill(bytes, bytes + sizeof(Page), std::byte{0xff});
  const RankView view = readRank(board, 0);
  EXPECT_TRUE(view.waits.empty());
  EXPECT_FALSE(who(view).empty());
  EXPECT_FALSE(lastCall(view).empty());
  EXPECT_FALSE(findMismatch(readBoard(board)).has_value());
}

}  // namespace
}  // namespace tutti::observe
