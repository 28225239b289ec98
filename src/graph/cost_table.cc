// The rules follow what is known of NVIDIA's choice model; the test holds them against a table that
// NCCL printed, which not every rule shows in.
#include "graph/cost_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace tutti::graph {
namespace {

using topology::PathKind;

constexpr std::array kMethods = {Method::kTree,         Method::kRing, Method::kCollnetDirect,
                                 Method::kCollnetChain, Method::kNvls, Method::kNvlsTree,
                                 Method::kPat};
constexpr std::array kProtocols = {Protocol::kLl, Protocol::kLl128, Protocol::kSimple};
constexpr std::array kCollectives = {Collective::kBroadcast, Collective::kReduce,
                                     Collective::kAllGather, Collective::kReduceScatter,
                                     Collective::kAllReduce};

double valueOf(const ByMethod& table, Method method, Protocol protocol) {
  return table[static_cast<size_t>(method)][static_cast<size_t>(protocol)];
}

// One collective's cost by one method, on one communicator.
class Model {
 public:
  Model(const ClusterGraphs& graphs, const NcclConstants& constants, Collective collective)
      : graphs_(graphs),
        constants_(constants),
        collective_(collective),
        nodes_(graphs.nodeCount),
        ranks_(graphs.rankCount) {
    for (const GenerationCaps& each : constants.generations) {
      if (graphs.smVersion >= each.fromSmVersion) caps_ = &each;
    }
    nodesIndex_ = nodes_ <= 2 ? static_cast<size_t>(nodes_ - 1) : 2;
  }

  MethodCost cost(Method method, Protocol protocol) const {
    if (ranks_ < 2 || !exists(method)) return {};
    return {.latencyUs = latency(method, protocol), .gbPerSecond = bandwidth(method, protocol)};
  }

 private:
  bool isAllReduce() const { return collective_ == Collective::kAllReduce; }
  bool isHalf() const {
    return collective_ == Collective::kAllGather || collective_ == Collective::kReduceScatter;
  }

  bool exists(Method method) const {
    switch (method) {
      case Method::kRing: return true;
      case Method::kTree:
      case Method::kCollnetChain:
      case Method::kNvlsTree: return isAllReduce();
      case Method::kCollnetDirect:
      case Method::kNvls: return isAllReduce() || isHalf();
      case Method::kPat: return isHalf();
    }
    return false;
  }

  const GraphSummary& graphOf(Method method) const {
    switch (method) {
      case Method::kTree: return graphs_.tree;
      case Method::kRing:
      case Method::kPat: return graphs_.ring;
      case Method::kCollnetDirect: return graphs_.direct;
      case Method::kCollnetChain: return graphs_.chain;
      case Method::kNvls:
      case Method::kNvlsTree: return graphs_.switched;
    }
    return graphs_.ring;
  }

  // Messages one after the other along the ring.
  int32_t steps() const {
    if (isAllReduce()) return 2 * (ranks_ - 1);
    return isHalf() ? ranks_ - 1 : ranks_;
  }
  // Of these between nodes.
  int32_t stepsBetweenNodes() const {
    if (nodes_ == 1) return 0;
    return isAllReduce() ? 2 * nodes_ : nodes_;
  }

  double bandwidth(Method method, Protocol protocol) const {
    const GraphSummary& graph = graphOf(method);
    if (graph.channelCount == 0) return 0;
    switch (method) {
      case Method::kRing: return ringBandwidth(protocol) * ranks_ / steps();
      case Method::kTree: return treeBandwidth(protocol) / 2;
      case Method::kNvls:
      case Method::kNvlsTree: return protocol == Protocol::kSimple ? switchBandwidth(method) : 0;
      case Method::kCollnetDirect:
      case Method::kCollnetChain:
        return protocol == Protocol::kSimple && nodes_ > 1 ? collnetBandwidth(method) : 0;
      case Method::kPat: {
        const bool fits = nodes_ > 1 && graphs_.mostRanksPerNode == 1;
        return protocol == Protocol::kSimple && fits ? busBandwidth(graph) * .75 : 0;
      }
    }
    return 0;
  }

  double busBandwidth(const GraphSummary& graph) const {
    return graph.channelCount * (nodes_ <= 2 ? graph.intraGbPerSecond : graph.interGbPerSecond);
  }

  // Lines of 128 bytes must arrive whole: over NVLink, and to a NIC next to the GPU.
  bool allowsLl128(const GraphSummary& graph) const {
    if (graphs_.smVersion < 70 || !topology::isWithin(graph.intraKind, PathKind::kNvb))
      return false;
    return nodes_ == 1 || topology::isWithin(graph.interKind, PathKind::kPxn);
  }

  double ringBandwidth(Protocol protocol) const {
    const double bus = busBandwidth(graphs_.ring);
    switch (protocol) {
      case Protocol::kSimple: return bus;
      case Protocol::kLl128: return allowsLl128(graphs_.ring) ? bus * .92 : 0;
      case Protocol::kLl: {
        const bool folds = isAllReduce() || collective_ == Collective::kReduce;
        const double share =
            nodes_ > 1 || folds ? constants_.ringLlShare : constants_.ringLlShareInside;
        return std::min(caps_->llGbPerSecond[nodesIndex_], bus * share);
      }
    }
    return 0;
  }

  double treeBandwidth(Protocol protocol) const {
    const GraphSummary& tree = graphs_.tree;
    double bus = std::min(busBandwidth(tree) * .92,
                          tree.channelCount * caps_->treeGbPerSecondPerChannel[nodesIndex_]);
    if (protocol == Protocol::kLl) bus = std::min(bus / 3.8, caps_->llGbPerSecond[nodesIndex_]);
    if (protocol == Protocol::kLl128) {
      if (!allowsLl128(tree)) return 0;
      bus *= nodes_ == 1 ? 7.0 / 9 : 120.0 / 128;
    }
    return tree.pattern == Pattern::kTree ? bus * .85 : bus;
  }

  double switchBandwidth(Method method) const {
    const GraphSummary& graph = graphs_.switched;
    const bool isBetween = method == Method::kNvlsTree;
    if (graph.channelCount < 2 || isBetween != (nodes_ > 1) || caps_->switchEfficiency == 0)
      return 0;
    const double channels = graph.channelCount;
    const int32_t local = graphs_.mostRanksPerNode;
    double each = graph.intraGbPerSecond * caps_->switchEfficiency * (channels - 1) / channels;
    each *= isAllReduce() ? 2.0 : (local - 1.0) / local;
    if (nodes_ > 1) each = std::min(each, graph.interGbPerSecond);
    return channels * each * (isAllReduce() ? static_cast<double>(ranks_) / steps() : 1);
  }

  double collnetBandwidth(Method method) const {
    if (method == Method::kCollnetChain)
      return graphs_.chain.channelCount * graphs_.chain.intraGbPerSecond / 2;
    const GraphSummary& graph = graphs_.direct;
    const double gpusPerPort =
        std::max(1.0, static_cast<double>(graphs_.mostRanksPerNode) / graph.channelCount);
    const double efficiency = graphs_.smVersion >= 90 ? .85 : 1;
    return graph.channelCount * graph.intraGbPerSecond * efficiency / gpusPerPort / 2;
  }

  double latency(Method method, Protocol protocol) const {
    const GraphSummary& graph = graphOf(method);
    const bool isNvLink = topology::isWithin(graph.intraKind, PathKind::kNvb);
    const double intra =
        valueOf(isNvLink ? constants_.nvLinkUs : constants_.pciUs, method, protocol);
    double inter = valueOf(constants_.networkUs, method, protocol) + graph.interLatencyUs;
    if (protocol == Protocol::kSimple) inter += graph.interLatencyUs;  // the flush
    const double base = valueOf(constants_.baseUs, method, protocol);
    const double levels = std::floor(std::log2(nodes_));
    const int32_t local = graphs_.mostRanksPerNode;
    switch (method) {
      case Method::kRing: return base + ringLatency(protocol, intra, inter);
      case Method::kTree: return base + 2 * ((ranks_ / nodes_ - 1) * intra + levels * inter);
      case Method::kCollnetDirect:
        return base + 2 * (std::min(1, local - 1) * intra + (local - 1) * .4) +
               (protocol == Protocol::kSimple ? inter : 0);
      case Method::kCollnetChain:
        return base + 2 * (local - 1) * intra + (protocol == Protocol::kSimple ? inter : 0);
      case Method::kNvls: return base + intra + (nodes_ > 1 ? inter : 0);
      case Method::kNvlsTree: return base + intra + 2 * levels * inter;
      case Method::kPat: return base + levels * (inter / 3.5) + 2.8 * ranks_;
    }
    return base;
  }

  double ringLatency(Protocol protocol, double intra, double inter) const {
    if (!isAllReduce() && !isHalf()) {
      // A chain: with one order on all channels its chunks follow each other hop by hop.
      const double hop = nodes_ > 1 ? inter : intra;
      return graphs_.ring.sameChannels ? hop : steps() * hop;
    }
    double overhead = nodes_ > 1 ? graphs_.networkOverheadUs : 0;
    if (protocol == Protocol::kSimple) overhead *= constants_.networkSimpleFactor;
    return (steps() - stepsBetweenNodes()) * std::max(intra, overhead) +
           stepsBetweenNodes() * inter;
  }

  const ClusterGraphs& graphs_;
  const NcclConstants& constants_;
  Collective collective_;
  int32_t nodes_;
  int32_t ranks_;
  const GenerationCaps* caps_ = nullptr;
  size_t nodesIndex_ = 0;
};

// More channels than this many bytes can feed only add latency.
constexpr uint64_t channelBytes(Protocol protocol) {
  switch (protocol) {
    case Protocol::kLl: return 512 * 8;
    case Protocol::kLl128: return 640 * 8;
    case Protocol::kSimple: return 512 * 64;
  }
  return 1;
}

}  // namespace

std::string_view nameOf(Method method) {
  switch (method) {
    case Method::kTree: return "Tree";
    case Method::kRing: return "Ring";
    case Method::kCollnetDirect: return "CollNetDirect";
    case Method::kCollnetChain: return "CollNetChain";
    case Method::kNvls: return "NVLS";
    case Method::kNvlsTree: return "NVLSTree";
    case Method::kPat: return "PAT";
  }
  return "?";
}

std::string_view nameOf(Protocol protocol) {
  switch (protocol) {
    case Protocol::kLl: return "LL";
    case Protocol::kLl128: return "LL128";
    case Protocol::kSimple: return "Simple";
  }
  return "?";
}

CostTable makeCostTable(const ClusterGraphs& graphs, const NcclConstants& constants) {
  CostTable table;
  for (const Collective collective : kCollectives) {
    const Model model(graphs, constants, collective);
    for (const Method method : kMethods) {
      for (const Protocol protocol : kProtocols)
        table.at(collective, method, protocol) = model.cost(method, protocol);
    }
  }
  return table;
}

namespace {

GraphSummary clampChannels(GraphSummary graph, int32_t most) {
  graph.channelCount = std::min(graph.channelCount, most);
  return graph;
}

ClusterGraphs clampChannels(ClusterGraphs graphs, int32_t most) {
  graphs.ring = clampChannels(graphs.ring, most);
  graphs.tree = clampChannels(graphs.tree, most);
  graphs.chain = clampChannels(graphs.chain, most);
  graphs.direct = clampChannels(graphs.direct, most);
  graphs.switched = clampChannels(graphs.switched, most);
  return graphs;
}

}  // namespace

MethodChooser::MethodChooser(const ClusterGraphs& graphs, const NcclConstants& constants,
                             const Limits& limits)
    : graphs_(clampChannels(graphs, std::max(limits.maxChannels, 1))),
      constants_(constants),
      minChannels_(std::clamp(limits.minChannels, 1, std::max(limits.maxChannels, 1))),
      table_(makeCostTable(graphs_, constants)) {
  for (const Collective collective : kCollectives) {
    for (const Method method : kMethods) {
      for (const Protocol protocol : kProtocols) {
        const MethodCost& cost = table_.at(collective, method, protocol);
        if (cost.gbPerSecond <= 0 || !limits.methods.allows(collective, nameOf(method)) ||
            !limits.protocols.allows(collective, nameOf(protocol)))
          continue;
        candidates_[static_cast<size_t>(collective)].push_back({method, protocol, cost});
      }
    }
  }
}

double MethodChooser::timeUs(Collective collective, const Candidate& candidate, uint64_t bytes,
                             int32_t operations) const {
  double latency = candidate.cost.latencyUs;
  double bandwidth = candidate.cost.gbPerSecond;
  const auto size = static_cast<size_t>(std::bit_width(std::max<uint64_t>(bytes >> 6, 1)) - 1);
  if (candidate.method == Method::kTree && size < kTreeSizes)
    bandwidth *= constants_.treeShare[static_cast<size_t>(candidate.protocol)][size];
  const uint64_t perStep = bytes / (static_cast<uint64_t>(graphs_.ring.channelCount) *
                                    static_cast<uint64_t>(graphs_.rankCount));
  if (candidate.method == Method::kRing && candidate.protocol == Protocol::kSimple &&
      graphs_.nodeCount > 1 && collective == Collective::kAllReduce && perStep >= 64)
    latency *= graphs_.smVersion >= 80 ? constants_.plateauFactor : constants_.plateauFactorOld;
  const int32_t waits =
      candidate.method == Method::kRing ? operations : static_cast<int32_t>((operations + 7) / 8);
  return latency * waits + static_cast<double>(bytes) / (1000 * bandwidth);
}

MethodChoice MethodChooser::finish(Collective collective, const Candidate& candidate,
                                   uint64_t bytes, int32_t operations) const {
  const GraphSummary& graph =
      candidate.method == Method::kTree            ? graphs_.tree
      : candidate.method == Method::kCollnetDirect ? graphs_.direct
      : candidate.method == Method::kCollnetChain  ? graphs_.chain
      : candidate.method == Method::kNvls || candidate.method == Method::kNvlsTree
          ? graphs_.switched
          : graphs_.ring;
  const uint64_t wanted = bytes / channelBytes(candidate.protocol);
  const auto most = static_cast<uint64_t>(std::max(graph.channelCount, minChannels_));
  return {.method = candidate.method,
          .protocol = candidate.protocol,
          .channelCount =
              static_cast<int32_t>(std::clamp(wanted, static_cast<uint64_t>(minChannels_), most)),
          .timeUs = timeUs(collective, candidate, bytes, operations)};
}

Result<MethodChoice> MethodChooser::choose(Collective collective, uint64_t bytes,
                                           int32_t operations) const {
  const auto& candidates = candidates_[static_cast<size_t>(collective)];
  const Candidate* best = nullptr;
  double bestUs = 0;
  for (const Candidate& each : candidates) {
    const double us = timeUs(collective, each, bytes, operations);
    if (best != nullptr && us >= bestUs) continue;
    best = &each;
    bestUs = us;
  }
  if (best == nullptr) {
    return invalidUsage("{}: NCCL_ALGO and NCCL_PROTO leave no algorithm on {} ranks of {} nodes",
                        name(collective), graphs_.rankCount, graphs_.nodeCount);
  }
  return finish(collective, *best, bytes, operations);
}

std::vector<MethodChoice> MethodChooser::rank(Collective collective, uint64_t bytes) const {
  std::vector<MethodChoice> all;
  for (const Candidate& each : candidates_[static_cast<size_t>(collective)])
    all.push_back(finish(collective, each, bytes, 1));
  std::ranges::stable_sort(all, {}, &MethodChoice::timeUs);
  return all;
}

std::vector<std::pair<uint64_t, MethodChoice>> MethodChooser::switches(
    Collective collective) const {
  std::vector<std::pair<uint64_t, MethodChoice>> found;
  if (candidates_[static_cast<size_t>(collective)].empty()) return found;
  constexpr int kFirstPower = 6, kLastPower = 34;
  for (int power = kFirstPower; power <= kLastPower; ++power) {
    const uint64_t bytes = uint64_t{1} << power;
    const MethodChoice best = rank(collective, bytes).front();
    const bool isSame = !found.empty() && found.back().second.method == best.method &&
                        found.back().second.protocol == best.protocol;
    if (!isSame) found.emplace_back(bytes, best);
  }
  return found;
}

std::string describe(const CostTable& table) {
  std::string text = fmt::format("{:<13}", "us / GB/s");
  for (const Protocol protocol : kProtocols) text += fmt::format(" {:>16}", nameOf(protocol));
  text += '\n';
  for (const Collective collective : kCollectives) {
    for (const Method method : kMethods) {
      const auto isUsable = [&](Protocol protocol) {
        return table.at(collective, method, protocol).gbPerSecond > 0;
      };
      if (std::ranges::none_of(kProtocols, isUsable)) continue;
      text += fmt::format("{:<13}", fmt::format("{} {}", name(collective), nameOf(method)));
      for (const Protocol protocol : kProtocols) {
        const MethodCost& cost = table.at(collective, method, protocol);
        text += fmt::format(" {:>8.1f}/{:>7.1f}", cost.latencyUs, cost.gbPerSecond);
      }
      text += '\n';
    }
  }
  return text;
}

}  // namespace tutti::graph
