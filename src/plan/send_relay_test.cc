#include "plan/send_relay.h"

#include <gtest/gtest.h>

namespace tutti::plan {
namespace {

// Two hosts of three ranks, whose adapters go by their seats.
class SendRelay : public testing::Test {
 protected:
  int32_t over(int32_t sender, int32_t receiver) const {
    return index(carrierOf(agreement_, Rank{sender}, Rank{receiver}));
  }
  Agreement agreement_{.rank = Rank{0},
                       .rankCount = 6,
                       .geometry = {},
                       .algorithms = {},
                       .isOneHost = false,
                       .hostOf = {0, 0, 0, 1, 1, 1},
                       .relays = Relays::kByPrice,
                       .railOf = {7, 8, 9, 7, 8, 9}};
};

TEST_F(SendRelay, IsTheRankWithTheReceiversAdapters) {
  EXPECT_EQ(over(0, 4), 1);
  EXPECT_EQ(over(0, 5), 2);
  EXPECT_EQ(over(5, 0), 3);
  EXPECT_EQ(over(1, 4), 1) << "its own";
  agreement_.relays = Relays::kAlways;
  EXPECT_EQ(over(0, 4), 1);
  EXPECT_EQ(over(1, 4), 1);
}

TEST_F(SendRelay, IsNoneWithinAHostOrWhereNobodyMayRelay) {
  agreement_.relays = Relays::kAlways;
  EXPECT_EQ(over(0, 2), 0);
  EXPECT_EQ(over(0, 0), 0);
  agreement_.relays = Relays::kNever;
  EXPECT_EQ(over(0, 5), 0);
  agreement_.relays = Relays::kAlways;
  agreement_.hostOf.clear();
  EXPECT_EQ(over(0, 5), 0) << "one host";
}

TEST_F(SendRelay, GoesBySeatWhereAdaptersAreAlike) {
  agreement_.railOf = {7, 7, 7, 7, 7, 7};
  EXPECT_EQ(over(0, 5), 0) << "they lead there";
  agreement_.relays = Relays::kAlways;
  EXPECT_EQ(over(0, 5), 2);
  EXPECT_EQ(over(2, 3), 0);
  agreement_.railOf.clear();
  EXPECT_EQ(over(0, 5), 2) << "not known";
}

TEST_F(SendRelay, GoesBySeatInTheRanksOrder) {
  agreement_.hostOf = {0, 1, 0, 1, 0, 1};
  agreement_.order = {Rank{0}, Rank{2}, Rank{4}, Rank{1}, Rank{3}, Rank{5}};
  agreement_.railOf.clear();
  agreement_.relays = Relays::kAlways;
  EXPECT_EQ(over(0, 5), 4);
  EXPECT_EQ(over(4, 1), 0);
}

TEST_F(SendRelay, OfHostsOfOtherSizesIsAnyThatServes) {
  agreement_.rankCount = 5;
  agreement_.hostOf = {0, 0, 1, 1, 1};
  agreement_.railOf = {7, 8, 7, 8, 9};
  EXPECT_EQ(over(0, 4), 0) << "nobody has these";
  agreement_.relays = Relays::kAlways;
  EXPECT_EQ(over(1, 4), 0) << "the third seat, of two";
  EXPECT_EQ(over(0, 3), 1);
}

TEST_F(SendRelay, PrefersTheReceiversSeatAmongSeveral) {
  agreement_.railOf = {7, 8, 8, 9, 8, 8};
  agreement_.hostOf = {0, 0, 0, 1, 1, 1};
  EXPECT_EQ(over(0, 5), 2);
  EXPECT_EQ(over(0, 4), 1);
}

}  // namespace
}  // namespace tutti::plan
