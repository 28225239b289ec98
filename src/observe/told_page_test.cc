#include "observe/told_page.h"

#include <gtest/gtest.h>

namespace tutti::observe {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

RankView toldBy(int32_t rank, uint64_t newest, int64_t waitsSince) {
  RankView view;
  view.rank = rank;
  for (uint64_t number = newest; number > newest - 3; --number) {
    view.history.push_back({.collective = Collective::kAllReduce,
                            .state = number == newest ? EntryState::kRunning : EntryState::kDone,
                            .count = 10 * number,
                            .sequence = number,
                            .number = number});
  }
  view.waits.push_back(
      {.peer = 0, .direction = Direction::kReceive, .number = newest, .since = waitsSince});
  return view;
}

class ToldPage : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<Board> board = Board::createPrivate(3);
    ASSERT_TRUE(board.ok());
    board_ = std::move(board).value();
    board_.placeElsewhere(2, "node1", 4711);
  }
  RankView seen(int64_t now) const {
    RankView view = readRank(board_, 2);
    EXPECT_TRUE(view.history.empty()) << "the ranks themselves see nothing of it";
    addTold(board_, now, view);
    return view;
  }

  Board board_;
};

TEST_F(ToldPage, ShowsWhatARankOfAnotherHostCalledAndWaitsFor) {
  EXPECT_FALSE(isKnown(seen(5 * kSecond)));
  keepTold(board_, toldBy(2, 70, 4 * kSecond), 5 * kSecond);
  const RankView view = seen(5 * kSecond + 1000);
  ASSERT_EQ(view.history.size(), 3u);
  EXPECT_EQ(view.history[0].number, 70u);
  EXPECT_EQ(view.history[0].count, 700u);
  EXPECT_EQ(view.history[2].state, EntryState::kDone);
  ASSERT_EQ(view.waits.size(), 1u);
  EXPECT_EQ(view.waits[0].since, 4 * kSecond);
  EXPECT_EQ(view.life, Life::kElsewhere);
  EXPECT_FALSE(hasPage(view));
  EXPECT_TRUE(isKnown(view));
}

TEST_F(ToldPage, ForgetsWhatIsOld) {
  keepTold(board_, toldBy(2, 70, kSecond), 5 * kSecond);
  EXPECT_FALSE(isKnown(seen(7 * kSecond)));
}

TEST_F(ToldPage, KeepsTheNewestAndNothingOfThoseBefore) {
  keepTold(board_, toldBy(2, 70, kSecond), 5 * kSecond);
  RankView next = toldBy(2, 72, 0);
  next.waits.clear();
  keepTold(board_, next, 5 * kSecond + 10);
  keepTold(board_, toldBy(2, 50, kSecond), 5 * kSecond + 5);
  const RankView view = seen(5 * kSecond + 20);
  ASSERT_EQ(view.history.size(), 3u);
  EXPECT_EQ(view.history[0].number, 72u);
  EXPECT_TRUE(view.waits.empty());
}

TEST_F(ToldPage, LeavesAWriterAtWorkAlone) {
  board_.page(2).isBeingTold.store(1);
  keepTold(board_, toldBy(2, 70, kSecond), 5 * kSecond);
  EXPECT_FALSE(isKnown(seen(5 * kSecond)));
}

TEST_F(ToldPage, IsNothingToARankOfThisHost) {
  board_.place(1, "node0", {.processId = 1});
  board_.page(1).life.store(static_cast<uint32_t>(Life::kReady));
  keepTold(board_, toldBy(1, 70, kSecond), 5 * kSecond);
  RankView view;
  view.rank = 1;
  view.life = Life::kReady;
  addTold(board_, 5 * kSecond, view);
  EXPECT_TRUE(view.history.empty());
}

}  // namespace
}  // namespace tutti::observe
