#include "graph/cluster.h"

#include <algorithm>

namespace tutti::graph {
namespace {

using topology::NodeId;
using topology::NodeKind;
using topology::Topology;

constexpr double kNetworkOverheadUs = 1, kNetworkOverheadAmdUs = 2;

// GPUs by host and device number, from 0 on each host.
void rankGpus(Topology& topology, const std::vector<int32_t>& hosts) {
  for (const int32_t host : hosts) {
    int32_t rank = 0;
    for (const NodeId gpu : nodesOf(topology, NodeKind::kGpu, host))
      topology.nodes[topology::index(gpu)].gpu.rank = rank++;
  }
}

bool isTree(Pattern pattern) {
  return pattern == Pattern::kTree || pattern == Pattern::kSplitTree ||
         pattern == Pattern::kBalancedTree;
}

class HostSearch {
 public:
  HostSearch(const Topology& topology, const topology::Paths& paths,
             const std::vector<NodeGraph>& given)
      : topology_(topology), paths_(paths), given_(given) {}

  HostGraphs run(const SearchOptions& options) const {
    HostGraphs found{.host = options.host,
                     .ring = find(options, Pattern::kRing),
                     .tree = find(options, Pattern::kBalancedTree),
                     .switched = find(options, Pattern::kSwitch)};
    if (options.betweenNodes) found.direct = find(options, Pattern::kDirect);
    return found;
  }

 private:
  FoundGraph find(SearchOptions options, Pattern pattern) const {
    for (const NodeGraph& each : given_) {
      const bool isIt = each.pattern == pattern || (isTree(each.pattern) && isTree(pattern));
      if (isIt && !each.channels.empty())
        return {.graph = each, .boundGbPerSecond = each.totalGbPerSecond()};
    }
    options.pattern = pattern;
    options.inNetworkOnly = pattern == Pattern::kDirect;
    return search(topology_, paths_, options);
  }

  const Topology& topology_;
  const topology::Paths& paths_;
  const std::vector<NodeGraph>& given_;
};

void alignInto(GraphSummary& all, const NodeGraph& graph, bool isFirst) {
  all = isFirst ? summarise(graph) : align(all, summarise(graph));
}

ClusterGraphs alignHosts(const Topology& topology, const std::vector<HostGraphs>& hosts) {
  ClusterGraphs graphs;
  for (const HostGraphs& each : hosts) {
    const bool isFirst = &each == hosts.data();
    alignInto(graphs.ring, each.ring.graph, isFirst);
    alignInto(graphs.tree, each.tree.graph, isFirst);
    alignInto(graphs.switched, each.switched.graph, isFirst);
    alignInto(graphs.direct, each.direct.graph, isFirst);
    const std::vector<NodeId> gpus = nodesOf(topology, NodeKind::kGpu, each.host);
    graphs.mostRanksPerNode =
        std::max(isFirst ? 0 : graphs.mostRanksPerNode, static_cast<int32_t>(gpus.size()));
    for (const NodeId gpu : gpus) {
      const int32_t version = topology[gpu].gpu.smVersion;
      graphs.smVersion = graphs.smVersion == 0 ? version : std::min(graphs.smVersion, version);
    }
  }
  const bool isAmd = std::ranges::any_of(topology.nodes, [](const topology::Node& node) {
    return node.kind == NodeKind::kCpu && node.cpu.vendor == topology::CpuVendor::kAmd;
  });
  graphs.networkOverheadUs = isAmd ? kNetworkOverheadAmdUs : kNetworkOverheadUs;
  return graphs;
}

}  // namespace

Result<ClusterPlan> planCluster(const Topology& topology, const topology::Paths& paths,
                                const ClusterOptions& options) {
  std::vector<int32_t> withGpus;
  for (int32_t host = 0; host < static_cast<int32_t>(topology.hosts.size()); ++host) {
    if (!nodesOf(topology, NodeKind::kGpu, host).empty()) withGpus.push_back(host);
  }
  if (withGpus.empty()) return invalidArgument("cluster: no host of the topology has a GPU");
  const int32_t described = static_cast<int32_t>(withGpus.size());
  const int32_t nodeCount = options.nodeCount > 0 ? options.nodeCount : described;
  withGpus.resize(static_cast<size_t>(std::min(described, nodeCount)));

  ClusterPlan plan;
  plan.topology = topology;
  rankGpus(plan.topology, withGpus);
  for (const int32_t host : withGpus) {
    plan.hosts.push_back(HostSearch(plan.topology, paths, options.given)
                             .run({.host = host,
                                   .betweenNodes = nodeCount > 1,
                                   .crossNic = options.crossNic,
                                   .mostChannels = options.mostChannels}));
    if (plan.hosts.back().ring.graph.channels.empty())
      return invalidArgument(
          "cluster: host {} has no network port that its GPUs reach, so it cannot be one of {} "
          "nodes",
          host, nodeCount);
  }
  std::vector<NodePart> parts;
  int32_t rankCount = 0;
  for (int32_t node = 0; node < nodeCount; ++node) {
    const HostGraphs& found = plan.hosts[static_cast<size_t>(node) % plan.hosts.size()];
    parts.push_back(
        makePart(plan.topology,
                 {.ring = found.ring.graph, .tree = found.tree.graph, .direct = found.direct.graph},
                 {.host = found.host, .firstRank = rankCount}));
    rankCount += static_cast<int32_t>(parts.back().ranks.size());
  }
  TUTTI_TRY_ASSIGN(plan.merged, merge(std::move(parts)));
  plan.graphs = alignHosts(plan.topology, plan.hosts);
  plan.graphs.rankCount = rankCount;
  plan.graphs.nodeCount = nodeCount;
  return plan;
}

}  // namespace tutti::graph
