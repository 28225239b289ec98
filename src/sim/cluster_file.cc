#include "sim/cluster_file.h"

#include <algorithm>
#include <array>

#include "sim/machine.h"
#include "sim/yaml.h"

namespace tutti::sim {
namespace {

constexpr double kGbPerGbps = 1.0 / 8;

// The enumerator of this name among those from the first to the last.
template <typename Enum>
Result<Enum> choice(const YamlNode& map, std::string_view key, Enum fallback, Enum last) {
  const YamlNode* node = map.find(key);
  if (node == nullptr) return Enum{fallback};
  std::string known;
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    if (nameOf(static_cast<Enum>(i)) == node->text()) return static_cast<Enum>(i);
    known += fmt::format("{}{}", i == 0 ? "" : ", ", nameOf(static_cast<Enum>(i)));
  }
  return node->fault(fmt::format("{} is {}, wanted one of {}", key, node->text(), known));
}

template <typename Enum, size_t kCount>
Result<Enum> word(const YamlNode& map, std::string_view key,
                  const std::array<std::pair<std::string_view, Enum>, kCount>& known) {
  const YamlNode* node = map.find(key);
  if (node == nullptr) return Enum{known[0].second};  // the usual one stands first
  std::string all;
  for (const auto& [text, value] : known) {
    if (text == node->text()) return Enum{value};
    all += fmt::format(" {}", text);
  }
  return node->fault(fmt::format("{} is {}, wanted one of{}", key, node->text(), all));
}

Result<int32_t> small(const YamlNode& map, std::string_view key, const YamlNode::Range& range) {
  TUTTI_TRY_ASSIGN(const int64_t value, map.integer(key, range));
  return static_cast<int32_t>(value);
}

Result<MachineSpec> parseMachine(const YamlNode& map) {
  using topology::CpuArch;
  using topology::CpuVendor;
  TUTTI_TRY(map.allowKeys({"sockets", "arch", "vendor", "gpus", "sm", "nvswitch_links", "c2c_gb_s",
                           "ports", "port_gbps", "port_latency_us", "gpu_direct", "pci"}));
  constexpr std::array kArchs = {std::pair(std::string_view("x86_64"), CpuArch::kX86),
                                 std::pair(std::string_view("arm64"), CpuArch::kArm64)};
  constexpr std::array kVendors = {std::pair(std::string_view("intel"), CpuVendor::kIntel),
                                   std::pair(std::string_view("amd"), CpuVendor::kAmd),
                                   std::pair(std::string_view("other"), CpuVendor::kUnknown)};
  MachineSpec spec;
  constexpr int64_t kMostDevices = 256;
  TUTTI_TRY_ASSIGN(spec.socketCount, small(map, "sockets", {1, 128, 2}));
  TUTTI_TRY_ASSIGN(spec.arch, word(map, "arch", kArchs));
  TUTTI_TRY_ASSIGN(spec.vendor, word(map, "vendor", kVendors));
  TUTTI_TRY_ASSIGN(spec.gpuCount, small(map, "gpus", {0, kMostDevices, 0}));
  TUTTI_TRY_ASSIGN(spec.smVersion, small(map, "sm", {30, 200, 90}));
  TUTTI_TRY_ASSIGN(spec.switchLinks, small(map, "nvswitch_links", {0, 64, 0}));
  TUTTI_TRY_ASSIGN(spec.c2cGbPerSecond, map.real("c2c_gb_s", {0, 1e4, 0.}));
  TUTTI_TRY_ASSIGN(spec.portCount, small(map, "ports", {0, kMostDevices, 0}));
  TUTTI_TRY_ASSIGN(spec.portGbps, map.real("port_gbps", {1e-3, 1e5, 100.}));
  TUTTI_TRY_ASSIGN(spec.portLatencyUs, map.real("port_latency_us", {0, 1e4, 0.}));
  TUTTI_TRY_ASSIGN(spec.directGpu, map.flag("gpu_direct", true));
  TUTTI_TRY_ASSIGN(spec.pciSpeed, map.string("pci", spec.pciSpeed));
  return spec;
}

std::string beside(const std::string& file, const std::string& named) {
  const size_t slash = file.rfind('/');
  if (named.starts_with('/') || slash == std::string::npos) return named;
  return file.substr(0, slash + 1) + named;
}

class ClusterReader {
 public:
  ClusterReader(const ClusterFileOptions& options, const ReadDescription& read)
      : options_(options), read_(read) {}

  Result<Cluster> run(const YamlNode& root) {
    TUTTI_TRY(root.allowKeys({"cluster", "nodes", "network", "placement", "what_if"}));
    TUTTI_TRY_ASSIGN(parts_.name, root.string("cluster", options_.source));
    const YamlNode* nodes = root.find("nodes");
    if (nodes == nullptr) return root.fault("nodes is missing");
    if (!nodes->isList() || nodes->items().empty())
      return nodes->fault("nodes is a list of groups of nodes, wanted at least one");
    for (const YamlNode& group : nodes->items()) TUTTI_TRY(readGroup(group));
    TUTTI_TRY(fitRanks(*nodes));
    if (options_.nodeCount > 0) {
      parts_.groups.resize(1);
      parts_.kinds.resize(1);
      parts_.groups[0].count = options_.nodeCount;
    }
    TUTTI_TRY(checkSize(*nodes));
    if (const YamlNode* network = root.find("network"); network != nullptr)
      TUTTI_TRY(readNetwork(*network));
    constexpr std::array kPlacements = {std::pair(std::string_view("block"), Placement::kBlock),
                                        std::pair(std::string_view("cyclic"), Placement::kCyclic)};
    TUTTI_TRY_ASSIGN(parts_.placement, word(root, "placement", kPlacements));
    Result<Cluster> made = Cluster::make(std::move(parts_));
    if (!made.ok()) return nodes->fault(made.status().message());
    TUTTI_TRY_ASSIGN(Cluster cluster, std::move(made));
    if (const YamlNode* cases = root.find("what_if"); cases != nullptr)
      TUTTI_TRY(readCases(*cases, cluster));
    return cluster;
  }

 private:
  Status readGroup(const YamlNode& group) {
    TUTTI_TRY(group.allowKeys(
        {"count", "name", "topology", "profile", "machine", "cpu_ranks", "memory_gb_s"}));
    NodeGroup made{.kind = static_cast<int32_t>(parts_.kinds.size())};
    TUTTI_TRY_ASSIGN(made.count, small(group, "count", {1, kMostNodes, 1}));
    TUTTI_TRY_ASSIGN(NodeKind kind, readKind(group));
    TUTTI_TRY_ASSIGN(kind.cpuRankCount, small(group, "cpu_ranks", {0, 4096, 0}));
    TUTTI_TRY_ASSIGN(kind.memoryGbPerSecond, group.real("memory_gb_s", {1e-3, 1e5, 20.}));
    if (kind.cpuRankCount > 0 && !kind.gpus.empty())
      return group.fault("cpu_ranks are for nodes without GPUs");
    parts_.kinds.push_back(std::move(kind));
    parts_.groups.push_back(made);
    return {};
  }

  Result<NodeKind> readKind(const YamlNode& group) {
    const YamlNode* machine = group.find("machine");
    const YamlNode* file = group.find("topology");
    if ((machine == nullptr) == (file == nullptr))
      return group.fault("wanted either topology: FILE or machine: {...}");
    topology::Description description;
    std::string name;
    if (machine != nullptr) {
      TUTTI_TRY_ASSIGN(const MachineSpec spec, parseMachine(*machine));
      description = makeMachine(spec);
      name = spec.gpuCount > 0 ? fmt::format("{} GPUs of compute capability {}.{}", spec.gpuCount,
                                             spec.smVersion / 10, spec.smVersion % 10)
                               : "processors";
    } else {
      TUTTI_TRY_ASSIGN(const std::string path, group.string("topology", std::nullopt));
      TUTTI_TRY_ASSIGN(const std::string profile, group.string("profile", ""));
      Result<topology::Description> found =
          read_(beside(options_.source, path),
                profile.empty() ? profile : beside(options_.source, profile));
      if (!found.ok()) return file->fault(found.status().message());
      description = std::move(found).value();
      name = path;
    }
    TUTTI_TRY_ASSIGN(name, group.string("name", name));
    Result<NodeKind> kind = makeNodeKind(description, name, options_.rankCount);
    if (!kind.ok()) return group.fault(kind.status().message());
    return kind;
  }

  Status fitRanks(const YamlNode& nodes) {
    if (options_.rankCount == 0) return {};
    NodeKind& kind = parts_.kinds.front();
    if (kind.gpus.empty()) kind.cpuRankCount = std::min(kind.cpuRankCount, options_.rankCount);
    const int32_t each = std::max(kind.rankCount(), 1);
    if (options_.rankCount % each != 0)
      return nodes.fault(
          fmt::format("{} ranks are no whole number of nodes with {}", options_.rankCount, each));
    parts_.groups.resize(1);
    parts_.kinds.resize(1);
    parts_.groups[0].count = options_.rankCount / each;
    return {};
  }

  Status checkSize(const YamlNode& nodes) const {
    int64_t nodeCount = 0, rankCount = 0;
    for (const NodeGroup& group : parts_.groups) {
      nodeCount += group.count;
      rankCount += int64_t{group.count} * parts_.kinds[static_cast<size_t>(group.kind)].rankCount();
    }
    if (nodeCount <= kMostNodes && rankCount <= kMostRanks) return {};
    return nodes.fault(fmt::format("{} nodes with {} ranks, wanted at most {} and {}", nodeCount,
                                   rankCount, kMostNodes, kMostRanks));
  }

  Status readNetwork(const YamlNode& map) {
    TUTTI_TRY(map.allowKeys({"shape", "routing", "rails", "port_gbps", "switch_latency_us",
                             "nodes_per_leaf", "spines", "oversubscription", "leaves_per_pod",
                             "core_oversubscription", "routers_per_group", "local_gbps",
                             "global_gbps", "seed"}));
    NetworkDescription& made = parts_.network;
    const auto gbps = [&map](std::string_view key) { return map.real(key, {0, 1e6, 0.}); };
    TUTTI_TRY_ASSIGN(made.shape, choice(map, "shape", Shape::kSwitch, Shape::kDragonfly));
    TUTTI_TRY_ASSIGN(made.routing, choice(map, "routing", Routing::kHash, Routing::kBalanced));
    TUTTI_TRY_ASSIGN(made.railCount, small(map, "rails", {0, 256, 0}));
    TUTTI_TRY_ASSIGN(const double port, gbps("port_gbps"));
    made.portGbPerSecond = port * kGbPerGbps;
    TUTTI_TRY_ASSIGN(made.switchLatencyUs,
                     map.real("switch_latency_us", {0, 1e4, made.switchLatencyUs}));
    TUTTI_TRY_ASSIGN(made.nodesPerLeaf, small(map, "nodes_per_leaf", {1, kMostNodes, 32}));
    TUTTI_TRY_ASSIGN(made.spineCount, small(map, "spines", {0, 4096, 0}));
    TUTTI_TRY_ASSIGN(made.oversubscription, map.real("oversubscription", {0.1, 1e3, 1.}));
    const bool isDragonfly = made.shape == Shape::kDragonfly;
    TUTTI_TRY_ASSIGN(
        made.leavesPerPod,
        small(map, isDragonfly ? "routers_per_group" : "leaves_per_pod", {1, 1024, 8}));
    TUTTI_TRY_ASSIGN(made.coreOversubscription, map.real("core_oversubscription", {0.1, 1e3, 1.}));
    TUTTI_TRY_ASSIGN(const double local, gbps("local_gbps"));
    made.localGbPerSecond = local * kGbPerGbps;
    TUTTI_TRY_ASSIGN(const double global, gbps("global_gbps"));
    made.globalGbPerSecond = global * kGbPerGbps;
    TUTTI_TRY_ASSIGN(const int64_t seed, map.integer("seed", {0, INT64_MAX, 0}));
    made.seed = static_cast<uint64_t>(seed);
    return {};
  }

  static Status readCases(const YamlNode& cases, Cluster& cluster) {
    if (!cases.isList()) return cases.fault("what_if is a list");
    for (const YamlNode& each : cases.items()) {
      TUTTI_TRY(each.allowKeys({"link", "rank", "factor"}));
      TUTTI_TRY_ASSIGN(const double factor, each.real("factor", {0, 1e3}));
      if ((each.find("link") == nullptr) == (each.find("rank") == nullptr))
        return each.fault("wanted either link: NAME or rank: NUMBER");
      Status done;
      if (each.find("link") != nullptr) {
        TUTTI_TRY_ASSIGN(const std::string link, each.string("link", std::nullopt));
        done = cluster.scaleLink(link, factor);
      } else {
        if (factor <= 0) return each.fault("factor is 0; a rank that does nothing ends nothing");
        TUTTI_TRY_ASSIGN(const int32_t rank, small(each, "rank", {0, kMostRanks}));
        done = cluster.slowRank(rank, factor);
      }
      if (!done.ok()) return each.fault(done.message());
    }
    return {};
  }

  const ClusterFileOptions& options_;
  const ReadDescription& read_;
  Cluster::Parts parts_;
};

}  // namespace

Result<Cluster> parseCluster(std::string_view text, const ClusterFileOptions& options,
                             const ReadDescription& read) {
  TUTTI_TRY_ASSIGN(const YamlNode root, parseYaml(text, options.source));
  return ClusterReader(options, read).run(root);
}

}  // namespace tutti::sim
