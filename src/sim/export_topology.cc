// The cluster in other simulators' forms. As SimAI's ns-3 takes it: GPUs are nodes 0 to n - 1, then
// an NVSwitch a server, then the network's switches; a line a cable. Ports are not nodes there: a
// GPU stands at its port's switch.
#include <algorithm>
#include <map>
#include <set>

#include "sim/export_internal.h"

namespace tutti::sim {
namespace {

constexpr double kGbpsPerGb = 8;

class Cables {
 public:
  explicit Cables(const Cluster& cluster) : cluster_(cluster), next_(cluster.rankCount()) {}

  Status run(const Sink& sink) {
    const NodeKind& kind = cluster_.kinds().front();
    const bool isUniform = cluster_.kinds().size() == 1 && !kind.gpus.empty();
    if (!isUniform)
      return invalidArgument(
          "topology: the form has GPU servers of one kind; {} is another cluster", cluster_.name());
    addServers(kind);
    const int32_t nvSwitches = next_ - cluster_.rankCount();
    addNetwork(kind);
    std::string text = fmt::format("{} {} {} {} {} sm{}\n", next_, kind.rankCount(), nvSwitches,
                                   next_ - cluster_.rankCount() - nvSwitches, lines_,
                                   kind.topology[kind.gpus.front()].gpu.smVersion);
    for (int32_t id = cluster_.rankCount(); id < next_; ++id)
      text += fmt::format("{}{}", id == cluster_.rankCount() ? "" : " ", id);
    TUTTI_TRY(sink("", text + "\n"));
    return sink("", cables_);
  }

 private:
  void add(int32_t from, int32_t to, double gb, double us) {
    constexpr double kUsPerMs = 1e3;
    cables_ += fmt::format("{} {} {:g}Gbps {:.6f}ms 0\n", from, to, gb * kGbpsPerGb, us / kUsPerMs);
    ++lines_;
  }

  // Each GPU to its server's switch, as wide as all of its NVLinks.
  void addServers(const NodeKind& kind) {
    constexpr double kSwitchUs = 0.025;
    for (int32_t node = 0; node < cluster_.nodeCount(); ++node) {
      const int32_t nvSwitch = next_++;
      for (size_t local = 0; local < kind.gpus.size(); ++local) {
        double widest = 0;
        for (const topology::LinkId link : kind.topology[kind.gpus[local]].links) {
          if (kind.topology[link].kind == topology::LinkKind::kNvLink)
            widest = std::max(widest, kind.topology[link].gbPerSecond);
        }
        if (widest > 0) add(index(cluster_.ranksOf(node)[local]), nvSwitch, widest, kSwitchUs);
      }
    }
  }

  void addNetwork(const NodeKind& kind) {
    const Network& network = cluster_.network();
    const double us = network.description().switchLatencyUs;
    std::map<std::string, int32_t> switches;
    std::set<std::pair<int32_t, int32_t>> seen;
    const auto end = [&](const std::string& name) {
      int32_t node = 0, port = 0;
      if (std::sscanf(name.c_str(), "node %d port %d", &node, &port) == 2) {
        const auto ports = static_cast<size_t>(std::max<size_t>(kind.ports.size(), 1));
        const size_t local = static_cast<size_t>(port) % ports * kind.gpus.size() / ports;
        return index(cluster_.ranksOf(node)[local]);
      }
      const auto [at, isNew] = switches.try_emplace(name, next_);
      if (isNew) ++next_;
      return at->second;
    };
    for (int32_t link = 0; link < network.linkCount(); ++link) {
      const std::string name = network.nameOf(link);
      const size_t arrow = name.find(" -> ");
      const int32_t from = end(name.substr(0, arrow)), to = end(name.substr(arrow + 4));
      // The way back is the same cable; several ports of one GPU are several cables.
      const bool isWayBack = from > to && seen.contains({to, from});
      seen.emplace(from, to);
      if (!isWayBack && from != to) add(from, to, network.gbPerSecond(link), us);
    }
  }

  const Cluster& cluster_;
  int32_t next_;
  int64_t lines_ = 0;
  std::string cables_;
};

}  // namespace

Status writeTopology(const Cluster& cluster, const Sink& sink) { return Cables(cluster).run(sink); }

namespace {

// htsim's fat trees: switches of a tier are alike, and nodes stand in order below the first tier.
Status checkHtsim(const Cluster& cluster) {
  const NodeKind& kind = cluster.kinds().front();
  const NetworkDescription& network = cluster.network().description();
  const auto refuse = [&](std::string_view why) {
    return invalidArgument("htsim_topology: {}; {} is another cluster", why, cluster.name());
  };
  if (network.shape != Shape::kLeafSpine && network.shape != Shape::kFatTree)
    return refuse("the form has leaf_spine and fat_tree");
  if (cluster.kinds().size() != 1 || kind.ports.size() != static_cast<size_t>(kind.rankCount()))
    return refuse("the form has nodes of one kind with a port a rank");
  const int32_t nodesPerPod =
      network.nodesPerLeaf * (network.shape == Shape::kFatTree ? network.leavesPerPod : 1);
  if (cluster.nodeCount() % nodesPerPod != 0)
    return refuse(fmt::format("the form has full leaves and pods, of {} nodes", nodesPerPod));
  return {};
}

struct HtsimTier {
  double downGbPerSecond = 0;
  int32_t radixDown = 0;
  int32_t radixUp = 0;  // 0: the uppermost
};

std::string htsimTier(int number, const HtsimTier& tier, double switchUs) {
  constexpr double kNsPerUs = 1e3;
  std::string text = fmt::format("Tier {}\nDownlink_speed_Gbps {:g}\nRadix_Down {}\n", number,
                                 tier.downGbPerSecond * kGbpsPerGb, tier.radixDown);
  if (tier.radixUp > 0) text += fmt::format("Radix_Up {}\n", tier.radixUp);
  // Cables are counted with their switches.
  return text + fmt::format("Downlink_Latency_ns 0\nSwitch_Latency_ns {:g}\nBundle 1\n",
                            switchUs * kNsPerUs);
}

}  // namespace

Status writeHtsimTopology(const Cluster& cluster, const Sink& sink) {
  TUTTI_TRY(checkHtsim(cluster));
  const NetworkDescription& network = cluster.network().description();
  const Network::Tiers tiers = cluster.network().tiers();
  const int32_t ranksPerLeaf = cluster.rankCount() / tiers.leafCount;
  const int32_t leavesPerPod = tiers.leafCount / tiers.podCount;
  const double portGb = cluster.network().gbPerSecond(cluster.network().upLink(0));
  std::string text = fmt::format("Nodes {}\nTiers {}\nPodsize {}\n", cluster.rankCount(),
                                 tiers.coresPerSpine > 0 ? 3 : 2, ranksPerLeaf * leavesPerPod);
  text += htsimTier(0, {portGb, ranksPerLeaf, tiers.spinesPerPod}, network.switchLatencyUs);
  text += htsimTier(1, {tiers.leafUpGbPerSecond, leavesPerPod, tiers.coresPerSpine},
                    network.switchLatencyUs);
  if (tiers.coresPerSpine > 0)
    text += htsimTier(2, {tiers.spineUpGbPerSecond, tiers.podCount, 0}, network.switchLatencyUs);
  return sink("", text);
}

}  // namespace tutti::sim
