#include "graph/fabric.h"

#include <algorithm>
#include <set>

#include "topology/bandwidths.h"

namespace tutti::graph {

using topology::isWithin;
using topology::NodeId;
using topology::NodeKind;
using topology::PathKind;

Fabric::Fabric(const topology::Topology& topology, const topology::Paths& paths, const Ends& ends)
    : gpuCount_(static_cast<int32_t>(ends.gpus.size())),
      ends_(ends.gpus),
      numberOf_(topology.links.size(), -1) {
  ends_.insert(ends_.end(), ends.ports.begin(), ends.ports.end());
  routes_.reserve(ends_.size() * ends_.size());
  for (const NodeId from : ends_) {
    for (const NodeId to : ends_) routes_.push_back(makeRoute(topology, paths.between(from, to)));
  }
  for (int32_t one = 0; one < gpuCount_; ++one) {
    for (int32_t other = 0; other < gpuCount_; ++other) twins_.push_back(findTwins(one, other));
  }
}

namespace {

// What must be swapped with what, as it turns out hop by hop.
class Swap {
 public:
  Swap(const std::vector<double>& capacities)
      : capacities_(capacities), to_(capacities.size(), -1) {}

  bool match(const Route& one, const Route& other) {
    if (one.kind != other.kind || one.hops.size() != other.hops.size()) return false;
    for (size_t i = 0; i < one.hops.size(); ++i) {
      const RouteHop& here = one.hops[i];
      const RouteHop& there = other.hops[i];
      if (here.weight != there.weight || !matchLinks(here.link, there.link)) return false;
    }
    return true;
  }
  std::vector<std::pair<int32_t, int32_t>> links() const {
    std::vector<std::pair<int32_t, int32_t>> pairs;
    for (size_t i = 0; i < to_.size(); ++i) {
      const auto from = static_cast<int32_t>(i);
      if (to_[i] > from) pairs.emplace_back(from, to_[i]);
    }
    return pairs;
  }

 private:
  bool matchLinks(int32_t one, int32_t other) {
    int32_t& forth = to_[static_cast<size_t>(one)];
    int32_t& back = to_[static_cast<size_t>(other)];
    if (forth < 0 && back < 0) {
      forth = other;
      back = one;
    }
    return forth == other && back == one &&
           capacities_[static_cast<size_t>(one)] == capacities_[static_cast<size_t>(other)];
  }

  const std::vector<double>& capacities_;
  std::vector<int32_t> to_;  // -1: not met yet
};

}  // namespace

std::optional<Fabric::Twins> Fabric::findTwins(int32_t one, int32_t other) const {
  if (one == other) return std::nullopt;
  Swap swap(capacities_);
  if (!swap.match(route(one, other), route(other, one))) return std::nullopt;
  for (int32_t end = 0; end < gpuCount_ + portCount(); ++end) {
    if (end == one || end == other) continue;
    if (!swap.match(route(one, end), route(other, end)) ||
        !swap.match(route(end, one), route(end, other)))
      return std::nullopt;
  }
  Twins twins{swap.links()};
  return isApart(twins, one, other) ? std::optional(std::move(twins)) : std::nullopt;
}

// Whether nobody else passes the links that are swapped.
bool Fabric::isApart(const Twins& twins, int32_t one, int32_t other) const {
  std::vector<bool> isSwapped(capacities_.size(), false);
  for (const auto& [here, there] : twins.links) {
    isSwapped[static_cast<size_t>(here)] = isSwapped[static_cast<size_t>(there)] = true;
  }
  for (int32_t from = 0; from < gpuCount_ + portCount(); ++from) {
    if (from == one || from == other) continue;
    for (int32_t to = 0; to < gpuCount_ + portCount(); ++to) {
      if (to == one || to == other) continue;
      for (const RouteHop& hop : route(from, to).hops) {
        if (isSwapped[static_cast<size_t>(hop.link)]) return false;
      }
    }
  }
  return true;
}

Route Fabric::makeRoute(const topology::Topology& topology, const topology::Path& path) {
  Route route{.kind = path.kind, .hops = {}};
  const bool isPeer =
      topology[path.from].kind == NodeKind::kGpu && topology[path.to].kind == NodeKind::kGpu;
  const auto isIntelCpu = [&](NodeId node) {
    return topology[node].kind == NodeKind::kCpu &&
           topology[node].cpu.vendor == topology::CpuVendor::kIntel;
  };
  bool passesIntel = false;
  for (const topology::LinkId hop : path.hops) passesIntel |= isIntelCpu(topology[hop].to);
  for (const topology::LinkId hop : path.hops) {
    int32_t& number = numberOf_[topology::index(hop)];
    if (number < 0) {
      number = static_cast<int32_t>(capacities_.size());
      capacities_.push_back(topology[hop].gbPerSecond);
    }
    const bool isSlowed = isPeer && passesIntel && topology[hop].kind == topology::LinkKind::kPci;
    route.hops.push_back({number, isSlowed ? topology::kIntelPeerOverhead : 1});
  }
  return route;
}

std::vector<PathKind> Fabric::kinds(int32_t firstTarget, int32_t lastTarget) const {
  std::vector<PathKind> found;
  for (int32_t from = 0; from < gpuCount_; ++from) {
    for (int32_t to = firstTarget; to < lastTarget; ++to) {
      const Route& each = route(from, to);
      if (from != to && each.isUsable() && std::ranges::find(found, each.kind) == found.end())
        found.push_back(each.kind);
    }
  }
  std::ranges::sort(found, topology::isCloser);
  return found;
}

std::vector<PathKind> Fabric::kindsBetweenGpus() const { return kinds(0, gpuCount_); }
std::vector<PathKind> Fabric::kindsToPorts() const {
  return kinds(gpuCount_, gpuCount_ + portCount());
}

double Fabric::widthOfEnds(int32_t gpu, const Kinds& limits, bool isOut) const {
  // The links at the GPU itself, each once.
  std::set<int32_t> links;
  for (int32_t other = 0; other < gpuCount_ + portCount(); ++other) {
    const Route& each = isOut ? route(gpu, other) : route(other, gpu);
    const PathKind limit = other < gpuCount_ ? limits.intra : limits.inter;
    if (other == gpu || !each.isUsable() || !isWithin(each.kind, limit)) continue;
    links.insert(isOut ? each.hops.front().link : each.hops.back().link);
  }
  double width = 0;
  for (const int32_t link : links) width += capacities_[static_cast<size_t>(link)];
  return width;
}

double Fabric::widthOut(int32_t gpu, const Kinds& limits) const {
  return widthOfEnds(gpu, limits, true);
}
double Fabric::widthIn(int32_t gpu, const Kinds& limits) const {
  return widthOfEnds(gpu, limits, false);
}

bool Fabric::isConnected(PathKind limit) const {
  std::vector<int32_t> reached{0};
  std::vector<bool> isReached(static_cast<size_t>(gpuCount_), false);
  isReached[0] = true;
  for (size_t i = 0; i < reached.size(); ++i) {
    for (int32_t gpu = 0; gpu < gpuCount_; ++gpu) {
      const Route& each = route(reached[i], gpu);
      if (isReached[static_cast<size_t>(gpu)] || !each.isUsable() || !isWithin(each.kind, limit))
        continue;
      isReached[static_cast<size_t>(gpu)] = true;
      reached.push_back(gpu);
    }
  }
  return reached.size() == isReached.size();
}

// What any route of the GPU takes of each link.
void Fabric::addLeastUse(int32_t gpu, const Kinds& limits, bool isOut,
                         std::vector<double>& use) const {
  bool isFirst = true;
  std::vector<double> own(capacities_.size());
  for (int32_t other = 0; other < gpuCount_ + portCount(); ++other) {
    const Route& each = isOut ? route(gpu, other) : route(other, gpu);
    const PathKind limit = other < gpuCount_ ? limits.intra : limits.inter;
    if (other == gpu || !each.isUsable() || !isWithin(each.kind, limit)) continue;
    own.assign(own.size(), 0);
    for (const RouteHop& hop : each.hops) own[static_cast<size_t>(hop.link)] += hop.weight;
    for (size_t i = 0; i < use.size(); ++i) use[i] = isFirst ? own[i] : std::min(use[i], own[i]);
    isFirst = false;
  }
}

double Fabric::widthOfLinks(const Kinds& limits, bool isChain) const {
  double width = topology::kLocalGbPerSecond;
  for (const bool isOut : {true, false}) {
    std::vector<double> sum(capacities_.size()), first(sum), second(sum);
    for (int32_t gpu = 0; gpu < gpuCount_; ++gpu) {
      std::vector<double> use(capacities_.size());
      addLeastUse(gpu, limits, isOut, use);
      for (size_t i = 0; i < use.size(); ++i) {
        sum[i] += use[i];
        second[i] = std::max(second[i], std::min(first[i], use[i]));
        first[i] = std::max(first[i], use[i]);
      }
    }
    for (size_t i = 0; i < sum.size(); ++i) {
      const double least = isChain ? sum[i] - (first[i] + second[i]) / 2 : sum[i];
      if (least > 0) width = std::min(width, capacities_[i] / least);
    }
  }
  return width;
}

double Fabric::widthOfPorts(PathKind limit) const {
  double width = 0;
  for (int32_t port = gpuCount_; port < gpuCount_ + portCount(); ++port) {
    double widest = 0;
    for (int32_t gpu = 0; gpu < gpuCount_; ++gpu) {
      const Route& each = route(gpu, port);
      if (!each.isUsable() || !isWithin(each.kind, limit)) continue;
      double narrowest = topology::kLocalGbPerSecond;
      for (const RouteHop& hop : each.hops)
        narrowest = std::min(narrowest, capacities_[static_cast<size_t>(hop.link)] / hop.weight);
      widest = std::max(widest, narrowest);
    }
    width += widest;
  }
  return width;
}

}  // namespace tutti::graph
