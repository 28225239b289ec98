#include "sim/simulate.h"

#include <fmt/core.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <tuple>

#include "base/units.h"
#include "schedule/catalog.h"
#include "sim/clusters_testing.h"
#include "sim/fair_share.h"

namespace tutti::sim {
namespace {

TEST(FairShare, SharesByTheNarrowestLink) {
  // Flows 0 and 1 share link 0 of 10; flow 1 also crosses link 1 of 2 with flow 2.
  FairShare share({10, 2});
  share.add({.most = 100, .crossings = {{.link = 0}}});
  share.add({.most = 100, .crossings = {{.link = 0}, {.link = 1}}});
  share.add({.most = 100, .crossings = {{.link = 1}}});
  for (const int32_t flow : {0, 1, 2}) share.start(flow);
  share.update();
  EXPECT_DOUBLE_EQ(share.rate(1), 1);
  EXPECT_DOUBLE_EQ(share.rate(2), 1);
  EXPECT_DOUBLE_EQ(share.rate(0), 9);
  share.stop(2);
  share.update();
  EXPECT_DOUBLE_EQ(share.rate(1), 2);
  EXPECT_DOUBLE_EQ(share.rate(0), 8);
  EXPECT_DOUBLE_EQ(share.rate(2), 0);
}

TEST(FairShare, WhatIsRemovedMakesRoomAndItsNumberIsGivenAgain) {
  FairShare share({9});
  for (int flow = 0; flow < 3; ++flow) {
    share.add({.most = 100, .crossings = {{.link = 0}}});
    share.start(flow);
  }
  share.update();
  EXPECT_DOUBLE_EQ(share.rate(2), 3);
  share.remove(1);
  share.update();
  EXPECT_DOUBLE_EQ(share.rate(0), 4.5);
  EXPECT_DOUBLE_EQ(share.rate(2), 4.5);
  EXPECT_EQ(share.add({.most = 1, .crossings = {{.link = 0, .count = 2}}}), 1);
  share.start(1);
  share.update();
  EXPECT_DOUBLE_EQ(share.rate(1), 1);
  EXPECT_DOUBLE_EQ(share.rate(2), 3.5);
}

TEST(FairShare, ClassesCountAsOftenAsTheyCross) {
  FairShare share({12});
  share.add({.most = 100, .crossings = {{.link = 0, .count = 3}}});
  share.add({.most = 1, .crossings = {{.link = 0}}});
  share.start(0);
  share.start(1);
  share.update();
  EXPECT_DOUBLE_EQ(share.rate(1), 1);
  EXPECT_NEAR(share.rate(0), 11.0 / 3, 1e-12);
}

SimResult run(const Cluster& cluster, const SimCall& call, const Method& method,
              const SimOptions& options = {}) {
  Result<VirtualPlan> plan = planVirtual(cluster);
  EXPECT_TRUE(plan.ok());
  Result<Traffic> traffic = Traffic::make(cluster, plan.value(), call, method);
  EXPECT_TRUE(traffic.ok());
  Result<SimResult> result = simulate(traffic.value(), options);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? std::move(result).value() : SimResult{};
}

TEST(Simulate, EndsForEveryAlgorithm) {
  const Cluster cluster = exampleCluster("mixed");
  for (int which = 0; which < kCollectiveCount; ++which) {
    const auto collective = static_cast<Collective>(which);
    for (const schedule::Algorithm& algorithm : schedule::algorithms(collective)) {
      for (const uint64_t bytes : {uint64_t{4}, uint64_t{3'000'000}}) {
        const SimResult result =
            run(cluster, {.collective = collective, .bytes = bytes, .sender = Rank{7}},
                {.algorithm = std::string(algorithm.name), .channelCount = 2});
        EXPECT_GT(result.us, 0) << name(collective) << " " << algorithm.name;
      }
    }
  }
}

// A long ring is one lane of each kind, whatever its length.
TEST(Simulate, AlikeNodesAreSimulatedOnce) {
  const std::string text =
      "nodes: [{count: 16, machine: {gpus: 8, sm: 90, nvswitch_links: 18, ports: 8, port_gbps: "
      "400}}]\n";
  const SimResult result =
      run(clusterOf(text), {.bytes = 1 << 26}, {.algorithm = "ring", .channelCount = 8});
  EXPECT_TRUE(result.classes.isExact);
  EXPECT_EQ(result.classes.laneCount, 8 * 128);
  EXPECT_LE(result.classes.lanes.size(), 64u);
}

// The same cluster with classes made useless by speeds that differ hardly at all: every lane is
// simulated by itself, and the time is the same.
TEST(Simulate, ClassesChangeNoTime) {
  for (const char* algorithm : {"ring", "tree", "pat", "twoshot"}) {
    Cluster cluster = exampleCluster("dgx_h100x64", 2);
    const SimCall call{.bytes = 1 << 20};
    const Method method{.algorithm = algorithm, .channelCount = 8};
    const SimResult few = run(cluster, call, method);
    for (int32_t rank = 0; rank < cluster.rankCount(); ++rank)
      ASSERT_TRUE(cluster.slowRank(rank, 1 + 1e-9 * (rank + 1)).ok());
    const SimResult all = run(cluster, call, method);
    EXPECT_GE(all.classes.lanes.size(), few.classes.lanes.size()) << algorithm;
    EXPECT_NEAR(all.us, few.us, 1e-4 * few.us) << algorithm;
    EXPECT_EQ(all.flows, few.flows) << algorithm;
  }
}

// Flows that a hash sends over one spine have shared a port before, where spines carry as much as
// ports: it changes nothing, and lanes stay alike.
TEST(Simulate, SpinesThatPortsBoundNeedNoSimulation) {
  const auto rails = [](const char* routing) {
    return clusterOf(fmt::format(
        "nodes: [{{count: 16, machine: {{gpus: 8, sm: 90, nvswitch_links: 18, ports: 8, "
        "port_gbps: 400}}}}]\nnetwork: {{shape: rails, nodes_per_leaf: 4, routing: {}}}\n",
        routing));
  };
  const SimCall call{.bytes = 1 << 26};
  const Method method{.algorithm = "ring", .channelCount = 24};
  const Cluster hashed = rails("hash"), balanced = rails("balanced");
  const SimResult byHash = run(hashed, call, method);
  const SimResult inTurn = run(balanced, call, method);
  EXPECT_DOUBLE_EQ(byHash.us, inTurn.us);
  EXPECT_EQ(byHash.classes.lanes.size(), inTurn.classes.lanes.size());
  EXPECT_LT(8 * byHash.classes.lanes.size(), static_cast<size_t>(byHash.classes.laneCount));
  for (const LinkClass& link : byHash.classes.links)
    EXPECT_THAT(hashed.nameOfLink(link.link), testing::Not(testing::HasSubstr("spine")));
}

// A leaf with half the links up: there what asks for more than a link has is kept.
TEST(Simulate, SpinesThatAreShortAreSimulated) {
  const Cluster cluster = clusterOf(
      "nodes: [{count: 4, machine: {gpus: 8, sm: 90, nvswitch_links: 18, ports: 8, port_gbps: "
      "400}}]\nnetwork: {shape: leaf_spine, nodes_per_leaf: 1, oversubscription: 4}\n");
  const SimResult result =
      run(cluster, {.bytes = 1 << 26}, {.algorithm = "ring", .channelCount = 24});
  const auto isSpine = [&](const LinkClass& link) {
    return cluster.nameOfLink(link.link).find("spine") != std::string::npos;
  };
  EXPECT_TRUE(std::ranges::any_of(result.classes.links, isSpine));
}

TEST(Simulate, CountsTheFlowsThatThereAre) {
  const Cluster cluster = exampleCluster("mixed");
  Result<VirtualPlan> plan = planVirtual(cluster);
  ASSERT_TRUE(plan.ok());
  Result<Traffic> traffic = Traffic::make(cluster, plan.value(), {.bytes = 1 << 24},
                                          {.algorithm = "ring", .channelCount = 4});
  ASSERT_TRUE(traffic.ok());
  uint64_t messages = 0;
  for (int32_t channel = 0; channel < 4; ++channel) {
    for (const Edge& edge : edgesOf(traffic.value(), channel)) messages += edge.messages;
  }
  Result<SimResult> result = simulate(traffic.value(), {});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(static_cast<uint64_t>(result->flows), messages);
}

TEST(Simulate, LongRingsComeNearTheClosedForm) {
  const Cluster cluster = exampleCluster("dgx_h100x64", 8);
  Result<VirtualPlan> plan = planVirtual(cluster);
  ASSERT_TRUE(plan.ok());
  const SimCall call{.bytes = uint64_t{1} << 30};
  const Method method{.algorithm = "ring", .channelCount = plan->graphs.ring.channelCount};
  Result<Traffic> traffic = Traffic::make(cluster, plan.value(), call, method);
  ASSERT_TRUE(traffic.ok());
  Result<Estimate> closed = estimate(traffic.value(), {});
  Result<SimResult> fair = simulate(traffic.value(), {});
  Result<SimResult> ends = simulate(traffic.value(), {.fidelity = Fidelity::kLogGp});
  ASSERT_TRUE(closed.ok() && fair.ok() && ends.ok());
  EXPECT_NEAR(fair->us, closed->us, 0.35 * closed->us);
  EXPECT_LE(ends->us, fair->us * 1.01);
}

// Where each rank passes on all bytes, messages are short enough that all ranks are busy, and what
// the first takes until it is through them counts.
TEST(Simulate, ChainsAndTreesOverNodesArePipelined) {
  const Cluster cluster = exampleCluster("dgx_h100x64", 8);
  Result<VirtualPlan> plan = planVirtual(cluster);
  ASSERT_TRUE(plan.ok());
  for (const uint64_t bytes : {1_MiB, 16_MiB}) {
    for (const auto& [collective, name, off] :
         {std::tuple{Collective::kBroadcast, "ring", 0.1}, {Collective::kAllReduce, "tree", 0.6}}) {
      Result<Traffic> traffic =
          Traffic::make(cluster, plan.value(), {.collective = collective, .bytes = bytes},
                        {.algorithm = name, .channelCount = 24});
      ASSERT_TRUE(traffic.ok());
      Result<Estimate> closed = estimate(traffic.value(), {});
      Result<SimResult> fair = simulate(traffic.value(), {});
      ASSERT_TRUE(closed.ok() && fair.ok());
      EXPECT_NEAR(fair->us, closed->us, off * closed->us) << name << " " << bytes;
    }
  }
  EXPECT_EQ(pipelinedPieceBytes(graph::Protocol::kSimple, 1_GiB, 36), 512_KiB);
  EXPECT_EQ(pipelinedPieceBytes(graph::Protocol::kSimple, 3_MiB, 36), 64_KiB);
  EXPECT_EQ(pipelinedPieceBytes(graph::Protocol::kSimple, 1_KiB, 36), 32_KiB);
}

// Pieces of several trees overlap: no worse than what the busiest port takes, and fill and drain.
TEST(Simulate, TreesKeepThePortsBusy) {
  const Cluster cluster = clusterOf(
      "nodes: [{count: 2, machine: {gpus: 4, sm: 90, nvswitch_links: 18, ports: 4, port_gbps: "
      "400}}]\n");
  Result<VirtualPlan> plan = planVirtual(cluster);
  ASSERT_TRUE(plan.ok());
  Result<Traffic> traffic = Traffic::make(cluster, plan.value(), {.bytes = 1 << 28},
                                          {.algorithm = "tree", .channelCount = 4});
  ASSERT_TRUE(traffic.ok());
  Result<Estimate> closed = estimate(traffic.value(), {});
  Result<SimResult> fair = simulate(traffic.value(), {});
  ASSERT_TRUE(closed.ok() && fair.ok());
  EXPECT_NEAR(fair->us, closed->us, 0.3 * closed->us);
}

TEST(Simulate, ASlowLinkAndAStragglerHoldUpTheRing) {
  const SimCall call{.bytes = 1 << 26};
  const Method method{.algorithm = "ring", .channelCount = 8};
  Cluster cluster = exampleCluster("dgx_h100x64", 4);
  const double usual = run(cluster, call, method).us;
  ASSERT_TRUE(cluster.scaleLink("node 3 port 0 -> leaf 0", 0.25).ok());
  EXPECT_GT(run(cluster, call, method).us, 1.2 * usual);
  Cluster other = exampleCluster("dgx_h100x64", 4);
  ASSERT_TRUE(other.slowRank(5, 0.2).ok());
  EXPECT_GT(run(other, call, method).us, 1.2 * usual);
}

TEST(Simulate, RecordsOneRanksSteps) {
  const SimResult result = run(exampleCluster("h200x4"), {.bytes = 1 << 20},
                               {.algorithm = "ring", .channelCount = 1}, {.timelineRank = Rank{2}});
  ASSERT_EQ(result.timeline.size(), 7u);
  for (size_t i = 1; i < result.timeline.size(); ++i)
    EXPECT_GE(result.timeline[i].startUs, result.timeline[i - 1].endUs - 1e-6);
}

TEST(Simulate, TooManyEventsAreAnError) {
  const Cluster cluster = exampleCluster("h200x4");
  Result<VirtualPlan> plan = planVirtual(cluster);
  ASSERT_TRUE(plan.ok());
  Result<Traffic> traffic =
      Traffic::make(cluster, plan.value(), {.bytes = 1 << 20}, {.algorithm = "ring"});
  ASSERT_TRUE(traffic.ok());
  const auto refusal = [&](int64_t most) {
    Result<SimResult> result = simulate(traffic.value(), {.mostEvents = most});
    return result.ok() ? "" : std::string(result.status().message());
  };
  // A ring of 4: 7 steps, and more events than those.
  EXPECT_THAT(refusal(6), testing::HasSubstr("at least 7 events, at most 6 are simulated"));
  EXPECT_THAT(refusal(7), testing::HasSubstr("more than 7 events"));
}

}  // namespace
}  // namespace tutti::sim
