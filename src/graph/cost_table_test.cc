#include "graph/cost_table.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/units.h"

namespace tutti::graph {
namespace {

using enum Collective;
using topology::PathKind;

// Two H100 of one NVSwitch host: 12 ring channels at 30 GB/s. A chain of two loads each direction
// of a link with half of what a ring does, so its tree goes twice as fast; two heads at 60.
ClusterGraphs twoH100() {
  const GraphSummary ring{.pattern = Pattern::kRing,
                          .channelCount = 12,
                          .intraGbPerSecond = 30,
                          .interGbPerSecond = 30,
                          .intraKind = PathKind::kNvl,
                          .interKind = PathKind::kPix};
  GraphSummary tree = ring;
  tree.pattern = Pattern::kBalancedTree;
  tree.intraGbPerSecond = tree.interGbPerSecond = 60;
  GraphSummary switched = tree;
  switched.pattern = Pattern::kSwitch;
  switched.channelCount = 2;
  return {.ring = ring,
          .tree = tree,
          .switched = switched,
          .rankCount = 2,
          .nodeCount = 1,
          .mostRanksPerNode = 2,
          .smVersion = 90};
}

// Four nodes of eight RTX 3090 on PCI, one port of 56 Gb/s each: one channel at 7 GB/s.
ClusterGraphs fourNodesOf3090() {
  const GraphSummary ring{.pattern = Pattern::kRing,
                          .channelCount = 1,
                          .intraGbPerSecond = 7,
                          .interGbPerSecond = 7,
                          .intraKind = PathKind::kSys,
                          .interKind = PathKind::kSys};
  GraphSummary tree = ring;
  tree.pattern = Pattern::kBalancedTree;
  return {.ring = ring,
          .tree = tree,
          .rankCount = 32,
          .nodeCount = 4,
          .mostRanksPerNode = 8,
          .smVersion = 86};
}

std::string cell(const CostTable& table, Collective collective, Method method, Protocol protocol) {
  const MethodCost& cost = table.at(collective, method, protocol);
  return fmt::format("{:.1f}/{:.1f}", cost.latencyUs, cost.gbPerSecond);
}

TEST(CostTable, IsThatOfNccl229OnTwoH100) {
  const CostTable table = makeCostTable(twoH100(), nccl229());
  // As NCCL 2.29.2 printed them with NCCL_DEBUG_SUBSYS=TUNING.
  EXPECT_EQ(cell(table, kAllReduce, Method::kTree, Protocol::kLl), "8.0/61.1");
  EXPECT_EQ(cell(table, kAllReduce, Method::kTree, Protocol::kLl128), "16.5/180.6");
  EXPECT_EQ(cell(table, kAllReduce, Method::kTree, Protocol::kSimple), "16.4/232.2");
  EXPECT_EQ(cell(table, kAllReduce, Method::kRing, Protocol::kLl), "7.8/141.0");
  EXPECT_EQ(cell(table, kAllReduce, Method::kRing, Protocol::kLl128), "17.8/331.2");
  EXPECT_EQ(cell(table, kAllReduce, Method::kRing, Protocol::kSimple), "15.2/360.0");
  EXPECT_EQ(cell(table, kAllGather, Method::kRing, Protocol::kSimple), "11.8/720.0");
  EXPECT_EQ(cell(table, kBroadcast, Method::kRing, Protocol::kLl128), "15.9/331.2");
  EXPECT_EQ(cell(table, kAllReduce, Method::kNvls, Protocol::kSimple), "25.0/102.0");
  EXPECT_EQ(cell(table, kReduceScatter, Method::kNvls, Protocol::kSimple), "25.0/25.5");
}

// A row of the printed table: the collective and, for three methods, three "latency/ bandwidth".
std::vector<std::string> splitCells(const std::string& line) {
  std::vector<std::string> cells;
  std::stringstream stream(line);
  for (std::string part; std::getline(stream, part, '|');) {
    double latency = 0, bandwidth = 0;
    if (std::sscanf(part.c_str(), "%lf/%lf", &latency, &bandwidth) == 2)
      cells.push_back(fmt::format("{:.1f}/{:.1f}", latency, bandwidth));
  }
  return cells;
}

TEST(CostTable, EqualsThePrintedTableOfNccl229) {
  std::ifstream file(TUTTI_TEST_DATA "/tables/nccl_2.29.2_tuning_2xH100.txt");
  if (!file) GTEST_SKIP() << "the printed table is not on this machine";
  const CostTable table = makeCostTable(twoH100(), nccl229());
  const std::vector<std::vector<Method>> blocks = {
      {Method::kTree, Method::kRing, Method::kCollnetDirect},
      {Method::kCollnetChain, Method::kNvls, Method::kNvlsTree}};
  size_t block = 0, compared = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.find("Algorithm") != std::string::npos) ++block;
    for (const Collective collective :
         {kBroadcast, kReduce, kAllGather, kReduceScatter, kAllReduce}) {
      const std::string label = fmt::format("{:>14} |", name(collective));
      if (!line.starts_with(label) || block == 0 || block > blocks.size()) continue;
      const std::vector<std::string> cells = splitCells(line);
      ASSERT_EQ(cells.size(), 9u) << line;
      for (size_t i = 0; i < 9; ++i) {
        const Method method = blocks[block - 1][i / 3];
        const auto protocol = static_cast<Protocol>(i % 3);
        // A zero bandwidth means unused, whatever latency stands beside it.
        if (cells[i].ends_with("/0.0")) {
          EXPECT_EQ(table.at(collective, method, protocol).gbPerSecond, 0);
        } else {
          EXPECT_EQ(cell(table, collective, method, protocol), cells[i])
              << name(collective) << ' ' << nameOf(method) << ' ' << nameOf(protocol);
        }
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 90u);
}

struct Prediction {
  uint64_t bytes;
  Method method;
  Protocol protocol;
  double us;
};

void expectPredicted(const MethodChooser& chooser, const Prediction& wanted) {
  Result<MethodChoice> choice = chooser.choose(kAllReduce, wanted.bytes);
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->method, wanted.method) << wanted.bytes;
  EXPECT_EQ(choice->protocol, wanted.protocol) << wanted.bytes;
  EXPECT_NEAR(choice->timeUs, wanted.us, wanted.us * 1e-4) << wanted.bytes;
}

TEST(CostTable, PredictsAsNccl212OnFourNodesOf3090) {
  const MethodChooser chooser(fourNodesOf3090(), nccl212(), {});
  // As NCCL 2.12.12 printed them.
  for (const Prediction& wanted :
       std::vector<Prediction>{{64, Method::kTree, Protocol::kLl, 49.675526},
                               {8_KiB, Method::kTree, Protocol::kLl, 63.410824},
                               {64_KiB, Method::kTree, Protocol::kLl, 178.501038},
                               {128_KiB, Method::kRing, Protocol::kLl, 267.515442},
                               {1_MiB, Method::kTree, Protocol::kSimple, 1155.289429},
                               {4_MiB, Method::kRing, Protocol::kSimple, 2187.303467},
                               {1_GiB, Method::kRing, Protocol::kSimple, 298222.78125}})
    expectPredicted(chooser, wanted);
}

TEST(CostTable, PredictsAllPublishedTimesOfNccl212) {
  std::ifstream file(TUTTI_TEST_DATA "/tables/nccl_2.12.12_predicted_4x8_3090.txt");
  if (!file) GTEST_SKIP() << "the published predictions are not on this machine";
  const MethodChooser chooser(fourNodesOf3090(), nccl212(), {});
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    unsigned long long bytes = 0;
    int method = 0, protocol = 0;
    double us = 0;
    ASSERT_EQ(std::sscanf(line.c_str(), "%llu Bytes -> Algo %d proto %d time %lf", &bytes, &method,
                          &protocol, &us),
              4)
        << line;
    expectPredicted(chooser,
                    {bytes, static_cast<Method>(method), static_cast<Protocol>(protocol), us});
  }
  EXPECT_EQ(lines, 25);
}

TEST(MethodChooser, KeepsToNcclAlgoAndProto) {
  const MethodChooser ringOnly(twoH100(), nccl229(),
                               {.methods = NameFilter("ring"), .protocols = NameFilter("^LL")});
  for (const MethodChoice& each : ringOnly.rank(kAllReduce, 1_MiB)) {
    EXPECT_EQ(each.method, Method::kRing);
    EXPECT_NE(each.protocol, Protocol::kLl);
  }
  const MethodChooser byCollective(twoH100(), nccl229(),
                                   {.methods = NameFilter("allreduce:tree;^tree")});
  EXPECT_EQ(byCollective.choose(kAllReduce, 1_KiB)->method, Method::kTree);
  EXPECT_EQ(byCollective.choose(kAllGather, 1_KiB)->method, Method::kRing);
}

TEST(MethodChooser, RefusesWhenTheSettingsLeaveNothing) {
  const MethodChooser chooser(twoH100(), nccl229(), {.methods = NameFilter("tree")});
  Result<MethodChoice> choice = chooser.choose(kBroadcast, 1_KiB);
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.status().code(), Code::kInvalidUsage);
  EXPECT_NE(choice.status().message().find("NCCL_ALGO"), std::string::npos);
}

TEST(MethodChooser, StaysWithinMinAndMaxCtas) {
  const MethodChooser few(twoH100(), nccl229(), {.maxChannels = 4});
  EXPECT_EQ(few.choose(kAllReduce, 1_GiB)->channelCount, 4);
  const MethodChooser many(twoH100(), nccl229(), {.minChannels = 8});
  EXPECT_EQ(many.choose(kAllReduce, 64)->channelCount, 8);
  EXPECT_EQ(MethodChooser(twoH100(), nccl229(), {}).choose(kAllReduce, 64)->channelCount, 1);
}

TEST(MethodChooser, TakesLl128OnlyOverNvLink) {
  ClusterGraphs graphs = twoH100();
  graphs.ring.intraKind = PathKind::kPhb;
  const CostTable table = makeCostTable(graphs, nccl229());
  EXPECT_EQ(table.at(kAllReduce, Method::kRing, Protocol::kLl128).gbPerSecond, 0);
  EXPECT_GT(table.at(kAllReduce, Method::kRing, Protocol::kLl).gbPerSecond, 0);
}

TEST(MethodChooser, UsesPatOnlyWithOneRankANode) {
  ClusterGraphs graphs = twoH100();
  graphs.nodeCount = 2;
  graphs.mostRanksPerNode = 1;
  EXPECT_GT(
      makeCostTable(graphs, nccl229()).at(kAllGather, Method::kPat, Protocol::kSimple).gbPerSecond,
      0);
}

TEST(MethodChooser, ListsWhereTheChoiceChanges) {
  const MethodChooser chooser(fourNodesOf3090(), nccl212(), {});
  const auto switches = chooser.switches(kAllReduce);
  ASSERT_EQ(switches.size(), 4u);
  EXPECT_EQ(switches[0].second.method, Method::kTree);
  EXPECT_EQ(switches[1].first, 128_KiB);
  EXPECT_EQ(switches[2].first, 1_MiB);
  EXPECT_EQ(switches[3].first, 4_MiB);
}

}  // namespace
}  // namespace tutti::graph
