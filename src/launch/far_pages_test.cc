#include "launch/far_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace tutti::launch {
namespace {

using observe::OperationNote;
using observe::RankView;
using observe::Verdict;

RankView viewOf(size_t operations, size_t waits) {
  RankView view;
  for (size_t i = 0; i < operations; ++i) {
    const uint64_t number = operations - i;
    view.history.push_back({.collective = Collective::kReduce,
                            .type = DataType::kFloat64,
                            .op = ReduceOp::kMax,
                            .state = observe::EntryState::kDone,
                            .peer = 3,
                            .count = 1000 + number,
                            .sequence = number,
                            .number = number});
  }
  for (size_t i = 0; i < waits; ++i) {
    view.waits.push_back({.peer = static_cast<int32_t>(i),
                          .direction = observe::Direction::kConnect,
                          .step = 5,
                          .piece = 6,
                          .number = 1,
                          .since = 7'000'000'000});
  }
  return view;
}

TEST(FarPages, ArriveByAgesInPlaceOfTimes) {
  const Verdict verdict{.code = Code::kInvalidUsage, .guilty = 2, .text = "a table\n of two lines"};
  const auto bytes = encodePage(viewOf(3, 2), verdict, 9'000'000'000);
  RankView view;
  view.rank = 1;
  const auto told = decodePage(bytes, 5'000'000'000, 4, view);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->code, Code::kInvalidUsage);
  EXPECT_EQ(told->guilty, 2);
  EXPECT_EQ(told->text, verdict.text);
  EXPECT_EQ(view.rank, 1);
  ASSERT_EQ(view.history.size(), 3u);
  EXPECT_EQ(what(view.history[0]), what(viewOf(3, 0).history[0]));
  EXPECT_EQ(view.history[2].number, 1u);
  ASSERT_EQ(view.waits.size(), 2u);
  EXPECT_EQ(view.waits[1].peer, 1);
  EXPECT_EQ(view.waits[1].direction, observe::Direction::kConnect);
  EXPECT_EQ(view.waits[1].piece, 6u);
  EXPECT_EQ(view.waits[1].since, 3'000'000'000);
}

TEST(FarPages, TellTheNewestAndFitASign) {
  const Verdict verdict{.code = Code::kRemoteError, .text = std::string(5000, 'x')};
  const auto bytes = encodePage(viewOf(observe::kHistory, observe::kMaxWaits), verdict, 0);
  EXPECT_LE(bytes.size(), bootstrap::kMaxWordsBytes);
  RankView view;
  ASSERT_TRUE(decodePage(bytes, 0, 8, view));
  EXPECT_EQ(view.history.front().number, observe::kHistory);
  EXPECT_GE(view.history.size(), 16u);
}

// A peer may be of another build, or worse: what it says is text, numbers of ranks, and no more.
TEST(FarPages, AreNoneWhereTheBytesAreNone) {
  RankView untouched;
  const auto good = encodePage(viewOf(2, 2), {}, 9);
  EXPECT_FALSE(decodePage({}, 9, 4, untouched));
  EXPECT_FALSE(decodePage(std::span(good).first(good.size() - 1), 9, 4, untouched));
  EXPECT_FALSE(decodePage(good, 9, 1, untouched)) << "a wait for a rank that there is not";
  Verdict stranger{.code = Code::kRemoteError, .guilty = 4, .text = {}};
  EXPECT_FALSE(decodePage(encodePage({}, stranger, 9), 9, 4, untouched));
  stranger = {.code = Code::kInternalError, .guilty = 3, .text = "of no concern"};
  EXPECT_EQ(decodePage(encodePage({}, stranger, 9), 9, 4, untouched)->code, Code::kOk);
  EXPECT_TRUE(untouched.history.empty());
}

}  // namespace
}  // namespace tutti::launch
