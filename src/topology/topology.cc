// From the description to the graph's questions that need no path. build.cc makes the graph.
#include "topology/topology.h"

#include <algorithm>

#include "topology/keep_gpus.h"

namespace tutti::topology {
namespace {

// A copy with the nodes that `keep` marks, renumbered, and the links between them.
Topology subset(const Topology& topology, const std::vector<bool>& keep) {
  Topology result;
  result.hosts = topology.hosts;
  result.assumptions = topology.assumptions;
  std::vector<NodeId> renamed(topology.nodes.size(), kNoNode);
  for (size_t i = 0; i < topology.nodes.size(); ++i) {
    if (!keep[i]) continue;
    renamed[i] = NodeId(static_cast<int32_t>(result.nodes.size()));
    result.nodes.push_back(topology.nodes[i]);
    result.nodes.back().links.clear();
  }
  std::vector<LinkId> renamedLinks(topology.links.size(), kNoLink);
  for (size_t i = 0; i < topology.links.size(); ++i) {
    Link link = topology.links[i];
    link.from = renamed[index(link.from)];
    link.to = renamed[index(link.to)];
    if (link.from == kNoNode || link.to == kNoNode) continue;
    renamedLinks[i] = LinkId(static_cast<int32_t>(result.links.size()));
    result.nodes[index(link.from)].links.push_back(renamedLinks[i]);
    result.links.push_back(link);
  }
  for (Link& link : result.links) link.reverse = renamedLinks[index(link.reverse)];
  for (Node& node : result.nodes)
    node.parent = node.parent == kNoNode ? kNoNode : renamed[index(node.parent)];
  return result;
}

bool isNetwork(NodeKind kind) { return kind == NodeKind::kNic || kind == NodeKind::kNet; }

}  // namespace

std::vector<NodeId> nodesOf(const Topology& topology, NodeKind kind, int32_t host) {
  std::vector<NodeId> found;
  for (size_t i = 0; i < topology.nodes.size(); ++i) {
    const Node& node = topology.nodes[i];
    if (node.kind == kind && (host == kAllHosts || node.host == host))
      found.push_back(NodeId(static_cast<int32_t>(i)));
  }
  return found;
}

NodeId findGpuByRank(const Topology& topology, int32_t rank) {
  for (const NodeId gpu : nodesOf(topology, NodeKind::kGpu)) {
    if (topology[gpu].gpu.rank == rank) return gpu;
  }
  return kNoNode;
}

NodeId findByBusId(const Topology& topology, std::string_view busId, int32_t host) {
  const auto found = std::ranges::find_if(
      topology.nodes, [&](const Node& node) { return node.host == host && node.busId == busId; });
  if (found == topology.nodes.end()) return kNoNode;
  return NodeId(static_cast<int32_t>(found - topology.nodes.begin()));
}

LinkId findLink(const Topology& topology, NodeId from, NodeId to) {
  for (const LinkId link : topology[from].links) {
    if (topology[link].to == to) return link;
  }
  return kNoLink;
}

std::vector<LinkId> linksDown(const Topology& topology, NodeId node) {
  std::vector<LinkId> found;
  for (const LinkId link : topology[node].links) {
    const LinkKind kind = topology[link].kind;
    const bool isTree = kind == LinkKind::kPci || kind == LinkKind::kNet;
    if (isTree && topology[topology[link].to].parent == node) found.push_back(link);
  }
  std::ranges::stable_sort(found, {}, [&](LinkId link) {
    const Node& child = topology[topology[link].to];
    return std::pair(child.busId.empty(), std::string_view(child.busId));
  });
  return found;
}

Topology trim(const Topology& topology, const std::vector<int32_t>& ranks) {
  std::vector<bool> isUsedHost(topology.hosts.size(), ranks.empty());
  std::vector<bool> keep(topology.nodes.size(), true);
  for (size_t i = 0; i < topology.nodes.size(); ++i) {
    const Node& node = topology.nodes[i];
    if (node.kind != NodeKind::kGpu || ranks.empty()) continue;
    keep[i] = std::ranges::find(ranks, node.gpu.rank) != ranks.end();
    if (keep[i]) isUsedHost[static_cast<size_t>(node.host)] = true;
  }
  const bool isOneHost = std::ranges::count(isUsedHost, true) == 1;
  for (size_t i = 0; i < topology.nodes.size(); ++i) {
    const Node& node = topology.nodes[i];
    if (!isUsedHost[static_cast<size_t>(node.host)]) keep[i] = false;
    if (isOneHost && isNetwork(node.kind)) keep[i] = false;
  }
  return subset(topology, keep);
}

Topology keepGpus(const Topology& topology, const std::vector<int32_t>& ranks) {
  std::vector<bool> keep;
  for (const Node& node : topology.nodes)
    keep.push_back(node.kind != NodeKind::kGpu ||
                   std::ranges::find(ranks, node.gpu.rank) != ranks.end());
  return subset(topology, keep);
}

std::string_view nameOf(NodeKind kind) {
  switch (kind) {
    case NodeKind::kCpu: return "CPU";
    case NodeKind::kPci: return "PCI";
    case NodeKind::kGpu: return "GPU";
    case NodeKind::kNvSwitch: return "NVSwitch";
    case NodeKind::kNic: return "NIC";
    case NodeKind::kNet: return "NET";
  }
  return "?";
}

std::string_view nameOf(LinkKind kind) {
  switch (kind) {
    case LinkKind::kNvLink: return "NVLink";
    case LinkKind::kC2c: return "C2C";
    case LinkKind::kPci: return "PCI";
    case LinkKind::kSys: return "SYS";
    case LinkKind::kNet: return "NET";
  }
  return "?";
}

}  // namespace tutti::topology
