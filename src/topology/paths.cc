// One search from each end, best first by (closeness, hops, width): closeness only grows along a
// path, so a node is settled once. Then the policy: ends that may not reach each other's memory go
// through a CPU, and a GPU far from a NIC through a GPU near it.
#include "topology/paths.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <charconv>
#include <queue>
#include <tuple>

namespace tutti::topology {
namespace {

// Closest first: the one place that knows the order.
constexpr std::array kByCloseness = {
    PathKind::kLoc, PathKind::kNvl, PathKind::kNvb, PathKind::kC2c, PathKind::kPix, PathKind::kPxb,
    PathKind::kP2c, PathKind::kPxn, PathKind::kPhb, PathKind::kSys, PathKind::kNet, PathKind::kDis};

constexpr size_t closeness(PathKind kind) {
  return static_cast<size_t>(std::ranges::find(kByCloseness, kind) - kByCloseness.begin());
}

PathKind farther(PathKind one, PathKind other) { return isCloser(one, other) ? other : one; }

bool isEnd(NodeKind kind) { return kind != NodeKind::kPci && kind != NodeKind::kNic; }

// What a path has met so far.
struct Trace {
  bool nvLink = false, c2c = false, pci = false, sys = false;
  bool throughCpu = false;  // a CPU that is neither end
  bool toCpu = false;       // an end is a CPU
  int32_t switches = 0;     // PCI switches passed
  NodeId gpu = kNoNode;     // the GPU passed

  PathKind kind() const {
    if (sys) return PathKind::kSys;
    if (throughCpu) return c2c && pci ? PathKind::kP2c : PathKind::kPhb;
    if (toCpu && pci) return PathKind::kPhb;
    if (c2c) return PathKind::kC2c;
    if (pci) return switches <= 1 ? PathKind::kPix : PathKind::kPxb;
    if (nvLink) return gpu == kNoNode ? PathKind::kNvl : PathKind::kNvb;
    return PathKind::kPix;  // two ports of one NIC
  }
};

struct Label {
  Trace trace;
  PathKind kind = PathKind::kLoc;
  int32_t hops = 0;
  double gbPerSecond = kLocalGbPerSecond;
  LinkId via = kNoLink;  // the last link
  bool isReached = false;
  bool isSettled = false;

  auto rank(NodeId self) const { return std::tuple(closeness(kind), hops, -gbPerSecond, self); }
};

class Search {
 public:
  Search(const Topology& topology, const PathPolicy& policy, NodeId source)
      : topology_(topology), policy_(policy), source_(source), labels_(topology.nodes.size()) {
    Label& first = labels_[index(source)];
    first.isReached = true;
    first.trace.toCpu = topology[source].kind == NodeKind::kCpu;
    push(source);
    while (!queue_.empty()) {
      const NodeId node = std::get<3>(queue_.top());
      queue_.pop();
      if (std::exchange(labels_[index(node)].isSettled, true)) continue;
      for (const LinkId link : topology_[node].links) relax(node, topology_[link], link);
    }
  }

  Path pathTo(NodeId target) const {
    const Label& label = labels_[index(target)];
    Path path{.from = source_, .to = target};
    if (!label.isReached) return path;
    path.kind = target == source_ ? PathKind::kLoc : label.kind;
    path.gbPerSecond = label.gbPerSecond;
    path.relay = label.trace.gpu;
    for (NodeId at = target; at != source_; at = topology_[path.hops.back()].from)
      path.hops.push_back(labels_[index(at)].via);
    std::ranges::reverse(path.hops);
    return path;
  }

 private:
  using Rank = std::tuple<size_t, int32_t, double, NodeId>;

  void push(NodeId node) { queue_.push(labels_[index(node)].rank(node)); }

  // Data passes through switches and CPUs; through a GPU only from NVLink to NVLink, once, between
  // GPUs; never through a network port.
  bool mayPass(NodeId node, const Link& onwards) const {
    if (node == source_) return true;
    switch (topology_[node].kind) {
      case NodeKind::kNet: return false;
      case NodeKind::kNic:
      case NodeKind::kPci:
      case NodeKind::kCpu: return true;
      case NodeKind::kNvSwitch: return topology_[onwards.to].kind == NodeKind::kGpu;
      case NodeKind::kGpu: break;
    }
    const Label& here = labels_[index(node)];
    return policy_.relayOverGpus && onwards.kind == LinkKind::kNvLink && here.hops == 1 &&
           here.trace.nvLink && topology_[source_].kind == NodeKind::kGpu &&
           topology_[onwards.to].kind == NodeKind::kGpu;
  }

  void relax(NodeId node, const Link& link, LinkId id) {
    if (!mayPass(node, link)) return;
    const Label& here = labels_[index(node)];
    Label next{.trace = extend(here.trace, node, link),
               .hops = here.hops + 1,
               .gbPerSecond = std::min(here.gbPerSecond, link.gbPerSecond),
               .via = id,
               .isReached = true};
    next.kind = next.trace.kind();
    Label& there = labels_[index(link.to)];
    if (there.isSettled || (there.isReached && there.rank(link.to) <= next.rank(link.to))) return;
    there = next;
    push(link.to);
  }

  Trace extend(Trace trace, NodeId node, const Link& link) const {
    if (node != source_) {
      const NodeKind kind = topology_[node].kind;
      if (kind == NodeKind::kPci) ++trace.switches;
      if (kind == NodeKind::kCpu) trace.throughCpu = true;
      if (kind == NodeKind::kGpu) trace.gpu = node;
    }
    if (link.kind == LinkKind::kNvLink) trace.nvLink = true;
    if (link.kind == LinkKind::kC2c) trace.c2c = true;
    if (link.kind == LinkKind::kPci) trace.pci = true;
    if (link.kind == LinkKind::kSys) trace.sys = true;
    trace.toCpu =
        topology_[source_].kind == NodeKind::kCpu || topology_[link.to].kind == NodeKind::kCpu;
    return trace;
  }

  const Topology& topology_;
  const PathPolicy& policy_;
  NodeId source_;
  std::vector<Label> labels_;
  std::priority_queue<Rank, std::vector<Rank>, std::greater<>> queue_;
};

Path reversed(const Topology& topology, const Path& path) {
  Path back = path;
  std::swap(back.from, back.to);
  std::ranges::reverse(back.hops);
  for (LinkId& hop : back.hops) hop = topology[hop].reverse;
  return back;
}

Path joined(const Path& first, const Path& second, PathKind atLeast) {
  Path path{.from = first.from, .to = second.to, .relay = first.to};
  path.kind = farther(atLeast, farther(first.kind, second.kind));
  path.gbPerSecond = std::min(first.gbPerSecond, second.gbPerSecond);
  path.hops = first.hops;
  path.hops.insert(path.hops.end(), second.hops.begin(), second.hops.end());
  return path;
}

bool isConnected(const Path& path) {
  return path.kind != PathKind::kDis && path.kind != PathKind::kNet;
}

// The widest port of a host; 0 when it has none.
double widestPort(const Topology& topology, int32_t host) {
  double width = 0;
  for (const NodeId port : nodesOf(topology, NodeKind::kNet, host))
    width = std::max(width, topology[port].net.gbPerSecond);
  return width;
}

struct LevelName {
  std::string_view name;
  PathKind kind;
};
constexpr std::array<LevelName, 16> kLevels = {{{"LOC", PathKind::kLoc},
                                                {"NVL", PathKind::kNvl},
                                                {"NVB", PathKind::kNvb},
                                                {"C2C", PathKind::kC2c},
                                                {"PIX", PathKind::kPix},
                                                {"PXB", PathKind::kPxb},
                                                {"P2C", PathKind::kP2c},
                                                {"PXN", PathKind::kPxn},
                                                {"PHB", PathKind::kPhb},
                                                {"SYS", PathKind::kSys},
                                                {"0", PathKind::kLoc},
                                                {"1", PathKind::kPix},
                                                {"2", PathKind::kPxb},
                                                {"3", PathKind::kPhb},
                                                {"4", PathKind::kPhb},
                                                {"5", PathKind::kSys}}};

bool equalsIgnoringCase(std::string_view text, std::string_view upper) {
  return std::ranges::equal(text, upper, [](char a, char b) {
    return (a >= 'a' && a <= 'z' ? char(a - 'a' + 'A') : a) == b;
  });
}

}  // namespace

std::string_view nameOf(PathKind kind) {
  switch (kind) {
    case PathKind::kLoc: return "LOC";
    case PathKind::kNvl: return "NVL";
    case PathKind::kNvb: return "NVB";
    case PathKind::kC2c: return "C2C";
    case PathKind::kPix: return "PIX";
    case PathKind::kPxb: return "PXB";
    case PathKind::kP2c: return "P2C";
    case PathKind::kPxn: return "PXN";
    case PathKind::kPhb: return "PHB";
    case PathKind::kSys: return "SYS";
    case PathKind::kNet: return "NET";
    case PathKind::kDis: return "DIS";
  }
  return "?";
}

bool isCloser(PathKind one, PathKind other) { return closeness(one) < closeness(other); }
bool isWithin(PathKind kind, PathKind level) { return !isCloser(level, kind); }

Result<std::optional<PathKind>> parseLevel(std::string_view setting, std::string_view text) {
  if (text.empty()) return std::optional<PathKind>();
  for (const LevelName& level : kLevels) {
    if (equalsIgnoringCase(text, level.name)) return std::optional(level.kind);
  }
  return invalidArgument(
      "{}={}: wanted one of LOC, NVL, NVB, C2C, PIX, PXB, P2C, PXN, PHB, SYS, or a number from 0 "
      "(never) to 5 (SYS)",
      setting, text);
}

const Path& Paths::between(NodeId from, NodeId to) const {
  const int32_t row = slotOf_[index(from)];
  const int32_t column = slotOf_[index(to)];
  assert(row >= 0 && column >= 0);
  const HostPaths& one = hosts_[static_cast<size_t>(hostOf_[index(from)])];
  const HostPaths& other = hosts_[static_cast<size_t>(hostOf_[index(to)])];
  if (&one != &other)
    return one.outside.gbPerSecond <= other.outside.gbPerSecond ? one.outside : other.outside;
  return one.table[static_cast<size_t>(row) * one.ends + static_cast<size_t>(column)];
}

std::vector<NodeId> Paths::nearestPorts(const Topology& topology, NodeId from) const {
  std::vector<NodeId> nearest;
  for (const NodeId port : nodesOf(topology, NodeKind::kNet, topology[from].host)) {
    const Path& path = between(from, port);
    if (!isConnected(path)) continue;
    if (!nearest.empty()) {
      const Path& best = between(from, nearest.front());
      const auto rank = [](const Path& each) {
        return std::pair(closeness(each.kind), -each.gbPerSecond);
      };
      if (rank(path) > rank(best)) continue;
      if (rank(path) < rank(best)) nearest.clear();
    }
    nearest.push_back(port);
  }
  return nearest;
}

NodeId Paths::nearestCpu(const Topology& topology, NodeId from) const {
  NodeId nearest = kNoNode;
  for (const NodeId cpu : nodesOf(topology, NodeKind::kCpu, topology[from].host)) {
    const Path& path = between(from, cpu);
    const auto rank = [](const Path& each) {
      return std::tuple(closeness(each.kind), each.hops.size(), -each.gbPerSecond);
    };
    if (isConnected(path) && (nearest == kNoNode || rank(path) < rank(between(from, nearest))))
      nearest = cpu;
  }
  return nearest;
}

bool mayAccessPeer(const Topology& topology, const PathPolicy& policy, const Path& path) {
  if (path.from == kNoNode) return false;  // between hosts
  const Node& from = topology[path.from];
  const Node& to = topology[path.to];
  if (path.kind == PathKind::kLoc) return true;
  if (!isConnected(path)) return false;
  const bool isOverPci = !isWithin(path.kind, PathKind::kC2c);
  if (isOverPci && !(from.gpu.peerOverPci && to.gpu.peerOverPci)) return false;
  if (policy.peerLevel)
    return *policy.peerLevel != PathKind::kLoc && isWithin(path.kind, *policy.peerLevel);
  const std::vector<NodeId> cpus = nodesOf(topology, NodeKind::kCpu, from.host);
  const bool isSmallAmd = nodesOf(topology, NodeKind::kGpu, from.host).size() <= 2 &&
                          !cpus.empty() && topology[cpus.front()].cpu.vendor == CpuVendor::kAmd;
  return isWithin(path.kind, isSmallAmd ? PathKind::kSys : PathKind::kPxb);
}

bool mayUseDirectNet(const Topology& topology, const PathPolicy& policy, const Path& path) {
  if (path.from == kNoNode || !isConnected(path)) return false;
  if (!topology[path.from].gpu.directNet || !topology[path.to].net.directGpu) return false;
  if (policy.directNetLevel)
    return *policy.directNetLevel != PathKind::kLoc && isWithin(path.kind, *policy.directNetLevel);
  return isWithin(path.kind, policy.directNetOverC2c ? PathKind::kP2c : PathKind::kPxb);
}

namespace {

// Turns the plain paths into those that data may take.
class PolicyPass {
 public:
  PolicyPass(const Topology& topology, const PathPolicy& policy, const Paths& plain)
      : topology_(topology), policy_(policy), plain_(plain) {}

  Path between(NodeId from, NodeId to) const {
    const NodeKind one = topology_[from].kind;
    const NodeKind other = topology_[to].kind;
    if (one == NodeKind::kGpu && other == NodeKind::kGpu) return betweenGpus(from, to);
    if (one == NodeKind::kGpu && other == NodeKind::kNet) return toPort(from, to);
    if (one == NodeKind::kNet && other == NodeKind::kGpu)
      return reversed(topology_, toPort(to, from));
    return plain_.between(from, to);
  }

 private:
  Path betweenGpus(NodeId from, NodeId to) const {
    const Path& path = plain_.between(from, to);
    if (!isConnected(path) || mayAccessPeer(topology_, policy_, path)) return path;
    return overCpu(from, to, plain_.nearestCpu(topology_, from));
  }

  Path toPort(NodeId gpu, NodeId port) const {
    const Path& path = plain_.between(gpu, port);
    if (!isConnected(path)) return path;
    const bool isDirect = mayUseDirectNet(topology_, policy_, path);
    const Path own = isDirect ? path : overCpu(gpu, port, plain_.nearestCpu(topology_, gpu));
    if (!policy_.relayToNics || isWithin(own.kind, PathKind::kPxn)) return own;
    const NodeId relay = relayTo(port, gpu);
    if (relay == kNoNode) return own;
    return joined(plain_.between(gpu, relay), plain_.between(relay, port), PathKind::kPxn);
  }

  // The GPU nearest to the port that this one reaches by NVLink and that may hand its memory to the
  // NIC.
  NodeId relayTo(NodeId port, NodeId gpu) const {
    NodeId best = kNoNode;
    const auto rank = [&](NodeId each) {
      const Path& path = plain_.between(each, port);
      return std::pair(closeness(path.kind), -path.gbPerSecond);
    };
    for (const NodeId each : nodesOf(topology_, NodeKind::kGpu, topology_[gpu].host)) {
      if (each == gpu) continue;
      const Path& nvLink = plain_.between(gpu, each);
      if (nvLink.kind != PathKind::kNvl || !mayAccessPeer(topology_, policy_, nvLink)) continue;
      const Path& onwards = plain_.between(each, port);
      const PathKind limit = policy_.relayToNicsOverC2c ? PathKind::kP2c : PathKind::kPxb;
      if (!isWithin(onwards.kind, limit) || !mayUseDirectNet(topology_, policy_, onwards)) continue;
      if (best == kNoNode || rank(each) < rank(best)) best = each;
    }
    return best;
  }

  Path overCpu(NodeId from, NodeId to, NodeId cpu) const {
    if (cpu == kNoNode) return {.from = from, .to = to};
    return joined(plain_.between(from, cpu), plain_.between(cpu, to), PathKind::kPhb);
  }

  const Topology& topology_;
  const PathPolicy& policy_;
  const Paths& plain_;
};

}  // namespace

Paths computePaths(const Topology& topology, const PathPolicy& policy) {
  Paths allowed;
  std::vector<std::vector<NodeId>> endsOf(topology.hosts.size());
  allowed.hosts_.resize(topology.hosts.size());
  for (size_t i = 0; i < topology.nodes.size(); ++i) {
    const Node& node = topology.nodes[i];
    std::vector<NodeId>& ends = endsOf[static_cast<size_t>(node.host)];
    allowed.hostOf_.push_back(node.host);
    allowed.slotOf_.push_back(isEnd(node.kind) ? static_cast<int32_t>(ends.size()) : -1);
    if (isEnd(node.kind)) ends.push_back(NodeId(static_cast<int32_t>(i)));
  }
  Paths plain = allowed;  // of one host at a time
  const PolicyPass pass(topology, policy, plain);
  for (size_t host = 0; host < endsOf.size(); ++host) {
    const std::vector<NodeId>& ends = endsOf[host];
    for (Paths* paths : {&plain, &allowed}) {
      paths->hosts_[host].ends = ends.size();
      paths->hosts_[host].table.resize(ends.size() * ends.size());
    }
    const auto number = static_cast<int32_t>(host);
    const auto set = [&](Paths& paths, size_t i, size_t j, Path path) {
      if (i != j) paths.at(number, j, i) = reversed(topology, path);
      paths.at(number, i, j) = std::move(path);
    };
    for (size_t i = 0; i < ends.size(); ++i) {
      const Search search(topology, policy, ends[i]);
      // One direction is searched and the other is its mirror, so that both take the same way.
      for (size_t j = i; j < ends.size(); ++j) set(plain, i, j, search.pathTo(ends[j]));
    }
    for (size_t i = 0; i < ends.size(); ++i) {
      for (size_t j = i; j < ends.size(); ++j) set(allowed, i, j, pass.between(ends[i], ends[j]));
    }
    plain.hosts_[host] = {};
    Path& outside = allowed.hosts_[host].outside;
    outside.gbPerSecond = widestPort(topology, number);
    if (outside.gbPerSecond > 0) outside.kind = PathKind::kNet;
  }
  return allowed;
}

}  // namespace tutti::topology
