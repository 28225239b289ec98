// buildTopology(): from the tree of a description to the graph. What the description leaves open is
// assumed, and said; what contradicts itself is refused with its place.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "topology/bandwidths.h"
#include "topology/topology.h"

namespace tutti::topology {
namespace {

constexpr uint32_t kClassMask = 0xffff00;      // the last byte is the programming interface
constexpr uint32_t kAccelerator3d = 0x030200;  // a GPU without a display
constexpr uint32_t kAcceleratorOther = 0x120000;
constexpr uint32_t kDisplay = 0x030000;  // a GPU with one
// Each two of these are joined, or have a path: what is more is no machine but a mistake, and would
// take memory with the square of it.
constexpr size_t kMaxCpusOfHost = 256;
constexpr int32_t kMaxEnds = 2048;  // CPUs, GPUs and ports
// Paths take memory by the square of a host's ends: eight such hosts take 50 MB.
constexpr int32_t kMaxEndsOfHost = 288;
constexpr size_t kMaxPciPeers = 64;           // of one switch
constexpr double kVirtualGbPerSecond = 5000;  // a network device inside the kernel: its port is
                                              // what limits

bool isAccelerator(uint32_t deviceClass) {
  return (deviceClass & kClassMask) == kAccelerator3d ||
         (deviceClass & kClassMask) == kAcceleratorOther;
}

class Builder {
 public:
  explicit Builder(const Description& description) : description_(description) {}

  Result<Topology> build() {
    if (description_.cpus.empty()) return fault({}, "it describes no CPU");
    for (const CpuNode& cpu : description_.cpus) TUTTI_TRY(addCpu(cpu));
    connectCpus();
    TUTTI_TRY(connectGpus());
    TUTTI_TRY(connectPciPeers());
    TUTTI_TRY(checkSkeleton());
    order();
    tellAssumptions();
    return std::move(topology_);
  }

 private:
  struct CpuEntry {
    NodeId node;
    const CpuNode* cpu;
  };
  struct GpuEntry {
    NodeId node;
    NodeId cpu;
    const Gpu* gpu;
  };
  struct PeerEntry {
    NodeId node;
    std::string target;
    Position position;
  };

  Status fault(Position position, std::string_view what) const {
    if (position.line == 0)
      return invalidArgument("topology from {}: {}", description_.source, what);
    return invalidArgument("{}:{}:{}: {}", description_.source, position.line, position.column,
                           what);
  }

  NodeId addNode(Node node) {
    const auto id = NodeId(static_cast<int32_t>(topology_.nodes.size()));
    ++counts_[{node.host, node.kind}];
    if (!node.busId.empty()) byBusId_.emplace(std::pair(node.host, node.busId), id);
    topology_.nodes.push_back(std::move(node));
    return id;
  }

  // With a link to what it hangs below.
  void hang(NodeId self, NodeId parent, const Link& link) {
    topology_.nodes[index(self)].parent = parent;
    connect(self, parent, link);
  }

  void connect(NodeId one, NodeId other, const Link& link) {
    const auto there = LinkId(static_cast<int32_t>(topology_.links.size()));
    const auto back = LinkId(static_cast<int32_t>(topology_.links.size()) + 1);
    Link forward = link;
    forward.from = one, forward.to = other, forward.reverse = back;
    Link backward = link;
    backward.from = other, backward.to = one, backward.reverse = there;
    topology_.links.push_back(forward);
    topology_.links.push_back(backward);
    topology_.nodes[index(one)].links.push_back(there);
    topology_.nodes[index(other)].links.push_back(back);
  }

  int32_t hostOf(uint64_t hash) {
    const auto [host, isNew] = hosts_.try_emplace(hash, static_cast<int32_t>(hosts_.size()));
    if (isNew) topology_.hosts.push_back(Host{hash});
    return host->second;
  }

  int32_t countOf(NodeKind kind) const {
    const auto found = counts_.find({host_, kind});
    return found == counts_.end() ? 0 : found->second;
  }

  Status countEnd(Position position) {
    if (++ends_ > kMaxEnds)
      return fault(position, fmt::format("more than {} CPUs, GPUs and network ports", kMaxEnds));
    if (++endsOf_[host_] > kMaxEndsOfHost)
      return fault(position, fmt::format("more than {} CPUs, GPUs and network ports on one host",
                                         kMaxEndsOfHost));
    return {};
  }

  Status addCpu(const CpuNode& cpu) {
    host_ = hostOf(cpu.hostHash);
    const int32_t number = std::max(cpu.numaId, 0);
    if (cpu.numaId < 0) unknownNuma_ = true;
    TUTTI_TRY(countEnd(cpu.position));
    if (static_cast<size_t>(countOf(NodeKind::kCpu)) >= kMaxCpusOfHost)
      return fault(cpu.position, fmt::format("more than {} CPUs on one host", kMaxCpusOfHost));
    const auto [other, isNew] = numaNodes_.emplace(std::pair(host_, number), cpu.position);
    if (!isNew)
      return fault(
          cpu.position,
          fmt::format("there are two CPUs with numaid {} on one host; the other is in line {}",
                      cpu.numaId, other->second.line));
    Node node{.kind = NodeKind::kCpu,
              .host = host_,
              .number = number,
              .name = fmt::format("CPU {}", number)};
    node.cpu = {cpu.arch, cpu.vendor, cpu.family, cpu.model, cpu.affinity};
    cpu_ = addNode(std::move(node));
    cpus_.push_back({cpu_, &cpu});
    for (const Nic& nic : cpu.nics)
      TUTTI_TRY(
          addNic(nic, "", cpu_, {.kind = LinkKind::kPci, .gbPerSecond = kVirtualGbPerSecond}));
    for (const PciDevice& device : cpu.devices) TUTTI_TRY(addDevice(device, cpu_));
    return {};
  }

  Link pciLink(const PciDevice& device) {
    Link link{.kind = LinkKind::kPci};
    const std::optional<double> lane = pciLaneGbPerSecond(device.linkSpeed);
    if (!lane) unknownSpeed_.push_back(device.busId);
    link.lanes = device.linkWidth > 0 ? device.linkWidth : kAssumedPciLanes;
    if (device.linkWidth <= 0) unknownWidth_.push_back(device.busId);
    link.gbPerSecond = lane.value_or(kAssumedPciLaneGbPerSecond) * link.lanes;
    return link;
  }

  Status addDevice(const PciDevice& device, NodeId parent) {
    const auto [other, isNew] = busIds_.emplace(std::pair(host_, device.busId), device.position);
    if (!isNew)
      return fault(device.position, fmt::format("bus id {} is there twice; the other is in line {}",
                                                device.busId, other->second.line));
    if (device.gpu) return addGpu(*device.gpu, device, parent);
    if (!device.nics.empty()) {
      const Link link = pciLink(device);
      for (const Nic& nic : device.nics) TUTTI_TRY(addNic(nic, device.busId, parent, link));
      // A bridge that is a NIC at the same time has devices behind it all the same.
      for (const PciDevice& child : device.children) TUTTI_TRY(addDevice(child, parent));
      return {};
    }
    if (device.children.empty() && device.peers.empty()) {
      const bool isBare = isAccelerator(device.deviceClass);
      if (isBare && bareAccelerators_.empty()) firstBare_ = device.position;
      (isBare ? bareAccelerators_ : bareDevices_).push_back(device.busId);
      return {};
    }
    const NodeId self = addNode({.kind = NodeKind::kPci,
                                 .host = host_,
                                 .number = countOf(NodeKind::kPci),
                                 .busId = device.busId,
                                 .name = "PCI " + device.busId});
    hang(self, parent, pciLink(device));
    if (device.peers.size() > kMaxPciPeers)
      return fault(device.position, fmt::format("more than {} PCI fabric links", kMaxPciPeers));
    for (const std::string& peer : device.peers) peers_.push_back({self, peer, device.position});
    for (const PciDevice& child : device.children) TUTTI_TRY(addDevice(child, self));
    return {};
  }

  Status addGpu(const Gpu& gpu, const PciDevice& device, NodeId parent) {
    TUTTI_TRY(countEnd(gpu.position));
    if (gpu.rank >= 0) {
      const auto [other, isNew] = ranks_.emplace(gpu.rank, gpu.position);
      if (!isNew)
        return fault(gpu.position, fmt::format("two GPUs have rank {}; the other is in line {}",
                                               gpu.rank, other->second.line));
    }
    Node node{.kind = NodeKind::kGpu,
              .host = host_,
              .number = gpu.device,
              .busId = device.busId,
              .name = fmt::format("GPU {}", gpu.device)};
    // GeForce boards have a display and neither GPUDirect RDMA nor peer access over PCI.
    const bool isGeForce = !gpu.peerOverPci && (device.deviceClass & kClassMask) == kDisplay &&
                           !gpu.directNet && gpu.smVersion > 0;
    if (isGeForce) noPeer_.push_back(device.busId);
    node.gpu = {.rank = gpu.rank,
                .smVersion = gpu.smVersion,
                .directNet = gpu.directNet,
                .peerOverPci = gpu.peerOverPci.value_or(!isGeForce)};
    const NodeId self = addNode(std::move(node));
    hang(self, parent, pciLink(device));
    gpus_.push_back({self, cpu_, &gpu});
    for (const PciDevice& child : device.children) TUTTI_TRY(addDevice(child, parent));
    return {};
  }

  Status addNic(const Nic& nic, const std::string& busId, NodeId parent, const Link& link) {
    if (nic.ports.empty()) return fault(nic.position, "a NIC has no port (<net>)");
    const NodeId self = addNode({.kind = NodeKind::kNic,
                                 .host = host_,
                                 .number = countOf(NodeKind::kNic),
                                 .busId = busId,
                                 .name = "NIC " + nic.ports.front().name});
    hang(self, parent, link);
    for (const NetPort& port : nic.ports) {
      TUTTI_TRY(countEnd(port.position));
      const auto [other, isNew] = ports_.emplace(std::pair(host_, port.device), port.name);
      if (!isNew)
        return fault(port.position, fmt::format("two ports have number (dev) {}: {} and {}",
                                                port.device, other->second, port.name));
      if (port.speedMbps <= 0) unknownPort_.push_back(port.name);
      const double mbps =
          port.speedMbps > 0 ? static_cast<double>(port.speedMbps) : kAssumedPortMbps;
      Node node{.kind = NodeKind::kNet,
                .host = host_,
                .number = port.device,
                .name = port.name.empty() ? fmt::format("NET {}", port.device) : port.name};
      node.net = {.device = port.name,
                  .gbPerSecond = mbps / 8000,
                  .latencyUs = port.latencyUs,
                  .port = port.port,
                  .guid = port.guid,
                  .directGpu = port.directGpu,
                  .inNetworkReduction = port.inNetworkReduction,
                  .rail = port.rail,
                  .maxConnections = port.maxConnections};
      hang(addNode(std::move(node)), self, {.kind = LinkKind::kNet, .gbPerSecond = mbps / 8000});
    }
    return {};
  }

  void connectCpus() {
    for (size_t i = 0; i < cpus_.size(); ++i) {
      for (size_t j = i + 1; j < cpus_.size(); ++j) {
        if (topology_[cpus_[i].node].host != topology_[cpus_[j].node].host) continue;
        const double width =
            std::min(interSocketGbPerSecond(*cpus_[i].cpu), interSocketGbPerSecond(*cpus_[j].cpu));
        connect(cpus_[i].node, cpus_[j].node, {.kind = LinkKind::kSys, .gbPerSecond = width});
      }
    }
  }

  Status connectGpus() {
    for (const GpuEntry& entry : gpus_) {
      host_ = topology_[entry.node].host;
      if (entry.gpu->c2c) {
        const C2cBundle& bundle = *entry.gpu->c2c;
        if (bundle.mbPerSecond <= 0)
          return fault(bundle.position, "a C2C link has no bandwidth (bw)");
        connect(entry.node, entry.cpu,
                {.kind = LinkKind::kC2c,
                 .gbPerSecond = bundle.count * bundle.mbPerSecond / 1000,
                 .lanes = bundle.count});
      }
      TUTTI_TRY(connectNvLinks(entry));
    }
    return {};
  }

  Status connectNvLinks(const GpuEntry& entry) {
    std::map<NodeId, std::pair<int32_t, Position>> counts;  // links by what they lead to
    double each = nvLinkGbPerSecond(entry.gpu->smVersion);
    for (const NvLinkBundle& bundle : entry.gpu->nvLinks) {
      if (bundle.isXgmi) each = xgmiGbPerSecond(entry.gpu->amdName);
      TUTTI_TRY_ASSIGN(const NodeId target, targetOf(entry, bundle));
      auto& [count, position] = counts[target];
      count += bundle.count;
      position = bundle.position;
    }
    for (const auto& [target, bundle] : counts) {
      const auto& [count, position] = bundle;
      const LinkId known = findNvLink(entry.node, target);
      if (known == kNoLink) {
        connect(entry.node, target,
                {.kind = LinkKind::kNvLink, .gbPerSecond = each * count, .lanes = count});
      } else if (topology_[known].lanes != count) {
        return fault(position, fmt::format("{} has {} NVLinks to {}, which has {} back",
                                           topology_[entry.node].name, count,
                                           topology_[target].name, topology_[known].lanes));
      } else {
        // Unequal GPUs: the slower end decides.
        for (const LinkId link : {known, topology_[known].reverse}) {
          double& width = topology_.links[index(link)].gbPerSecond;
          width = std::min(width, each * count);
        }
      }
    }
    return {};
  }

  LinkId findNvLink(NodeId from, NodeId to) const {
    for (const LinkId link : topology_[from].links) {
      if (topology_[link].to == to && topology_[link].kind == LinkKind::kNvLink) return link;
    }
    return kNoLink;
  }

  NodeId placeOf(const std::string& busId, int32_t host) const {
    const auto found = byBusId_.find({host, busId});
    return found == byBusId_.end() ? kNoNode : found->second;
  }

  Result<NodeId> targetOf(const GpuEntry& entry, const NvLinkBundle& bundle) {
    switch (bundle.target) {
      case NvLinkTarget::kCpu: return NodeId(entry.cpu);
      case NvLinkTarget::kSwitch: {
        topology_.nodes[index(entry.node)].gpu.hasSwitch = true;
        const auto [known, isNew] = nvSwitches_.try_emplace(host_, kNoNode);
        if (isNew)
          known->second = addNode({.kind = NodeKind::kNvSwitch, .host = host_, .name = "NVSwitch"});
        return NodeId(known->second);
      }
      case NvLinkTarget::kGpu: break;
    }
    const NodeId target = placeOf(bundle.targetBusId, host_);
    if (target == kNoNode || topology_[target].kind != NodeKind::kGpu)
      return fault(bundle.position, fmt::format("an NVLink leads to {}, where no GPU is described",
                                                bundle.targetBusId));
    if (target == entry.node)
      return fault(bundle.position,
                   fmt::format("an NVLink leads from {} to itself", bundle.targetBusId));
    return NodeId(target);
  }

  Status connectPciPeers() {
    for (const PeerEntry& peer : peers_) {
      const NodeId target = placeOf(peer.target, topology_[peer.node].host);
      if (target == kNoNode || topology_[target].kind != NodeKind::kPci || target == peer.node)
        return fault(
            peer.position,
            fmt::format("a PCI fabric link leads to {}, which is no other switch", peer.target));
      if (findLink(topology_, peer.node, target) != kNoLink) continue;
      const double width = std::min(uplinkOf(peer.node), uplinkOf(target));
      connect(peer.node, target, {.kind = LinkKind::kPci, .gbPerSecond = width});
    }
    return {};
  }

  // A switch's first link is the one upwards.
  double uplinkOf(NodeId node) const {
    return topology_[topology_[node].links.front()].gbPerSecond;
  }

  // GPUs that are only PCI devices say neither what they are nor how they are joined: nothing can
  // be planned.
  Status checkSkeleton() const {
    if (bareAccelerators_.empty() || !gpus_.empty()) return {};
    return fault(firstBare_,
                 fmt::format("{} PCI devices look like GPUs ({}) and none is described (<gpu>): "
                             "this is the skeleton of a machine; complete it with a node profile "
                             "(tutti topo --profile)",
                             bareAccelerators_.size(), listed(bareAccelerators_)));
  }

  // By host, kind and number, so that the order of the file does not matter where numbers tell
  // nodes apart.
  void order() {
    std::vector<size_t> sorted(topology_.nodes.size());
    for (size_t i = 0; i < sorted.size(); ++i) sorted[i] = i;
    std::ranges::stable_sort(sorted, {}, [&](size_t i) {
      const Node& node = topology_.nodes[i];
      return std::tuple(node.host, node.kind, node.number, std::string_view(node.busId));
    });
    std::vector<NodeId> renamed(sorted.size());
    std::vector<Node> nodes;
    for (size_t i = 0; i < sorted.size(); ++i) {
      renamed[sorted[i]] = NodeId(static_cast<int32_t>(i));
      nodes.push_back(std::move(topology_.nodes[sorted[i]]));
    }
    topology_.nodes = std::move(nodes);
    for (Link& link : topology_.links) {
      link.from = renamed[index(link.from)];
      link.to = renamed[index(link.to)];
    }
    for (Node& node : topology_.nodes) {
      if (node.parent != kNoNode) node.parent = renamed[index(node.parent)];
      std::ranges::sort(node.links, {},
                        [&](LinkId link) { return std::tuple(topology_[link].to, link); });
    }
  }

  static std::string listed(const std::vector<std::string>& names) {
    constexpr size_t kShown = 4;
    std::string text;
    for (size_t i = 0; i < std::min(names.size(), kShown); ++i)
      text += (i > 0 ? ", " : "") + names[i];
    if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
    return text;
  }

  void tellAssumptions() {
    topology_.assumptions = description_.assumptions;
    const auto tell = [&](const std::vector<std::string>& names, std::string_view what) {
      if (!names.empty())
        topology_.assumptions.push_back(fmt::format("{}: {}", listed(names), what));
    };
    if (unknownNuma_)
      topology_.assumptions.emplace_back("no NUMA nodes are told: all is taken for one");
    tell(unknownSpeed_, "PCI speed not known, 8 GT/s assumed");
    tell(unknownWidth_, "PCI width not known, 16 lanes assumed");
    tell(unknownPort_, "port speed not known, 10 Gb/s assumed");
    tell(noPeer_,
         "a GPU with a display and without GPUDirect: no access between GPUs over PCI assumed");
    tell(bareAccelerators_, "looks like a GPU and is not described: left out");
    tell(bareDevices_, "PCI device with nothing behind it: left out");
  }

  const Description& description_;
  Topology topology_;
  int32_t host_ = 0;
  NodeId cpu_ = kNoNode;
  std::vector<CpuEntry> cpus_;
  std::vector<GpuEntry> gpus_;
  std::vector<PeerEntry> peers_;
  std::map<std::pair<int32_t, std::string>, Position> busIds_;
  std::map<int32_t, Position> ranks_;
  std::map<uint64_t, int32_t> hosts_;  // by hash
  std::map<std::pair<int32_t, NodeKind>, int32_t> counts_;
  std::map<std::pair<int32_t, std::string>, NodeId> byBusId_;  // the first, where a NIC is several
  std::map<std::pair<int32_t, int32_t>, Position> numaNodes_;
  std::map<std::pair<int32_t, int32_t>, std::string> ports_;
  std::map<int32_t, NodeId> nvSwitches_;  // by host
  int32_t ends_ = 0;
  std::map<int32_t, int32_t> endsOf_;  // by host
  bool unknownNuma_ = false;
  std::vector<std::string> unknownSpeed_, unknownWidth_, unknownPort_, noPeer_, bareAccelerators_,
      bareDevices_;
  Position firstBare_;
};

}  // namespace

Result<Topology> buildTopology(const Description& description) {
  return Builder(description).build();
}

}  // namespace tutti::topology
