#include "bootstrap/rank_groups.h"

#include <gtest/gtest.h>

namespace tutti::bootstrap {
namespace {

TEST(RankGroups, ShareTheRanksEvenly) {
  for (int32_t ranks = 1; ranks <= 40; ++ranks) {
    for (int32_t count = 1; count <= ranks; ++count) {
      const RankGroups groups{.rankCount = ranks, .groupCount = count};
      int32_t next = 0;
      for (int32_t group = 0; group < count; ++group) {
        EXPECT_EQ(groups.firstOf(group), next);
        EXPECT_GE(groups.sizeOf(group), ranks / count);
        EXPECT_LE(groups.sizeOf(group), ranks / count + 1);
        for (int32_t i = 0; i < groups.sizeOf(group); ++i)
          EXPECT_EQ(groups.groupOf(Rank{next++}), group) << ranks << " in " << count;
        EXPECT_EQ(groups.before(groups.after(group)), group);
      }
      EXPECT_EQ(next, ranks);
    }
  }
}

}  // namespace
}  // namespace tutti::bootstrap
