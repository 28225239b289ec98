#include "tools/explain_cluster.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/block_settings.h"
#include "base/settings.h"
#include "base/whole_file.h"
#include "comm/gpu_direct.h"
#include "graph/xml.h"
#include "schedule/catalog.h"
#include "schedule/linked_tree.h"
#include "schedule/prover.h"
#include "topology/registry.h"

namespace tutti::tools {
namespace {

using topology::Topology;

// Proving takes time and memory by the square of the ranks.
constexpr int32_t kMostRanksProved = 64;
constexpr int32_t kMostRanksScheduled = 4096;

Result<Topology> readTopology(const ClusterCall& call) {
  Result<topology::Description> described = call.topologyFile.empty()
                                                ? topology::discover()
                                                : topology::readDescription(call.topologyFile);
  TUTTI_TRY_ASSIGN(topology::Description description, std::move(described));
  if (!call.profileFile.empty()) {
    TUTTI_TRY_ASSIGN(description, topology::completeFromFile(description, call.profileFile));
  }
  return topology::buildTopology(description);
}

// The first GPUs of a single node, where fewer ranks are wanted than it has.
Result<Topology> trimTo(Topology topology, const ClusterCall& call) {
  const auto gpus = nodesOf(topology, topology::NodeKind::kGpu);
  const bool isOneNode = topology.hosts.size() == 1 && call.nodeCount <= 1;
  const bool isFewer = call.rankCount > 0 && static_cast<size_t>(call.rankCount) < gpus.size();
  if (!isOneNode || !isFewer) return topology;
  std::vector<int32_t> kept;
  for (int32_t rank = 0; rank < static_cast<int32_t>(gpus.size()); ++rank) {
    topology.nodes[topology::index(gpus[static_cast<size_t>(rank)])].gpu.rank = rank;
    if (rank < call.rankCount) kept.push_back(rank);
  }
  return topology::trim(topology, kept);
}

graph::CrossNic crossNicOf(const Settings& settings) {
  const std::string text = settings.text("NCCL_CROSS_NIC");
  if (text == "0") return graph::CrossNic::kNever;
  return text == "1" ? graph::CrossNic::kAlways : graph::CrossNic::kWhereBetter;
}

Result<graph::ClusterPlan> plan(const ClusterCall& call, const Settings& settings) {
  TUTTI_TRY_ASSIGN(Topology described, readTopology(call));
  TUTTI_TRY_ASSIGN(const Topology topology, trimTo(std::move(described), call));
  const topology::Paths paths = topology::computePaths(topology);
  graph::ClusterOptions options{.nodeCount = call.nodeCount, .crossNic = crossNicOf(settings)};
  if (!call.graphFile.empty()) {
    TUTTI_TRY_ASSIGN(const std::string text, topology::readXmlText(call.graphFile));
    TUTTI_TRY_ASSIGN(options.given, graph::parseGraphs(text, call.graphFile, {topology, paths}));
  }
  TUTTI_TRY_ASSIGN(graph::ClusterPlan plan, graph::planCluster(topology, paths, options));
  if (call.rankCount > 0 && call.rankCount != plan.graphs.rankCount)
    return invalidArgument("--ranks {}: {} nodes of this topology have {} GPUs", call.rankCount,
                           plan.graphs.nodeCount, plan.graphs.rankCount);
  return plan;
}

// All ranks' programs on the first channel of what was chosen.
schedule::Schedule scheduleOf(const ClusterCall& call, const graph::MethodChoice& choice,
                              const graph::MergedGraph& merged) {
  const int32_t ranks = merged.rankCount();
  if (ranks > kMostRanksScheduled) return {};
  if (choice.method == graph::Method::kRing) {
    return schedule::makeSchedule(*schedule::findAlgorithm(call.collective, "ring"),
                                  {.rankCount = ranks, .root = call.root, .order = merged.ring(0)});
  }
  if (choice.method != graph::Method::kTree || merged.treeChannelCount() == 0) return {};
  schedule::Schedule schedule{.algorithm = "tree",
                              .collective = call.collective,
                              .rankCount = ranks,
                              .chunkCount = ranks == 1 ? 1 : merged.treesPerChannel()};
  for (int32_t i = 0; i < ranks; ++i) {
    std::vector<schedule::TreeLinks> trees;
    for (int32_t tree = 0; tree < merged.treesPerChannel(); ++tree)
      trees.push_back(merged.treeLinks(0, tree, Rank{i}));
    schedule.programs.push_back(schedule::linkedTreeAllReduce(trees, ranks));
  }
  return schedule;
}

void addProof(ClusterExplanation& explanation) {
  const schedule::Schedule& schedule = explanation.schedule;
  if (schedule.programs.empty() || schedule.rankCount > kMostRanksProved) return;
  explanation.isProved = true;
  const schedule::Proof proof = schedule::prove(schedule, {.slotCount = 8, .inPlace = true});
  if (!proof.ok()) explanation.refusal = proof.refusal;
}

// Send, receive and what is made of them have no choice.
bool isInTable(Collective collective, const graph::CostTable& table) {
  for (size_t method = 0; method < graph::kMethodCount; ++method) {
    for (size_t protocol = 0; protocol < graph::kProtocolCount; ++protocol) {
      if (table
              .at(collective, static_cast<graph::Method>(method),
                  static_cast<graph::Protocol>(protocol))
              .gbPerSecond > 0)
        return true;
    }
  }
  return false;
}

// As GPU ranks find it out at start-up, with what the description says in place of the network.
std::string directWay(const topology::Topology& machine, Rank rank, const Settings& settings) {
  const topology::NodeId gpu = topology::findGpuByRank(machine, index(rank));
  if (gpu == topology::kNoNode) return "where it sits is not known";
  std::vector<net::Adapter> adapters;
  for (const topology::NodeId port :
       topology::nodesOf(machine, topology::NodeKind::kNet, machine[gpu].host)) {
    adapters.push_back({.name = machine[port].net.device,
                        .place = {},
                        .takesGpuMemory = machine[port].net.directGpu,
                        .takesDmaBuffers = machine[port].net.directGpu});
  }
  const comm::GpuDirectView view = comm::judgeGpuDirect(adapters, {.machine = &machine, .gpu = gpu},
                                                        comm::gpuDirectRulesOf(settings));
  return view.description.empty() ? view.obstacle : view.description;
}

Status dumpGraphs(const std::string& path, const graph::ClusterPlan& plan) {
  const graph::HostGraphs& host = plan.hosts.front();
  const std::vector<graph::NodeGraph> graphs{host.ring.graph, host.tree.graph, host.switched.graph,
                                             host.direct.graph};
  return writeWholeFile(path, graph::writeGraphs(plan.topology, graphs), kForAll);
}

}  // namespace

Result<ClusterExplanation> explainCluster(const ClusterCall& call) {
  const Settings settings = Settings::load();
  if (!call.dumpFile.empty()) TUTTI_TRY(checkWritable(call.dumpFile));  // before the search
  ClusterExplanation explanation;
  explanation.call = call;
  TUTTI_TRY_ASSIGN(explanation.plan, plan(call, settings));
  if (!call.dumpFile.empty()) TUTTI_TRY(dumpGraphs(call.dumpFile, explanation.plan));
  const int32_t ranks = explanation.plan.graphs.rankCount;
  for (const auto& [option, rank] :
       {std::pair{"--rank", call.rank}, std::pair{"--root", call.root}}) {
    if (index(rank) >= ranks)
      return invalidArgument("{} {} is out of range, ranks are 0 to {}", option, index(rank),
                             ranks - 1);
  }
  if (ranks < 2) return explanation;
  const BlockSettings asked = readBlockSettings(settings);
  const auto fewest = static_cast<int32_t>(asked.fewest);
  const auto most = static_cast<int32_t>(asked.most);
  if (explanation.plan.graphs.nodeCount == 1) {
    GpuCall own{.collective = call.collective,
                .bytes = call.bytes,
                .rankCount = ranks,
                .maxBlocks = most,
                .minBlocks = fewest,
                .prefersEngines = (settings.integer("NCCL_CTA_POLICY") & 2) != 0,
                .savesBlocks = (settings.integer("NCCL_CTA_POLICY") & 1) != 0};
    TUTTI_TRY_ASSIGN(own.peerLevel,
                     topology::parseLevel("NCCL_P2P_LEVEL", settings.text("NCCL_P2P_LEVEL")));
    if (settings.integer("NCCL_P2P_DISABLE") != 0) own.peerLevel = topology::PathKind::kLoc;
    explanation.own = ownGpuWay(own, explanation.plan.topology);
    explanation.outOfReach = pairOutOfReach(own, explanation.plan.topology);
  }
  if (explanation.plan.graphs.nodeCount > 1)
    explanation.direct = directWay(explanation.plan.topology, call.rank, settings);
  const graph::NcclConstants& constants =
      call.constants == "2.12" ? graph::nccl212() : graph::nccl229();
  const graph::MethodChooser chooser(explanation.plan.graphs, constants,
                                     {.methods = graph::NameFilter(settings.text("NCCL_ALGO")),
                                      .protocols = graph::NameFilter(settings.text("NCCL_PROTO")),
                                      .minChannels = std::max(fewest, 1),
                                      .maxChannels = most > 0 ? most : 64});
  if (!isInTable(call.collective, chooser.table())) return explanation;
  TUTTI_TRY_ASSIGN(const graph::MethodChoice choice, chooser.choose(call.collective, call.bytes));
  explanation.choices = chooser.rank(call.collective, call.bytes);
  explanation.switches = chooser.switches(call.collective);
  explanation.schedule = scheduleOf(call, choice, explanation.plan.merged);
  addProof(explanation);
  return explanation;
}

}  // namespace tutti::tools
