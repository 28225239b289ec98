// What planning takes: search of described machines, merge of large clusters, choice and plan of a
// call. One command prints all:  bench_micro --benchmark_filter=Planner
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "graph/cluster.h"
#include "graph/cost_table.h"
#include "plan/plan.h"
#include "topology/registry.h"

namespace tutti::graph {
namespace {

struct Machine {
  topology::Topology topology;
  topology::Paths paths;
};

// From the tree's described machines; the benchmark is skipped where they are not.
bool load(benchmark::State& state, const std::string& name, Machine& machine) {
  const std::string path = TUTTI_SOURCE_DIR "/tests/golden/topologies/" + name + ".xml";
  Result<topology::Description> description = topology::readDescription(path);
  Result<topology::Topology> built =
      description.ok() ? topology::buildTopology(description.value()) : description.takeStatus();
  if (!built.ok()) {
    state.SkipWithError(std::string(built.status().message()).c_str());
    return false;
  }
  machine.topology = std::move(built).value();
  machine.paths = topology::computePaths(machine.topology);
  return true;
}

// Ring, trees, switch and heads, within the node and among nodes.
void searchAll(benchmark::State& state, const std::string& name) {
  Machine machine;
  if (!load(state, name, machine)) return;
  int64_t steps = 0;
  for (auto _ : state) {
    steps = 0;
    for (const bool betweenNodes : {false, true}) {
      for (const Pattern pattern :
           {Pattern::kRing, Pattern::kBalancedTree, Pattern::kSwitch, Pattern::kDirect}) {
        if (pattern == Pattern::kDirect && !betweenNodes) continue;
        steps += search(machine.topology, machine.paths,
                        {.pattern = pattern, .betweenNodes = betweenNodes})
                     .steps;
      }
    }
  }
  state.counters["steps"] = static_cast<double>(steps);
}
void PlannerSearch8Gpus8Ports(benchmark::State& state) { searchAll(state, "dgx_h100"); }
void PlannerSearch16Gpus(benchmark::State& state) { searchAll(state, "dgx2"); }
BENCHMARK(PlannerSearch8Gpus8Ports)->Unit(benchmark::kMillisecond);
BENCHMARK(PlannerSearch16Gpus)->Unit(benchmark::kMillisecond);

void PlannerPaths8Gpus8Ports(benchmark::State& state) {
  Machine machine;
  if (!load(state, "dgx_h100", machine)) return;
  for (auto _ : state) benchmark::DoNotOptimize(topology::computePaths(machine.topology));
}
BENCHMARK(PlannerPaths8Gpus8Ports)->Unit(benchmark::kMillisecond);

// Nodes of 8 ranks with 8 rings and chains.
void PlannerMerge(benchmark::State& state) {
  constexpr int32_t kRanks = 8;
  std::vector<NodePart> parts;
  for (int32_t node = 0; node < state.range(0); ++node) {
    NodePart part;
    for (int32_t i = 0; i < kRanks; ++i) part.ranks.push_back(Rank{node * kRanks + i});
    for (int32_t channel = 0; channel < kRanks; ++channel) {
      part.rings.push_back({.order = part.ranks, .entryRail = channel, .exitRail = channel});
      part.chains.push_back(part.ranks);
    }
    parts.push_back(std::move(part));
  }
  for (auto _ : state) {
    const Result<MergedGraph> merged = merge(parts);
    if (!merged.ok()) state.SkipWithError(std::string(merged.status().message()).c_str());
  }
}
BENCHMARK(PlannerMerge)->Arg(16)->Arg(1024)->Arg(16384)->Unit(benchmark::kMillisecond);

// A described cluster from topology to merged graphs.
void PlannerCluster16384Nodes(benchmark::State& state) {
  Machine machine;
  if (!load(state, "dgx_h100", machine)) return;
  for (auto _ : state) {
    const Result<ClusterPlan> plan =
        planCluster(machine.topology, machine.paths, {.nodeCount = 16384});
    if (!plan.ok()) state.SkipWithError(std::string(plan.status().message()).c_str());
  }
}
BENCHMARK(PlannerCluster16384Nodes)->Unit(benchmark::kMillisecond)->Iterations(3);

plan::Agreement agreementOf(int32_t rankCount) {
  return {.rank = Rank{1},
          .rankCount = rankCount,
          .geometry = plan::linkGeometry(512_KiB),
          .algorithms = {},
          .readsPeers = true,
          .isOneHost = true};
}

void PlannerChoiceCpuRanks(benchmark::State& state) {
  const plan::Agreement agreement = agreementOf(8);
  plan::CallShape shape{.collective = Collective::kAllReduce};
  for (auto _ : state) {
    shape.count = (shape.count * 5 + 1) % 1'000'003;
    benchmark::DoNotOptimize(plan::choose(shape, agreement));
  }
}
BENCHMARK(PlannerChoiceCpuRanks);

void PlannerChoiceGpus(benchmark::State& state) {
  Machine machine;
  if (!load(state, "dgx_h100", machine)) return;
  const ClusterPlan plan = planCluster(machine.topology, machine.paths, {.nodeCount = 16}).value();
  const MethodChooser chooser(plan.graphs, nccl229(), {});
  uint64_t bytes = 1;
  for (auto _ : state) {
    bytes = (bytes * 5 + 1) % 1'000'000'007;
    benchmark::DoNotOptimize(chooser.choose(Collective::kAllReduce, bytes));
  }
}
BENCHMARK(PlannerChoiceGpus);

// Choice, program and layout of a call that no plan is at hand for, on 8 ranks: a planner each
// time, as the first call of a communicator has it.
void PlannerPlanUncached(benchmark::State& state) {
  for (auto _ : state) {
    plan::Planner planner(agreementOf(8));
    benchmark::DoNotOptimize(planner.make(
        {.collective = Collective::kAllReduce, .count = static_cast<uint64_t>(state.range(0))}));
  }
}
BENCHMARK(PlannerPlanUncached)->Arg(2)->Arg(1 << 14)->Arg(1 << 22)->Unit(benchmark::kMicrosecond);

// The same on two hosts, where what goes between them is counted first.
void PlannerPlanUncachedTwoHosts(benchmark::State& state) {
  plan::Agreement agreement = agreementOf(8);
  agreement.readsPeers = agreement.isOneHost = false;
  agreement.hostOf = {0, 0, 0, 0, 1, 1, 1, 1};
  for (auto _ : state) {
    plan::Planner planner(agreement);
    benchmark::DoNotOptimize(planner.make({.collective = Collective::kAllReduce, .count = 1024}));
  }
}
BENCHMARK(PlannerPlanUncachedTwoHosts);

}  // namespace
}  // namespace tutti::graph
