#include "comm/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace tutti::comm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int32_t kLowest = std::numeric_limits<int32_t>::min();

TEST(MembersOf, AreOrderedByKeyThenRank) {
  const std::vector<SplitChoice> choices = {{1, 5}, {0, 0}, {1, kLowest}, {1, 5}, {kNoColor, 0}};
  EXPECT_THAT(membersOf(choices, 1), ElementsAre(Rank{2}, Rank{0}, Rank{3}));
  EXPECT_THAT(membersOf(choices, 0), ElementsAre(Rank{1}));
  EXPECT_THAT(membersOf(choices, 7), IsEmpty());
}

TEST(RemainingRanks, KeepTheirOrder) {
  Result<std::vector<Rank>> ranks = remainingRanks(5, Rank{4}, std::vector<int>{3, 0});
  ASSERT_TRUE(ranks.ok());
  EXPECT_THAT(*ranks, ElementsAre(Rank{1}, Rank{2}, Rank{4}));
  ranks = remainingRanks(2, Rank{0}, {});
  ASSERT_TRUE(ranks.ok());
  EXPECT_THAT(*ranks, ElementsAre(Rank{0}, Rank{1}));
}

TEST(RemainingRanks, RefuseRanksOutOfRangeTwiceOrOneself) {
  const auto refusal = [](std::vector<int> list) {
    Result<std::vector<Rank>> ranks = remainingRanks(3, Rank{1}, list);
    EXPECT_EQ(ranks.status().code(), Code::kInvalidArgument);
    return std::string(ranks.status().message());
  };
  EXPECT_THAT(refusal({0, 3}), HasSubstr("excludeRanksList[1] is 3; the ranks are 0 to 2"));
  EXPECT_THAT(refusal({-1}), HasSubstr("is -1"));
  EXPECT_THAT(refusal({2, 2}), HasSubstr("rank 2 twice"));
  EXPECT_THAT(refusal({0, 1}), HasSubstr("this rank itself"));
}

}  // namespace
}  // namespace tutti::comm
