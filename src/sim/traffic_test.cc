#include "sim/traffic.h"

#include <gtest/gtest.h>

#include <map>

#include "plan/plan.h"
#include "schedule/catalog.h"
#include "schedule/prover.h"
#include "sim/choice.h"
#include "sim/clusters_testing.h"
#include "sim/edges.h"

namespace tutti::sim {
namespace {

VirtualPlan planOf(const Cluster& cluster) {
  Result<VirtualPlan> plan = planVirtual(cluster);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return std::move(plan).value();
}

// What the programs themselves send, message by message.
std::map<std::pair<int32_t, int32_t>, Edge> walk(const Traffic& traffic, int32_t channel) {
  std::map<std::pair<int32_t, int32_t>, Edge> edges;
  for (int32_t rank = 0; rank < traffic.rankCount(); ++rank) {
    const Lane lane = traffic.lane(channel, Rank{rank});
    for (size_t piece = 0; piece < lane.layout.pieceCount; ++piece) {
      for (const schedule::Step& step : lane.program->steps) {
        const uint64_t bytes = lane.bytesOf(step.chunk, piece);
        for (const schedule::Operand& operand : lane.program->destinations(step)) {
          if (operand.place != schedule::Place::kLink || bytes == 0) continue;
          const Rank to = lane.program->sendsTo[static_cast<size_t>(operand.index)];
          Edge& edge = edges[{rank, index(to)}];
          edge.from = Rank{rank};
          edge.to = to;
          edge.bytes += bytes;
          edge.wireBytes += wireBytes(traffic.method().protocol, bytes);
          ++edge.messages;
        }
      }
    }
  }
  return edges;
}

TEST(Traffic, EdgesCarryWhatTheProgramsSend) {
  const Cluster cluster = exampleCluster("mixed");
  const VirtualPlan plan = planOf(cluster);
  for (int which = 0; which < kCollectiveCount; ++which) {
    const auto collective = static_cast<Collective>(which);
    for (const schedule::Algorithm& algorithm : schedule::algorithms(collective)) {
      for (const uint64_t bytes : {uint64_t{4}, uint64_t{100'000}, uint64_t{40'000'004}}) {
        Result<Traffic> traffic = Traffic::make(
            cluster, plan, {.collective = collective, .bytes = bytes, .sender = Rank{3}},
            {.algorithm = std::string(algorithm.name),
             .protocol = graph::Protocol::kLl128,
             .channelCount = 2});
        ASSERT_TRUE(traffic.ok());
        const auto wanted = walk(traffic.value(), 1);
        const std::vector<Edge> found = edgesOf(traffic.value(), 1);
        ASSERT_EQ(found.size(), wanted.size()) << name(collective) << " " << algorithm.name;
        for (const Edge& edge : found) {
          EXPECT_EQ(edge, wanted.at({index(edge.from), index(edge.to)}))
              << name(collective) << " " << algorithm.name << " " << bytes;
        }
      }
    }
  }
}

// Messages and bytes by pair of ranks.
using Sent = std::map<std::pair<int32_t, int32_t>, std::pair<uint64_t, uint64_t>>;

// What the library would do: its own plan, made by its own planner for one of 8 ranks.
void addPlanned(const Cluster& cluster, const plan::CallShape& shape, std::string_view algorithm,
                int32_t rank, Sent& sent) {
  plan::Agreement agreement = agreementOf(cluster, planOf(cluster), algorithm);
  agreement.rank = Rank{rank};
  plan::Planner planner(std::move(agreement));
  Result<plan::Plan> made = planner.make(shape);
  ASSERT_TRUE(made.ok());
  const Lane lane{made->program, made->layout, sizeOf(shape.type)};
  for (size_t piece = 0; piece < made->layout.pieceCount; ++piece) {
    for (const schedule::Step& step : made->program->steps) {
      const uint64_t bytes = lane.bytesOf(step.chunk, piece);
      for (const schedule::Operand& operand : made->program->destinations(step)) {
        if (operand.place != schedule::Place::kLink || bytes == 0) continue;
        const Rank to = made->program->sendsTo[static_cast<size_t>(operand.index)];
        auto& [messages, sum] = sent[{rank, index(to)}];
        ++messages;
        sum += bytes;
      }
    }
  }
}

TEST(Traffic, CpuRanksSendWhatTheLibraryPlans) {
  const Cluster cluster =
      clusterOf("nodes: [{count: 8, machine: {ports: 1, port_gbps: 10}, cpu_ranks: 1}]\n");
  const VirtualPlan graphs = planOf(cluster);
  for (int which = 0; which < kCollectiveCount - 2; ++which) {
    const auto collective = static_cast<Collective>(which);
    for (const schedule::Algorithm& algorithm : schedule::algorithms(collective)) {
      if (algorithm.reducesInNetwork()) continue;  // the cluster has no such network
      for (const uint64_t count : {1u, 1000u, 123'457u, 3'000'000u}) {
        const plan::CallShape shape{.collective = collective, .count = count};
        const SimCall call{.collective = collective, .bytes = plan::vectorBytes(shape, 8)};
        Result<Traffic> traffic =
            Traffic::make(cluster, graphs, call, {.algorithm = std::string(algorithm.name)});
        ASSERT_TRUE(traffic.ok());
        Sent wanted, found;
        for (int32_t rank = 0; rank < 8; ++rank)
          addPlanned(cluster, shape, algorithm.name, rank, wanted);
        for (const Edge& edge : edgesOf(traffic.value(), 0))
          found[{index(edge.from), index(edge.to)}] = {edge.messages, edge.bytes};
        EXPECT_EQ(found, wanted) << name(collective) << " " << algorithm.name << " " << count;
      }
    }
  }
}

TEST(Traffic, EndsWithTheRightDataOnEveryRank) {
  for (const char* example : {"mixed", "dgx_h100x64"}) {
    const Cluster cluster = exampleCluster(example, example[0] == 'm' ? 0 : 4);
    const VirtualPlan plan = planOf(cluster);
    for (const char* algorithm : {"ring", "tree"}) {
      Result<Traffic> traffic =
          Traffic::make(cluster, plan, {.bytes = 1 << 20},
                        {.algorithm = algorithm, .channelCount = plan.graphs.ring.channelCount});
      ASSERT_TRUE(traffic.ok());
      for (int32_t channel = 0; channel < traffic->channelCount(); channel += 3) {
        const schedule::Proof proof =
            schedule::prove(traffic->schedule(channel), {.slotCount = 8, .inPlace = true});
        EXPECT_TRUE(proof.ok()) << example << " " << algorithm << ": " << proof.refusal;
      }
    }
  }
}

TEST(Traffic, RingsLoadEveryRailAlike) {
  const Cluster cluster = exampleCluster("dgx_h100x64", 4);
  const VirtualPlan plan = planOf(cluster);
  Result<Traffic> traffic =
      Traffic::make(cluster, plan, {.bytes = 64 << 20},
                    {.algorithm = "ring", .channelCount = plan.graphs.ring.channelCount});
  ASSERT_TRUE(traffic.ok());
  Result<LinkLoads> loads = loadsOf(traffic.value());
  ASSERT_TRUE(loads.ok());
  double least = 1e18, most = 0;
  for (int32_t link = 0; link < cluster.linkCount(); ++link) {
    if (!cluster.isNetworkLink(link)) continue;
    const double bytes = loads->wireBytes[static_cast<size_t>(link)];
    if (cluster.nameOfLink(link).starts_with("node")) {
      least = std::min(least, bytes);
      most = std::max(most, bytes);
    }
  }
  EXPECT_GT(least, 0);
  EXPECT_LT(most, least * 1.01);
}

TEST(Traffic, WireBytesHoldFlags) {
  EXPECT_EQ(wireBytes(graph::Protocol::kLl, 8), 16u);
  EXPECT_EQ(wireBytes(graph::Protocol::kLl128, 120), 128u);
  EXPECT_EQ(wireBytes(graph::Protocol::kLl128, 121), 256u);
  EXPECT_EQ(wireBytes(graph::Protocol::kSimple, 121), 121u);
}

TEST(Traffic, RefusesWhatThereIsNot) {
  const Cluster cluster = exampleCluster("h200x4");
  const VirtualPlan plan = planOf(cluster);
  EXPECT_FALSE(Traffic::make(cluster, plan, {.bytes = 8}, {.algorithm = "butterfly"}).ok());
  EXPECT_FALSE(
      Traffic::make(cluster, plan, {.bytes = 8, .root = Rank{4}}, {.algorithm = "ring"}).ok());
}

// Loads scaled from another size, and summed pair by pair, are those of the flows themselves.
TEST(ClosedForm, EstimatorAgreesWithTheFlows) {
  const Cluster cluster = exampleCluster("dgx_h100x64", 2);
  const VirtualPlan plan = planOf(cluster);
  Estimator estimator(cluster, plan);
  for (const auto& [collective, algorithm] :
       {std::pair(Collective::kAllToAll, "direct"), std::pair(Collective::kAllReduce, "twoshot"),
        std::pair(Collective::kAllReduce, "ring"), std::pair(Collective::kAllReduce, "tree"),
        std::pair(Collective::kAllGather, "direct"), std::pair(Collective::kAllReduce, "oneshot"),
        std::pair(Collective::kBroadcast, "tree")}) {
    const SimCall call{.collective = collective, .bytes = 1 << 28};
    const Method method{.algorithm = algorithm, .channelCount = 8};
    Result<Traffic> traffic = Traffic::make(cluster, plan, call, method);
    ASSERT_TRUE(traffic.ok());
    Result<Estimate> exact = estimate(traffic.value(), {});
    Result<Estimate> scaled = estimator.estimate(call, method, {});
    ASSERT_TRUE(exact.ok() && scaled.ok());
    EXPECT_NEAR(scaled->us, exact->us, 0.05 * exact->us)
        << name(collective) << " " << algorithm << " " << exact->busiestLinkUs << " "
        << scaled->busiestLinkUs << " " << cluster.nameOfLink(exact->busiestLink) << " "
        << cluster.nameOfLink(scaled->busiestLink);
  }
}

TEST(ClosedForm, LongRingsAreBoundByThePorts) {
  const Cluster cluster = exampleCluster("dgx_h100x64");
  const VirtualPlan plan = planOf(cluster);
  Estimator estimator(cluster, plan);
  Result<Choices> choices =
      chooseFor(estimator, {.bytes = uint64_t{1} << 30}, {}, {.algorithm = "ring"});
  ASSERT_TRUE(choices.ok());
  const Choices::Way& best = playedOf(choices.value());
  EXPECT_TRUE(best.name.starts_with("ring")) << best.name;
  EXPECT_TRUE(best.estimate.isLinkBound || best.estimate.bytesUs > 0);
  const double bus =
      busGbPerSecond(Collective::kAllReduce, 512, uint64_t{1} << 30, best.estimate.us);
  EXPECT_GT(bus, 50);
  EXPECT_LT(bus, 400);
}

TEST(ClosedForm, ASlowLinkAndAStragglerCost) {
  const auto timeOf = [](const Cluster& cluster) {
    const VirtualPlan plan = planOf(cluster);
    Estimator estimator(cluster, plan);
    Result<Choices> choices = chooseFor(estimator, {.bytes = 256 << 20}, {}, {.algorithm = "ring"});
    EXPECT_TRUE(choices.ok());
    return playedOf(choices.value()).estimate;
  };
  Cluster cluster = exampleCluster("dgx_h100x64", 4);
  const Estimate usual = timeOf(cluster);
  ASSERT_TRUE(cluster.scaleLink("node 3 port 0 -> leaf 0", 0.25).ok());
  const Estimate slow = timeOf(cluster);
  EXPECT_GT(slow.us, 1.3 * usual.us);
  EXPECT_EQ(cluster.nameOfLink(slow.busiestLink), "node 3 port 0 -> leaf 0");
  Cluster other = exampleCluster("dgx_h100x64", 4);
  ASSERT_TRUE(other.slowRank(5, 0.25).ok());
  EXPECT_GT(timeOf(other).us, usual.us);
}

TEST(Choice, AsksEachSystem) {
  for (const char* example : {"dgx_h100x64", "h200x4", "cpu_cluster", "mixed"}) {
    const Cluster cluster = exampleCluster(example);
    const VirtualPlan plan = planOf(cluster);
    Estimator estimator(cluster, plan);
    for (const System system : {System::kTutti, System::kNccl}) {
      for (int which = 0; which < kCollectiveCount; ++which) {
        const SimCall call{
            .collective = static_cast<Collective>(which), .bytes = 1 << 20, .sender = Rank{1}};
        Result<Choices> choices = chooseFor(estimator, call, {.system = system});
        ASSERT_TRUE(choices.ok()) << example << " " << name(call.collective) << " "
                                  << choices.status().message();
        EXPECT_GT(playedOf(choices.value()).estimate.us, 0);
      }
    }
  }
}

// Every way of every call, far beyond what was measured of it: more bytes never take less, and the
// flags that its lines carry are what a short protocol costs a long call.
TEST(Choice, LosersTimesHoldForLongCallsToo) {
  const Cluster cluster = exampleCluster("h200x4");
  const VirtualPlan plan = planOf(cluster);
  Estimator estimator(cluster, plan);
  for (const System system : {System::kTutti, System::kNccl}) {
    for (int which = 0; which < kCollectiveCount; ++which) {
      SimCall call{.collective = static_cast<Collective>(which), .sender = Rank{1}};
      std::map<std::string, double> before;
      for (call.bytes = 1 << 10; call.bytes <= uint64_t{16} << 30; call.bytes *= 2) {
        Result<Choices> choices = chooseFor(estimator, call, {.system = system});
        ASSERT_TRUE(choices.ok()) << choices.status().message();
        for (const Choices::Way& way : choices->ways) {
          if (!way.method || &way == &playedOf(choices.value())) continue;
          EXPECT_GE(way.estimate.us, before[way.name])
              << name(call.collective) << " " << way.name << " " << call.bytes;
          before[way.name] = way.estimate.us;
        }
      }
    }
    const SimCall call{.collective = Collective::kAllGather, .bytes = uint64_t{1} << 30};
    Result<Choices> choices = chooseFor(estimator, call, {.system = system});
    ASSERT_TRUE(choices.ok());
    const double best = playedOf(choices.value()).estimate.us;
    for (const Choices::Way& way : choices->ways) {
      if (!way.method || way.method->algorithm != playedOf(choices.value()).method->algorithm)
        continue;
      EXPECT_NEAR(way.estimate.us / best, wireFactor(way.method->protocol), .15) << way.name;
    }
  }
}

}  // namespace
}  // namespace tutti::sim
