// For each pair of limits on how far routes may go, closest first, and for each speed that divides
// what the links can carry: how many channels of that speed fit (packing.h)? The reference tries a
// fixed list of speeds; speeds made from the machine's own links waste nothing (decision 6).
#include "graph/search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <tuple>
#include <vector>

#include "graph/fabric.h"
#include "graph/packing.h"
#include "topology/bandwidths.h"

namespace tutti::graph {
namespace {

using topology::NodeId;
using topology::NodeKind;
using topology::PathKind;

// Farther routes cost latency, and LL128; they must bring at least half as much again.
constexpr double kWorthGoingFar = 1.5;
// A port by way of another GPU, or beside its socket, is no worse than that for the network.
constexpr double kWorthAnotherPort = 1.02;
constexpr double kWorthMore = 1.005;
// Each channel is a thread block taken from the application: twice as many must bring a tenth more.
constexpr double kWorthDoubling = .1;
// How long a speed is tried (steps without another channel, for each GPU), and how many speeds.
struct Effort {
  int64_t patiencePerGpu;
  size_t speeds;
};
constexpr int64_t kQuickPatience = 8;
constexpr std::array kEfforts = {Effort{kQuickPatience, 16}, Effort{256, 4}};
// Speeds below this are not worth a channel where anything faster was found.
constexpr double kLeastSpeed = .1;

int64_t defaultBudget(int32_t gpuCount) {
  constexpr int64_t kUpToEight = 1 << 13;
  const int64_t scale = std::max<int64_t>(1, gpuCount / 8);
  return kUpToEight * scale * scale;
}

class Search {
 public:
  Search(const topology::Topology& topology, const Fabric& fabric, const SearchOptions& options)
      : topology_(topology),
        fabric_(fabric),
        options_(options),
        budget_(options.stepBudget > 0 ? options.stepBudget : defaultBudget(fabric.gpuCount())),
        firstBudget_(budget_) {
    for (int32_t gpu = 0; gpu < fabric.gpuCount(); ++gpu) {
      const int32_t version = topology[fabric.nodeOf(gpu)].gpu.smVersion;
      mostSpeed_ = std::min(mostSpeed_, mostGbPerSecondPerChannel(version));
    }
  }

  FoundGraph run() {
    FoundGraph found;
    const std::vector<PathKind> intra = kindsOr(fabric_.kindsBetweenGpus());
    const std::vector<PathKind> inter =
        fabric_.portCount() > 0 ? kindsOr(fabric_.kindsToPorts()) : std::vector{PathKind::kLoc};
    for (const PathKind limit : intra) {
      if (!fabric_.isConnected(limit)) continue;
      const NodeGraph nearer = best_;
      tryAll(tasksFor(limit, inter));
      // Not worth it: back to the nearer routes.
      if (!nearer.channels.empty() &&
          best_.totalGbPerSecond() < nearer.totalGbPerSecond() * kWorthGoingFar)
        best_ = nearer;
    }
    found.boundGbPerSecond = 0;
    for (const PackingTask& task : tasksFor(intra.back(), {inter.back()}))
      found.boundGbPerSecond = std::max(found.boundGbPerSecond, bound(task.limits, task.pattern));
    found.graph = std::move(best_);
    found.steps = firstBudget_ - budget_;
    return found;
  }

 private:
  static std::vector<PathKind> kindsOr(std::vector<PathKind> kinds) {
    return kinds.empty() ? std::vector{PathKind::kLoc} : kinds;
  }

  // Nearer ports first, so that a farther one must carry more to be taken.
  std::vector<PackingTask> tasksFor(PathKind intra, const std::vector<PathKind>& inter) const {
    std::vector<Pattern> patterns{options_.pattern};
    if (options_.pattern == Pattern::kBalancedTree && fabric_.portCount() > 0)
      patterns = {Pattern::kBalancedTree, Pattern::kSplitTree, Pattern::kTree};
    std::vector<PackingTask> tasks;
    for (const PathKind limit : inter) {
      for (const Pattern pattern : patterns) {
        PackingTask task{.pattern = pattern, .limits = {intra, limit}};
        const bool mayCross = pattern == Pattern::kRing && fabric_.portCount() > 1;
        if (!mayCross || options_.crossNic != CrossNic::kAlways) tasks.push_back(task);
        task.crossNic = true;
        if (mayCross && options_.crossNic != CrossNic::kNever) tasks.push_back(task);
      }
    }
    return tasks;
  }

  // Something for every task, then a quick look at what promises most, then a long one; each task
  // has its share of the steps that are left.
  void tryAll(const std::vector<PackingTask>& tasks) {
    for (const PackingTask& task : tasks) seed(task);
    for (const Effort& effort : kEfforts) {
      for (size_t i = 0; i < tasks.size(); ++i) {
        int64_t share = budget_ / static_cast<int64_t>(tasks.size() - i);
        const int64_t before = share;
        trySpeeds(tasks[i], effort, share);
        budget_ -= before - share;
      }
    }
  }

  // No graph of the pattern within the limits carries more: every GPU sends and receives all of a
  // ring; of a chain the two ends only half.
  double bound(const Fabric::Kinds& limits, Pattern pattern) const {
    const int32_t gpus = fabric_.gpuCount();
    double width =
        fabric_.portCount() > 0 ? fabric_.widthOfPorts(limits.inter) : topology::kLocalGbPerSecond;
    if (gpus == 1) return width;
    const bool isChain = pattern != Pattern::kRing;
    width = std::min(width, fabric_.widthOfLinks(limits, isChain));
    const double share =
        isChain && fabric_.portCount() == 0 ? static_cast<double>(gpus) / (gpus - 1) : 1;
    for (int32_t gpu = 0; gpu < gpus; ++gpu) {
      const double narrowest =
          std::min(fabric_.widthOut(gpu, limits), fabric_.widthIn(gpu, limits));
      // A chain with ports may have this GPU at an end: then it carries half, or only the network.
      width =
          std::min(width, isChain && fabric_.portCount() > 0 ? 2 * narrowest : narrowest * share);
    }
    return width;
  }

  // A speed and how many channels of it the bound leaves room for.
  struct Candidate {
    double speed;
    int32_t fits;
    double total() const { return speed * fits; }
  };

  // What the bound and each link give when shared by 1, 2, 3, ... channels: those that promise most
  // first, within a hundredth those with fewest channels.
  std::vector<Candidate> candidates(double most) const {
    std::vector<Candidate> all;
    const int32_t channels = mostChannels();
    const auto add = [&](double width) {
      for (int32_t share = 1; share <= channels; ++share) {
        const double speed = width / share;
        if (speed > mostSpeed_ * (1 + 1e-9) || speed < kLeastSpeed) continue;
        const auto fits = std::min(static_cast<int32_t>(most / speed + 1e-6), channels);
        if (fits >= 1) all.push_back({speed, fits});
      }
    };
    add(most);
    add(mostSpeed_);
    std::vector<double> widths = fabric_.capacities();
    std::ranges::sort(widths);
    widths.erase(std::unique(widths.begin(), widths.end()), widths.end());
    for (const double width : widths) {
      add(width);
      add(2 * width);  // half of a chain's speed passes a link each way
      add(width / topology::kIntelPeerOverhead);
    }
    const auto key = [&](const Candidate& each) {
      return std::tuple(-std::floor(each.total() / most * 100), each.fits, -each.speed);
    };
    std::ranges::sort(all, {}, key);
    const auto isSame = [](const Candidate& one, const Candidate& other) {
      return one.fits == other.fits && std::abs(one.speed - other.speed) < one.speed * 1e-3;
    };
    all.erase(std::unique(all.begin(), all.end(), isSame), all.end());
    return all;
  }

  int32_t mostChannels() const {
    // A GPU alone has nobody to send to: one channel, which copies.
    const bool isAlone = fabric_.gpuCount() == 1 && fabric_.portCount() == 0;
    return isAlone ? 1 : options_.mostChannels;
  }

  // Few channels at halved and halved again speeds, and then between the slowest that was too fast
  // and the fastest that was not.
  void seed(PackingTask task) {
    constexpr int kTries = 10;
    const double most = bound(task.limits, task.pattern);
    const auto fewest = static_cast<int32_t>(std::ceil(most / mostSpeed_ - 1e-6));
    for (int32_t count = std::max(fewest, 1); count <= mostChannels(); count *= 2) {
      task.mostChannels = count;
      double found = 0, tooFast = most / count * (1 + 1e-6);
      for (int i = 0; i < kTries && budget_ > 0; ++i) {
        if (!isWorth(task, tooFast * count, static_cast<size_t>(count))) break;
        task.gbPerSecond =
            i == 0 ? most / count : (found > 0 ? (found + tooFast) / 2 : tooFast / 2);
        if (task.gbPerSecond < found * kWorthMore) break;
        const double speed = tryPacking(task, kQuickPatience, budget_);
        if (speed > 0) {
          found = speed;
        } else {
          tooFast = task.gbPerSecond;
        }
      }
    }
  }

  void trySpeeds(PackingTask task, const Effort& effort, int64_t& budget) {
    size_t tried = 0;
    for (const Candidate& each : candidates(bound(task.limits, task.pattern))) {
      if (budget <= 0 || tried == effort.speeds) return;
      if (!isWorth(task, each.total(), static_cast<size_t>(each.fits))) continue;
      ++tried;
      task.gbPerSecond = each.speed;
      task.mostChannels = each.fits;
      tryPacking(task, effort.patiencePerGpu, budget);
    }
  }

  bool isWorth(const PackingTask& task, double total, size_t channels) const {
    if (best_.channels.empty()) return true;
    double margin = task.crossNic && !best_.crossNic ? kWorthAnotherPort : kWorthMore;
    const double growth =
        static_cast<double>(channels) / static_cast<double>(best_.channels.size()) - 1;
    margin += kWorthDoubling * std::max(0.0, growth);
    return total > best_.totalGbPerSecond() * margin;
  }

  // What all channels carry that were asked for; 0: not all of them were found.
  double tryPacking(PackingTask task, int64_t patiencePerGpu, int64_t& budget) {
    for (const bool sameOrder : {true, false}) {
      task.sameOrder = sameOrder;
      const std::vector<PackedChannel> channels =
          Packer(fabric_, task, patiencePerGpu * fabric_.gpuCount(), budget).run();
      if (channels.empty()) continue;
      PackingTask raised = task;
      raised.gbPerSecond = std::min(widestSpeed(fabric_, task, channels), mostSpeed_);
      const double total = raised.gbPerSecond * static_cast<double>(channels.size());
      if (isWorth(task, total, channels.size())) best_ = makeGraph(raised, channels);
      if (channels.size() >= static_cast<size_t>(task.mostChannels)) return raised.gbPerSecond;
    }
    return 0;
  }

  NodeGraph makeGraph(const PackingTask& task, const std::vector<PackedChannel>& channels) const {
    NodeGraph graph{.pattern = task.pattern,
                    .intraGbPerSecond = task.gbPerSecond,
                    .interGbPerSecond = task.gbPerSecond};
    for (const PackedChannel& each : channels) {
      Channel channel;
      for (const int32_t gpu : each.gpus) channel.gpus.push_back(fabric_.nodeOf(gpu));
      addKinds(graph, each);
      if (each.entry >= 0) channel.entry = fabric_.nodeOf(each.entry);
      if (each.exit >= 0) channel.exit = fabric_.nodeOf(each.exit);
      graph.crossNic |= each.entry != each.exit;
      graph.sameChannels &= each.gpus == channels.front().gpus;
      graph.channels.push_back(std::move(channel));
    }
    return graph;
  }

  void addKinds(NodeGraph& graph, const PackedChannel& channel) const {
    const auto widen = [](PathKind& kind, PathKind other) {
      if (isCloser(kind, other)) kind = other;
    };
    const std::vector<int32_t>& gpus = channel.gpus;
    for (size_t i = 0; i + 1 < gpus.size(); ++i)
      widen(graph.intraKind, fabric_.route(gpus[i], gpus[i + 1]).kind);
    const bool isRing = graph.pattern == Pattern::kRing;
    if (channel.entry < 0) {
      if (isRing) widen(graph.intraKind, fabric_.route(gpus.back(), gpus.front()).kind);
      return;
    }
    widen(graph.interKind, fabric_.route(channel.entry, gpus.front()).kind);
    if (isRing) widen(graph.interKind, fabric_.route(gpus.back(), channel.exit).kind);
    const bool isShared =
        graph.pattern == Pattern::kBalancedTree || graph.pattern == Pattern::kSplitTree;
    if (isShared && gpus.size() > 1)
      widen(graph.interKind, fabric_.route(gpus[1], channel.entry).kind);
    for (const int32_t port : {channel.entry, channel.exit}) {
      graph.interLatencyUs =
          std::max(graph.interLatencyUs, topology_[fabric_.nodeOf(port)].net.latencyUs);
    }
  }

  const topology::Topology& topology_;
  const Fabric& fabric_;
  const SearchOptions& options_;
  int64_t budget_;
  int64_t firstBudget_;
  double mostSpeed_ = topology::kLocalGbPerSecond;
  NodeGraph best_;
};

// Every GPU is the head of one channel; the switch reads all of them and adds.
NodeGraph searchSwitch(const topology::Topology& topology, const Fabric& fabric) {
  constexpr int32_t kHopper = 90, kBlackwell = 100;
  NodeGraph graph{.pattern = Pattern::kSwitch, .intraKind = PathKind::kNvl};
  if (fabric.gpuCount() < 2) return graph;
  double speed = topology::kLocalGbPerSecond;
  for (int32_t gpu = 0; gpu < fabric.gpuCount(); ++gpu) {
    const topology::Node& node = topology[fabric.nodeOf(gpu)];
    if (!node.gpu.hasSwitch || node.gpu.smVersion < kHopper) return graph;
    constexpr double kHopperHead = 60, kBlackwellHead = 90;  // as the reference's search has them
    const double head = node.gpu.smVersion >= kBlackwell ? kBlackwellHead : kHopperHead;
    const double width = fabric.widthOut(gpu, {PathKind::kNvl, PathKind::kLoc});
    speed = std::min({speed, head, width / fabric.gpuCount()});
  }
  graph.intraGbPerSecond = graph.interGbPerSecond = speed;
  graph.sameChannels = false;
  for (int32_t gpu = 0; gpu < fabric.gpuCount(); ++gpu)
    graph.channels.push_back({.gpus = {fabric.nodeOf(gpu)}});
  return graph;
}

// The GPU next to each port is a head; the others hand their data to the heads.
NodeGraph searchDirect(const Fabric& fabric) {
  NodeGraph graph{.pattern = Pattern::kDirect, .sameChannels = false};
  double speed = topology::kLocalGbPerSecond;
  std::vector<bool> isHead(static_cast<size_t>(fabric.gpuCount()), false);
  for (int32_t port = fabric.gpuCount(); port < fabric.gpuCount() + fabric.portCount(); ++port) {
    int32_t nearest = -1;
    for (int32_t gpu = 0; gpu < fabric.gpuCount(); ++gpu) {
      const Route& route = fabric.route(gpu, port);
      if (isHead[static_cast<size_t>(gpu)] || !route.isUsable()) continue;
      if (nearest < 0 || isCloser(route.kind, fabric.route(nearest, port).kind)) nearest = gpu;
    }
    if (nearest < 0) continue;
    isHead[static_cast<size_t>(nearest)] = true;
    const Route& route = fabric.route(nearest, port);
    if (isCloser(graph.interKind, route.kind)) graph.interKind = route.kind;
    for (const RouteHop& hop : route.hops)
      speed = std::min(speed, fabric.capacities()[static_cast<size_t>(hop.link)] / hop.weight);
    graph.channels.push_back({.gpus = {fabric.nodeOf(nearest)},
                              .entry = fabric.nodeOf(port),
                              .exit = fabric.nodeOf(port)});
  }
  if (!graph.channels.empty()) graph.intraGbPerSecond = graph.interGbPerSecond = speed;
  const std::vector<PathKind> kinds = fabric.kindsBetweenGpus();
  if (!kinds.empty()) graph.intraKind = kinds.back();
  return graph;
}

}  // namespace

double mostGbPerSecondPerChannel(int32_t smVersion) {
  // Chosen so that a node's links are filled by as many channels as the reference takes: a V100's
  // six NVLinks by 6, an H100's eighteen by 12. Four H200, 2026-11-20: 8 blocks push 351 GB/s, so
  // a block can do 44.
  constexpr int32_t kBlackwell = 100, kHopper = 90, kAmpere = 80;
  if (smVersion >= kBlackwell) return 46;
  if (smVersion >= kHopper) return 31;
  return smVersion >= kAmpere ? 25 : 22;
}

FoundGraph search(const topology::Topology& topology, const topology::Paths& paths,
                  const SearchOptions& options) {
  std::vector<NodeId> ports;
  if (options.betweenNodes) {
    for (const NodeId port : nodesOf(topology, NodeKind::kNet, options.host)) {
      if (!options.inNetworkOnly || topology[port].net.inNetworkReduction) ports.push_back(port);
    }
    if (ports.empty()) return {};
  }
  const std::vector<NodeId> gpus = nodesOf(topology, NodeKind::kGpu, options.host);
  if (gpus.empty()) return {};
  const Fabric fabric(topology, paths, {.gpus = gpus, .ports = ports});
  FoundGraph found;
  switch (options.pattern) {
    case Pattern::kSwitch: found.graph = searchSwitch(topology, fabric); break;
    case Pattern::kDirect: found.graph = searchDirect(fabric); break;
    case Pattern::kRing:
    case Pattern::kTree:
    case Pattern::kSplitTree:
    case Pattern::kBalancedTree: return Search(topology, fabric, options).run();
  }
  found.boundGbPerSecond = found.graph.totalGbPerSecond();
  return found;
}

}  // namespace tutti::graph
