#include "sim/cluster.h"

#include <algorithm>

namespace tutti::sim {

using topology::kNoNode;
using topology::NodeId;
using topology::PathKind;

namespace {

double factorOf(const std::vector<std::pair<int32_t, double>>& factors, int32_t number) {
  const auto found =
      std::ranges::lower_bound(factors, number, {}, [](const auto& each) { return each.first; });
  return found != factors.end() && found->first == number ? found->second : 1;
}

void setFactor(std::vector<std::pair<int32_t, double>>& factors, int32_t number, double factor) {
  std::erase_if(factors, [&](const auto& each) { return each.first == number; });
  factors.emplace_back(number, factor);
  std::ranges::sort(factors);
}

}  // namespace

Result<NodeKind> makeNodeKind(const topology::Description& description, std::string name,
                              int32_t gpuCount) {
  NodeKind kind;
  kind.name = std::move(name);
  TUTTI_TRY_ASSIGN(kind.topology, topology::buildTopology(description));
  if (kind.topology.hosts.size() != 1)
    return invalidArgument("{}: it holds {} hosts; a kind of node is one", kind.name,
                           kind.topology.hosts.size());
  kind.gpus = nodesOf(kind.topology, topology::NodeKind::kGpu);
  if (gpuCount > 0 && static_cast<size_t>(gpuCount) < kind.gpus.size()) {
    std::vector<int32_t> kept;
    for (int32_t i = 0; i < static_cast<int32_t>(kind.gpus.size()); ++i) {
      kind.topology.nodes[topology::index(kind.gpus[static_cast<size_t>(i)])].gpu.rank = i;
      if (i < gpuCount) kept.push_back(i);
    }
    kind.topology = topology::trim(kind.topology, kept);
  }
  kind.describe();
  return kind;
}

void NodeKind::describe() {
  gpus = nodesOf(topology, topology::NodeKind::kGpu);
  ports = nodesOf(topology, topology::NodeKind::kNet);
  cpus = nodesOf(topology, topology::NodeKind::kCpu);
  int32_t rank = 0;
  for (const NodeId gpu : gpus) topology.nodes[topology::index(gpu)].gpu.rank = rank++;
  paths = topology::computePaths(topology);
  nearestPorts.clear();
  for (const NodeId gpu : gpus) nearestPorts.push_back(paths.nearestPorts(topology, gpu));
}

Result<Cluster> Cluster::make(Parts parts) {
  Cluster cluster;
  cluster.name_ = std::move(parts.name);
  cluster.kinds_ = std::move(parts.kinds);
  std::vector<NetworkPort> ports;
  for (const NodeGroup& group : parts.groups) {
    const NodeKind& kind = cluster.kinds_[static_cast<size_t>(group.kind)];
    for (int32_t i = 0; i < group.count; ++i) {
      const auto node = static_cast<int32_t>(cluster.nodes_.size());
      cluster.nodes_.push_back({.number = node,
                                .kind = group.kind,
                                .firstLink = cluster.networkBase_,
                                .firstPort = static_cast<int32_t>(ports.size()),
                                .ranks = std::vector<Rank>(static_cast<size_t>(kind.rankCount()))});
      cluster.networkBase_ += kind.linkCount();
      for (size_t port = 0; port < kind.ports.size(); ++port) {
        const auto& facts = kind.topology[kind.ports[port]].net;
        ports.push_back({.node = node,
                         .rail = facts.rail >= 0 ? facts.rail : static_cast<int32_t>(port),
                         .gbPerSecond = facts.gbPerSecond});
      }
    }
  }
  for (const NodeKind& kind : cluster.kinds_) {
    if (kind.rankCount() == 0)
      return invalidArgument("cluster {}: {} has no GPU and no cpu_ranks", cluster.name_,
                             kind.name);
    if (kind.gpus.empty() == cluster.hasGpus())
      return invalidArgument("cluster {}: {} has CPU ranks and others have GPUs, or the reverse",
                             cluster.name_, kind.name);
    if (kind.ports.empty() && cluster.nodeCount() > 1)
      return invalidArgument("cluster {}: {} has no network port, so it cannot be one of {} nodes",
                             cluster.name_, kind.name, cluster.nodeCount());
  }
  cluster.network_ = Network(parts.network, std::move(ports));
  cluster.placeRanks(parts.placement);
  return cluster;
}

void Cluster::placeRanks(Placement placement) {
  const auto most = static_cast<size_t>(mostRanksPerNode());
  const auto add = [&](size_t node, size_t local) {
    if (local >= nodes_[node].ranks.size()) return;
    nodes_[node].ranks[local] = Rank{rankCount()};
    placeOf_.push_back({static_cast<int32_t>(node), static_cast<int32_t>(local)});
  };
  if (placement == Placement::kBlock) {
    for (size_t node = 0; node < nodes_.size(); ++node) {
      for (size_t local = 0; local < most; ++local) add(node, local);
    }
    return;
  }
  for (size_t local = 0; local < most; ++local) {
    for (size_t node = 0; node < nodes_.size(); ++node) add(node, local);
  }
}

int32_t Cluster::mostRanksPerNode() const {
  size_t most = 0;
  for (const NodePlace& node : nodes_) most = std::max(most, node.ranks.size());
  return static_cast<int32_t>(most);
}

double Cluster::gbPerSecond(int32_t link) const {
  if (isNetworkLink(link)) return network_.gbPerSecond(link - networkBase_);
  const auto after = std::ranges::upper_bound(nodes_, link, {}, &NodePlace::firstLink);
  const NodePlace& node = *std::prev(after);
  const NodeKind& kind = kinds_[static_cast<size_t>(node.kind)];
  const auto local = static_cast<size_t>(link - node.firstLink);
  const double full = local < kind.topology.links.size() ? kind.topology.links[local].gbPerSecond
                                                         : kind.memoryGbPerSecond;
  return scaled_.empty() ? full : full * factorOf(scaled_, link);
}

std::string Cluster::nameOfLink(int32_t link) const {
  if (isNetworkLink(link)) return network_.nameOf(link - networkBase_);
  const auto after = std::ranges::upper_bound(nodes_, link, {}, &NodePlace::firstLink);
  const NodePlace& node = *std::prev(after);
  const int32_t number = node.number;
  const topology::Topology& topology = kinds_[static_cast<size_t>(node.kind)].topology;
  const auto local = static_cast<size_t>(link - node.firstLink);
  if (local >= topology.links.size()) return fmt::format("node {}: memory", number);
  const topology::Link& it = topology.links[local];
  return fmt::format("node {}: {} -> {}", number, topology[it.from].name, topology[it.to].name);
}

Status Cluster::scaleLink(const std::string& name, double factor) {
  std::string near;
  int32_t nearCount = 0;
  constexpr int32_t kMostNear = 4;
  for (int32_t link = 0; link < linkCount(); ++link) {
    const std::string each = nameOfLink(link);
    if (each == name) {
      if (isNetworkLink(link)) {
        network_.setGbPerSecond(link - networkBase_, gbPerSecond(link) * factor);
      } else {
        setFactor(scaled_, link, factor);
      }
      return {};
    }
    const bool isNear = each.find(name) != std::string::npos ||
                        each.substr(0, each.find("->")) == name.substr(0, name.find("->"));
    if (isNear && nearCount++ < kMostNear) near += fmt::format(" \"{}\"", each);
  }
  return invalidArgument("cluster {}: no link is called \"{}\"; {}{}", name_, name,
                         near.empty() ? "the first is " : "near to it are",
                         near.empty() ? nameOfLink(0) : near);
}

Status Cluster::slowRank(int32_t rank, double factor) {
  if (rank < 0 || rank >= rankCount())
    return invalidArgument("cluster {}: no rank {}; ranks are 0 to {}", name_, rank,
                           rankCount() - 1);
  setFactor(slowed_, rank, factor);
  return {};
}

double Cluster::speedOf(Rank rank) const {
  return slowed_.empty() ? 1 : factorOf(slowed_, index(rank));
}

NodeId Cluster::endOf(Rank rank) const {
  const NodeKind& kind = kindAt(nodeOf(rank));
  const auto local = static_cast<size_t>(localOf(rank));
  if (!kind.gpus.empty()) return kind.gpus[local];
  return kind.cpus[local * kind.cpus.size() / static_cast<size_t>(kind.cpuRankCount)];
}

void Cluster::addPath(int32_t node, const topology::Path& path, FlowRoute& route) const {
  const int32_t first = nodes_[static_cast<size_t>(node)].firstLink;
  for (const topology::LinkId hop : path.hops)
    route.links.push_back(first + static_cast<int32_t>(topology::index(hop)));
}

int32_t Cluster::portNumber(int32_t node, NodeId port) const {
  const auto& ports = kindAt(node).ports;
  return nodes_[static_cast<size_t>(node)].firstPort +
         static_cast<int32_t>(std::ranges::find(ports, port) - ports.begin());
}

// Of the ports that are nearest, those that work; where none does, any that works.
Result<NodeId> Cluster::portFor(Rank rank, uint64_t flow, bool isOut) const {
  const int32_t node = nodeOf(rank);
  const NodeKind& kind = kindAt(node);
  const NodeId end = endOf(rank);
  const auto works = [&](NodeId port) {
    const int32_t number = portNumber(node, port);
    const int32_t link = isOut ? network_.upLink(number) : network_.downLink(number);
    return network_.gbPerSecond(link) > 0 && kind.paths.between(end, port).kind != PathKind::kDis;
  };
  const std::vector<NodeId>& nearest =
      kind.gpus.empty() ? kind.ports : kind.nearestPorts[static_cast<size_t>(localOf(rank))];
  const uint64_t turn = flow + (kind.gpus.empty() ? static_cast<uint64_t>(localOf(rank)) : 0);
  for (const std::vector<NodeId>* ports : {&nearest, &kind.ports}) {
    for (size_t i = 0; i < ports->size(); ++i) {
      const NodeId port = (*ports)[(turn + i) % ports->size()];
      if (works(port)) return port;
    }
  }
  return invalidArgument("cluster {}: rank {} has no network port that works", name_, index(rank));
}

Status Cluster::routeInside(const FlowEnds& ends, FlowRoute& route) const {
  const int32_t node = nodeOf(ends.from);
  const NodeKind& kind = kindAt(node);
  if (kind.gpus.empty()) {
    route.kind = PathKind::kSys;
    route.links.push_back(nodes_[static_cast<size_t>(node)].firstLink +
                          static_cast<int32_t>(kind.topology.links.size()));
  } else {
    const topology::Path& path = kind.paths.between(endOf(ends.from), endOf(ends.to));
    route.kind = path.kind;
    addPath(node, path, route);
  }
  for (const int32_t link : route.links) {
    if (gbPerSecond(link) <= 0)
      return invalidArgument("cluster {}: {} has failed, and rank {} reaches rank {} by it only",
                             name_, nameOfLink(link), index(ends.from), index(ends.to));
  }
  return {};
}

Result<FlowRoute> Cluster::route(const FlowEnds& ends) const {
  FlowRoute route;
  const int32_t from = nodeOf(ends.from), to = nodeOf(ends.to);
  if (from == to) {
    TUTTI_TRY(routeInside(ends, route));
    return route;
  }
  NodeId exit = ends.exit, entry = ends.entry;
  const auto isDead = [&](int32_t node, NodeId port, bool isOut) {
    const int32_t number = portNumber(node, port);
    return network_.gbPerSecond(isOut ? network_.upLink(number) : network_.downLink(number)) <= 0;
  };
  if (exit == kNoNode || isDead(from, exit, true)) {
    TUTTI_TRY_ASSIGN(exit, portFor(ends.from, ends.flow, true));
  }
  if (entry == kNoNode || isDead(to, entry, false)) {
    TUTTI_TRY_ASSIGN(entry, portFor(ends.to, ends.flow, false));
  }
  const NodeKind& fromKind = kindAt(from);
  const NodeKind& toKind = kindAt(to);
  route.kind = PathKind::kNet;
  addPath(from, fromKind.paths.between(endOf(ends.from), exit), route);
  std::vector<int32_t> between;
  TUTTI_TRY(network_.route(
      {.from = portNumber(from, exit), .to = portNumber(to, entry), .flow = ends.flow}, between));
  for (const int32_t link : between) route.links.push_back(networkBase_ + link);
  route.switchCount = static_cast<int32_t>(between.size()) - 1;
  addPath(to, toKind.paths.between(entry, endOf(ends.to)), route);
  route.portLatencyUs =
      fromKind.topology[exit].net.latencyUs + toKind.topology[entry].net.latencyUs;
  return route;
}

}  // namespace tutti::sim
