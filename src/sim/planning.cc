#include "sim/planning.h"

#include <algorithm>

#include "graph/places.h"
#include "plan/plan.h"

namespace tutti::sim {
namespace {

using topology::NodeId;

// The part of one node with the cluster's numbers for its ranks.
void renumber(graph::NodePart& part, const std::vector<Rank>& ranks) {
  const auto map = [&](std::vector<Rank>& list) {
    for (Rank& rank : list) rank = ranks[static_cast<size_t>(index(rank))];
  };
  map(part.ranks);
  for (graph::RingPart& ring : part.rings) map(ring.order);
  for (std::vector<Rank>& chain : part.chains) map(chain);
  map(part.heads);
}

void alignInto(graph::ClusterGraphs& all, const graph::ClusterGraphs& one) {
  all.ring = align(all.ring, one.ring);
  all.tree = align(all.tree, one.tree);
  all.switched = align(all.switched, one.switched);
  all.direct = align(all.direct, one.direct);
  all.mostRanksPerNode = std::max(all.mostRanksPerNode, one.mostRanksPerNode);
  all.smVersion = std::min(all.smVersion, one.smVersion);
  all.networkOverheadUs = std::max(all.networkOverheadUs, one.networkOverheadUs);
}

std::vector<RingPorts> portsOf(const NodeKind& kind, const graph::NodeGraph& ring) {
  std::vector<RingPorts> ports(kind.gpus.size());
  const auto gpuNumber = [&](NodeId gpu) {
    return static_cast<size_t>(kind.topology[gpu].gpu.rank);
  };
  for (size_t i = 0; i < ring.channels.size(); ++i) {
    const graph::Channel& channel = ring.channels[i];
    const auto number = static_cast<int32_t>(i);
    if (channel.exit != topology::kNoNode)
      ports[gpuNumber(channel.gpus.back())].exits.emplace_back(number, channel.exit);
    if (channel.entry != topology::kNoNode)
      ports[gpuNumber(channel.gpus.front())].entries.emplace_back(number, channel.entry);
  }
  return ports;
}

// What CPU ranks know of each other: their hosts.
Status placeRanks(const Cluster& cluster, VirtualPlan& plan) {
  if (cluster.nodeCount() == 1) return {};
  std::vector<graph::Place> places;
  for (int32_t rank = 0; rank < cluster.rankCount(); ++rank)
    places.push_back({.host = static_cast<uint64_t>(cluster.nodeOf(Rank{rank}))});
  TUTTI_TRY_ASSIGN(const graph::MergedGraph merged, graph::mergePlaces(places));
  for (int32_t rank = 0; rank < cluster.rankCount(); ++rank)
    plan.hostOf.push_back(merged.nodeOf(Rank{rank}));
  plan.order = graph::orderOf(merged);
  plan::Agreement agreed;
  agreed.hostOf = plan.hostOf;
  agreed.order = plan.order;
  plan.evenHostCount = agreed.evenHostCount();
  return {};
}

}  // namespace

Result<VirtualPlan> planVirtual(const Cluster& cluster) {
  VirtualPlan plan;
  plan.graphs.rankCount = cluster.rankCount();
  plan.graphs.nodeCount = cluster.nodeCount();
  if (!cluster.hasGpus()) {
    TUTTI_TRY(placeRanks(cluster, plan));
    return plan;
  }
  std::vector<graph::NodePart> kindParts;
  for (const NodeKind& kind : cluster.kinds()) {
    // Twice the same node, where there are several: what it does to the others is the same for all.
    TUTTI_TRY_ASSIGN(graph::ClusterPlan found,
                     graph::planCluster(kind.topology, kind.paths,
                                        {.nodeCount = std::min(cluster.nodeCount(), 2)}));
    const graph::HostGraphs& host = found.hosts.front();
    const bool isFirst = plan.kinds.empty();
    if (isFirst) {
      plan.graphs = found.graphs;
    } else {
      alignInto(plan.graphs, found.graphs);
    }
    plan.ringPorts.push_back(portsOf(kind, host.ring.graph));
    kindParts.push_back(graph::makePart(
        kind.topology,
        {.ring = host.ring.graph, .tree = host.tree.graph, .direct = host.direct.graph}));
    plan.kinds.push_back(host);
  }
  std::vector<graph::NodePart> parts;
  parts.reserve(static_cast<size_t>(cluster.nodeCount()));
  for (int32_t node = 0; node < cluster.nodeCount(); ++node) {
    parts.push_back(kindParts[static_cast<size_t>(cluster.kindOf(node))]);
    renumber(parts.back(), cluster.ranksOf(node));
  }
  TUTTI_TRY_ASSIGN(plan.merged, graph::merge(std::move(parts)));
  plan.graphs.rankCount = cluster.rankCount();
  plan.graphs.nodeCount = cluster.nodeCount();
  return plan;
}

FlowEnds endsOf(const Cluster& cluster, const VirtualPlan& plan, int32_t channel,
                std::pair<Rank, Rank> fromTo) {
  const auto [from, to] = fromTo;
  FlowEnds ends{.from = from, .to = to, .flow = static_cast<uint64_t>(channel)};
  if (plan.ringPorts.empty() || cluster.nodeOf(from) == cluster.nodeOf(to)) return ends;
  const auto portsAt = [&](Rank rank) -> const RingPorts& {
    const auto kind = static_cast<size_t>(cluster.kindOf(cluster.nodeOf(rank)));
    return plan.ringPorts[kind][static_cast<size_t>(cluster.localOf(rank))];
  };
  // The channel's own; where rings were joined in another order, or there are more channels than
  // rings, those of the GPU in turn.
  const int32_t rings = std::max(plan.merged.ringCount(), 1);
  const auto turn = [&](const std::vector<std::pair<int32_t, NodeId>>& ports) {
    if (ports.empty()) return topology::kNoNode;
    const auto own =
        std::ranges::find(ports, channel % rings, [](const auto& each) { return each.first; });
    return own != ports.end() ? own->second
                              : ports[static_cast<size_t>(channel) % ports.size()].second;
  };
  ends.exit = turn(portsAt(from).exits);
  ends.entry = turn(portsAt(to).entries);
  return ends;
}

}  // namespace tutti::sim
