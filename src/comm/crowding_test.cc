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

TEST(Crowding, HostsOfOneMachineShareItsCpus) {
  std::vector<RankCpus> ranks;
  for (const uint64_t host : {1, 1, 2, 2})
    ranks.push_back({.host = host, .machine = 7, .usable = 2, .mask = maskOf(3)});
  EXPECT_EQ(machineOf(ranks, ranks[0]).ranks, 4);
  EXPECT_EQ(machineOf(ranks, ranks[0]).cpus, 2);
  for (RankCpus& rank : ranks) rank.machine = rank.host;
  EXPECT_EQ(machineOf(ranks, ranks[3]).ranks, 2);
  for (RankCpus& rank : ranks) rank.machine = 0;
  EXPECT_EQ(machineOf(ranks, ranks[3]).ranks, 2) << "nothing tells";
}

TEST(Crowding, ContainersOfOneMachineHaveTheirLimits) {
  std::vector<RankCpus> ranks;
  for (const uint64_t host : {1, 1, 2, 2})
    ranks.push_back({.host = host, .machine = 7, .usable = 2, .mask = maskOf(0xff)});
  EXPECT_EQ(machineOf(ranks, ranks[0]).cpus, 4);
}

TEST(Crowding, CountsTheCpusOfEachMachine) {
  std::vector<RankCpus> ranks;
  for (const uint64_t host : {1, 1, 2, 2})
    ranks.push_back({.host = host, .machine = host, .usable = 4, .mask = maskOf(0xf)});
  EXPECT_EQ(cpusEach(ranks), 2);
  for (RankCpus& rank : ranks) rank.machine = 7;
  EXPECT_EQ(cpusEach(ranks), 1);
  ranks.resize(2);
  EXPECT_EQ(cpusEach(ranks), 2);
  ranks.push_back({.host = 3, .usable = 1, .mask = maskOf(1)});
  EXPECT_EQ(cpusEach(ranks), 1);
}

TEST(Crowding, AnUnknownMaskIsNoCpu) {
  const std::vector<RankCpus> ranks(2, {.host = 1, .usable = 0, .mask = {}});
  EXPECT_EQ(cpusOfHost(ranks, 1), 1);
}

std::vector<int32_t> homesOf(const std::vector<RankCpus>& ranks) {
  std::vector<int32_t> homes;
  for (size_t i = 0; i < ranks.size(); ++i)
    homes.push_back(homeCpuOf(ranks, Rank{static_cast<int32_t>(i)}));
  return homes;
}

TEST(Crowding, NeighboursShareAHome) {
  EXPECT_EQ(homesOf(std::vector<RankCpus>(4, {.host = 1, .usable = 2, .mask = maskOf(3)})),
            (std::vector<int32_t>{0, 0, 1, 1}));
  EXPECT_EQ(homesOf(std::vector<RankCpus>(5, {.host = 1, .usable = 3, .mask = maskOf(0b1101)})),
            (std::vector<int32_t>{0, 0, 2, 2, 3}));
}

TEST(Crowding, HomesAreOfARanksOwnHost) {
  std::vector<RankCpus> ranks(4, {.host = 1, .usable = 2, .mask = maskOf(3)});
  ranks[1].host = ranks[3].host = 2;
  EXPECT_EQ(homesOf(ranks), (std::vector<int32_t>{0, 0, 1, 1}));
}

TEST(Crowding, SharersOfAHomeAreNeighboursAndRanksOfOtherHosts) {
  std::vector<RankCpus> ranks(5, {.host = 1, .usable = 2, .mask = maskOf(3)});
  EXPECT_EQ(sharersOfHome(ranks, Rank{0}), (std::vector<uint8_t>{1, 1, 1, 0, 0}));
  EXPECT_EQ(sharersOfHome(ranks, Rank{4}), (std::vector<uint8_t>{0, 0, 0, 1, 1}));
  ranks[0].host = 2;
  EXPECT_EQ(sharersOfHome(ranks, Rank{4}), (std::vector<uint8_t>{1, 0, 0, 1, 1}));
  ranks[1].mask = maskOf(1);
  EXPECT_TRUE(sharersOfHome(ranks, Rank{4}).empty()) << "nobody knows where they are";
}

TEST(Crowding, NoHomeWhereOthersHaveDecidedOrThereIsRoom) {
  const auto none = [](size_t count) { return std::vector<int32_t>(count, HomeCpu::kNone); };
  EXPECT_EQ(homesOf({{.host = 1, .usable = 1, .mask = maskOf(1)},
                     {.host = 1, .usable = 1, .mask = maskOf(2)}}),
            none(2));
  EXPECT_EQ(homesOf(std::vector<RankCpus>(3, {.host = 1, .usable = 4, .mask = maskOf(0xf)})),
            none(3));
  EXPECT_EQ(homesOf(std::vector<RankCpus>(9, {.host = 1, .usable = 2, .mask = maskOf(0xf)})),
            none(9));
  EXPECT_EQ(homesOf(std::vector<RankCpus>(2, {.host = 1, .usable = 0, .mask = {}})), none(2));
}

TEST(Crowding, ThisThreadRunsSomewhere) { EXPECT_NE(affinityMask(), CpuMask{}); }

}  // namespace
}  // namespace tutti::comm
