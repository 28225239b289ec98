#include "plan/choice_table.h"

#include <gtest/gtest.h>

#include "base/units.h"
#include "schedule/catalog.h"

namespace tutti::plan {
namespace {

constexpr int32_t kRankCounts[] = {1, 2, 3, 4, 5, 8, 9, 16, 17, 64, 1000, kAnyRanks};

TEST(ChoiceTable, NamesAnAlgorithmOfTheCatalogueForEveryLength) {
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    for (const int32_t ranks : kRankCounts) {
      const auto rows = choiceRows(collective, ranks);
      if (schedule::algorithms(collective).size() == 1) {
        EXPECT_TRUE(rows.empty()) << name(collective);
        continue;
      }
      ASSERT_FALSE(rows.empty()) << name(collective) << ' ' << ranks;
      EXPECT_EQ(rows.back().maxBytes, kAnyBytes) << name(collective) << ' ' << ranks;
      for (const ChoiceRow& row : rows) {
        EXPECT_NE(schedule::findAlgorithm(collective, row.algorithm), nullptr) << row.algorithm;
        EXPECT_EQ(row.collective, collective);
      }
    }
  }
}

TEST(ChoiceTable, GoesFromShortToLongAndNamesNoAlgorithmTwiceInARow) {
  for (int i = 0; i < kCollectiveCount; ++i) {
    for (const int32_t ranks : kRankCounts) {
      const auto rows = choiceRows(static_cast<Collective>(i), ranks);
      for (size_t row = 1; row < rows.size(); ++row) {
        EXPECT_LT(rows[row - 1].maxBytes, rows[row].maxBytes);
        EXPECT_NE(rows[row - 1].algorithm, rows[row].algorithm);
      }
    }
  }
}

TEST(ChoiceTable, TakesTheNearestRankCountAbove) {
  EXPECT_EQ(choiceRows(Collective::kAllReduce, 3)[0].maxRanks, 4);
  EXPECT_EQ(choiceRows(Collective::kAllReduce, 4)[0].maxRanks, 4);
  EXPECT_EQ(choiceRows(Collective::kAllReduce, 5)[0].maxRanks, 8);
}

}  // namespace
}  // namespace tutti::plan
