#include "comm/crowding.h"

#include <gtest/gtest.h>

#include <vector>

namespace tutti::comm {
namespace {

CpuMask maskOf(uint64_t cpus) { return {cpus}; }

TEST(Crowding, RanksBoundToACpuEachShareNone) {
  const std::vector<RankCpus> ranks = {{.host = 1, .usable = 1, .mask = maskOf(1)},
                                       {.host = 1, .usable = 1, .mask = maskOf(2)}};
  EXPECT_EQ(cpusOfHost(ranks, 1), 2);
  EXPECT_EQ(ranksPerCpu(ranks), 1);
}

TEST(Crowding, RanksThatMayUseAllShareThem) {
  const std::vector<RankCpus> ranks(4, {.host = 1, .usable = 2, .mask = maskOf(3)});
  EXPECT_EQ(ranksPerCpu(ranks), 2);
}

TEST(Crowding, RanksBoundToOneCpuShareIt) {
  const std::vector<RankCpus> ranks(2, {.host = 1, .usable = 1, .mask = maskOf(4)});
  EXPECT_EQ(ranksPerCpu(ranks), 2);
}

TEST(Crowding, AControlGroupsLimitCounts) {
  const std::vector<RankCpus> ranks(4, {.host = 1, .usable = 2, .mask = maskOf(0xff)});
  EXPECT_EQ(cpusOfHost(ranks, 1), 2);
  EXPECT_EQ(ranksPerCpu(ranks), 2);
}

TEST(Crowding, GoesByTheMostCrowdedHost) {
  const std::vector<RankCpus> ranks = {{.host = 1, .usable = 8, .mask = maskOf(0xff)},
                                       {.host = 2, .usable = 1, .mask = maskOf(1)},
                                       {.host = 2, .usable = 1, .mask = maskOf(1)},
                                       {.host = 2, .usable = 1, .mask = maskOf(1)}};
  EXPECT_EQ(cpusOfHost(ranks, 1), 8);
  EXPECT_EQ(ranksPerCpu(ranks), 3);
}

TEST(Crowding, AnUnknownMaskIsNoCpu) {
  const std::vector<RankCpus> ranks(2, {.host = 1, .usable = 0, .mask = {}});
  EXPECT_EQ(cpusOfHost(ranks, 1), 1);
}

TEST(Crowding, ThisThreadRunsSomewhere) { EXPECT_NE(affinityMask(), CpuMask{}); }

}  // namespace
}  // namespace tutti::comm
