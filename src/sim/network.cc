#include "sim/network.h"

#include <algorithm>
#include <cmath>

#include "base/fnv.h"

namespace tutti::sim {
namespace {

int32_t divideUp32(int32_t value, int32_t divisor) { return (value + divisor - 1) / divisor; }

}  // namespace

std::string_view nameOf(Shape shape) {
  switch (shape) {
    case Shape::kSwitch: return "switch";
    case Shape::kRails: return "rails";
    case Shape::kLeafSpine: return "leaf_spine";
    case Shape::kFatTree: return "fat_tree";
    case Shape::kDragonfly: return "dragonfly";
  }
  return "?";
}

std::string_view nameOf(Routing routing) {
  switch (routing) {
    case Routing::kHash: return "hash";
    case Routing::kBalanced: return "balanced";
  }
  return "?";
}

Network::Network(const NetworkDescription& description, std::vector<NetworkPort> ports)
    : description_(description), ports_(std::move(ports)) {
  for (int way = 0; way < 2; ++way) {
    for (const NetworkPort& port : ports_) {
      const double limit = description_.portGbPerSecond;
      capacities_.push_back(limit > 0 ? std::min(limit, port.gbPerSecond) : port.gbPerSecond);
    }
  }
  int32_t nodeCount = 0;
  int32_t railCount = description_.railCount;
  for (const NetworkPort& port : ports_) {
    nodeCount = std::max(nodeCount, port.node + 1);
    if (description_.railCount == 0) railCount = std::max(railCount, port.rail + 1);
  }
  description_.railCount = railCount;
  leavesPerRail_ = std::max(1, divideUp32(nodeCount, description_.nodesPerLeaf));
  switch (description_.shape) {
    case Shape::kSwitch: leafCount_ = 1; return;
    case Shape::kRails:
      leafCount_ = leavesPerRail_ * std::max(1, railCount);
      addUplinks();
      return;
    case Shape::kLeafSpine:
      leafCount_ = leavesPerRail_;
      addUplinks();
      return;
    case Shape::kFatTree:
      leafCount_ = leavesPerRail_;
      addUplinks();
      addPods();
      return;
    case Shape::kDragonfly:
      leafCount_ = leavesPerRail_;
      addDragonfly();
      return;
  }
}

int32_t Network::leafOf(int32_t port) const {
  const NetworkPort& it = ports_[static_cast<size_t>(port)];
  const int32_t byNode = it.node / description_.nodesPerLeaf;
  switch (description_.shape) {
    case Shape::kSwitch: return 0;
    case Shape::kRails: return it.rail % description_.railCount * leavesPerRail_ + byNode;
    case Shape::kLeafSpine:
    case Shape::kFatTree:
    case Shape::kDragonfly: return byNode;
  }
  return 0;
}

// Each leaf has a link to each spine; together they carry what its ports do, less what is saved.
void Network::addUplinks() {
  std::vector<double> below(static_cast<size_t>(leafCount_));
  std::vector<int32_t> counts(static_cast<size_t>(leafCount_));
  for (int32_t port = 0; port < portCount(); ++port) {
    const auto leaf = static_cast<size_t>(leafOf(port));
    below[leaf] += gbPerSecond(port);
    ++counts[leaf];
  }
  spineCount_ = description_.spineCount;
  if (spineCount_ == 0) {
    const int32_t most = counts.empty() ? 1 : *std::ranges::max_element(counts);
    spineCount_ =
        std::max(1, static_cast<int32_t>(std::ceil(most / description_.oversubscription)));
  }
  firstUp_ = linkCount();
  for (int way = 0; way < 2; ++way) {
    if (way == 1) firstDown_ = linkCount();
    for (const double total : below) {
      const double each = total / description_.oversubscription / spineCount_;
      capacities_.insert(capacities_.end(), static_cast<size_t>(spineCount_), each);
    }
  }
}

// The spines above are the aggregation switches of each pod; each has cores of its own, which join
// the switches of its number in all pods.
Network::Tiers Network::tiers() const {
  const bool hasCores = description_.shape == Shape::kFatTree;
  return {.leafCount = leafCount_,
          .spinesPerPod = spineCount_,
          .podCount = hasCores ? groupCount_ : 1,
          .coresPerSpine = hasCores ? corePerAgg_ : 0,
          .leafUpGbPerSecond = gbPerSecond(firstUp_),
          .spineUpGbPerSecond = hasCores ? gbPerSecond(firstCoreUp_) : 0};
}

void Network::addPods() {
  groupCount_ = divideUp32(leafCount_, description_.leavesPerPod);
  corePerAgg_ = std::max(1, static_cast<int32_t>(std::ceil(description_.leavesPerPod /
                                                           description_.coreOversubscription)));
  firstCoreUp_ = linkCount();
  for (int way = 0; way < 2; ++way) {
    if (way == 1) firstCoreDown_ = linkCount();
    for (int32_t pod = 0; pod < groupCount_; ++pod) {
      for (int32_t agg = 0; agg < spineCount_; ++agg) {
        double below = 0;
        const int32_t end = std::min(leafCount_, (pod + 1) * description_.leavesPerPod);
        for (int32_t leaf = pod * description_.leavesPerPod; leaf < end; ++leaf)
          below += gbPerSecond(firstUp_ + leaf * spineCount_ + agg);
        const double each = below / description_.coreOversubscription / corePerAgg_;
        capacities_.insert(capacities_.end(), static_cast<size_t>(corePerAgg_), each);
      }
    }
  }
}

void Network::addDragonfly() {
  const int32_t routers = description_.leavesPerPod;
  groupCount_ = divideUp32(leafCount_, routers);
  std::vector<double> below(static_cast<size_t>(groupCount_ * routers));
  for (int32_t port = 0; port < portCount(); ++port)
    below[static_cast<size_t>(leafOf(port))] += gbPerSecond(port);
  const double usual = below.empty() ? 0 : *std::ranges::max_element(below);
  const auto orUsual = [usual](double given) { return given > 0 ? given : usual; };
  firstUp_ = linkCount();
  const auto locals = static_cast<size_t>(groupCount_) * static_cast<size_t>(routers * routers);
  capacities_.insert(capacities_.end(), locals, orUsual(description_.localGbPerSecond));
  firstCoreUp_ = linkCount();
  const auto globals = static_cast<size_t>(groupCount_) * static_cast<size_t>(groupCount_);
  capacities_.insert(capacities_.end(), globals, orUsual(description_.globalGbPerSecond));
}

template <typename IsOpen>
int32_t Network::pick(const Ends& ends, int32_t wayCount, IsOpen isOpen) const {
  uint64_t start = static_cast<uint64_t>(ends.to);
  if (description_.routing == Routing::kHash) {
    Fnv hash;
    hash.add(description_.seed);
    hash.add(static_cast<uint64_t>(ends.from));
    hash.add(static_cast<uint64_t>(ends.to));
    hash.add(ends.flow);
    start = hash.value();
  } else {
    // Receivers below one leaf are neighbours by node, so the node spreads them best.
    const NetworkPort& port = ports_[static_cast<size_t>(ends.to)];
    start = static_cast<uint64_t>(port.node) + static_cast<uint64_t>(port.rail);
  }
  for (int32_t i = 0; i < wayCount; ++i) {
    const auto way =
        static_cast<int32_t>((start + static_cast<uint64_t>(i)) % static_cast<uint64_t>(wayCount));
    if (isOpen(way)) return way;
  }
  return -1;
}

Status Network::noWay(const Ends& ends) const {
  return invalidArgument("network: failed links leave no way from {} to {}",
                         nameOf(upLink(ends.from)), nameOf(downLink(ends.to)));
}

Status Network::route(const Ends& ends, std::vector<int32_t>& links) const {
  if (!isOpen(upLink(ends.from)) || !isOpen(downLink(ends.to))) return noWay(ends);
  links.push_back(upLink(ends.from));
  if (leafOf(ends.from) != leafOf(ends.to)) {
    switch (description_.shape) {
      case Shape::kSwitch: break;
      case Shape::kRails:
      case Shape::kLeafSpine: TUTTI_TRY(routeOverSpines(ends, links)); break;
      case Shape::kFatTree: TUTTI_TRY(routeOverPods(ends, links)); break;
      case Shape::kDragonfly: TUTTI_TRY(routeOverGroups(ends, links)); break;
    }
  }
  links.push_back(downLink(ends.to));
  return {};
}

Status Network::routeOverSpines(const Ends& ends, std::vector<int32_t>& links) const {
  const int32_t up = firstUp_ + leafOf(ends.from) * spineCount_;
  const int32_t down = firstDown_ + leafOf(ends.to) * spineCount_;
  const int32_t spine = pick(
      ends, spineCount_, [&](int32_t each) { return isOpen(up + each) && isOpen(down + each); });
  if (spine < 0) return noWay(ends);
  links.push_back(up + spine);
  links.push_back(down + spine);
  return {};
}

Status Network::routeOverPods(const Ends& ends, std::vector<int32_t>& links) const {
  const int32_t fromPod = leafOf(ends.from) / description_.leavesPerPod;
  const int32_t toPod = leafOf(ends.to) / description_.leavesPerPod;
  if (fromPod == toPod) return routeOverSpines(ends, links);
  const int32_t up = firstUp_ + leafOf(ends.from) * spineCount_;
  const int32_t down = firstDown_ + leafOf(ends.to) * spineCount_;
  const auto coreUp = [&](int32_t way) {
    return firstCoreUp_ + (fromPod * spineCount_ + way / corePerAgg_) * corePerAgg_ +
           way % corePerAgg_;
  };
  const auto coreDown = [&](int32_t way) {
    return firstCoreDown_ + (toPod * spineCount_ + way / corePerAgg_) * corePerAgg_ +
           way % corePerAgg_;
  };
  const int32_t way = pick(ends, spineCount_ * corePerAgg_, [&](int32_t each) {
    const int32_t agg = each / corePerAgg_;
    return isOpen(up + agg) && isOpen(down + agg) && isOpen(coreUp(each)) && isOpen(coreDown(each));
  });
  if (way < 0) return noWay(ends);
  links.insert(links.end(),
               {up + way / corePerAgg_, coreUp(way), coreDown(way), down + way / corePerAgg_});
  return {};
}

// Within a group one hop; otherwise to the router that has the link to the other group, over it,
// and on to the receiver's router.
Status Network::routeOverGroups(const Ends& ends, std::vector<int32_t>& links) const {
  const int32_t routers = description_.leavesPerPod;
  const auto step = [&](int32_t group, int32_t from, int32_t to) {
    const int32_t link = firstUp_ + (group * routers + from) * routers + to;
    if (from != to) links.push_back(link);
    return from == to || isOpen(link);
  };
  const int32_t from = leafOf(ends.from), to = leafOf(ends.to);
  const int32_t fromGroup = from / routers, toGroup = to / routers;
  if (fromGroup == toGroup)
    return step(fromGroup, from % routers, to % routers) ? Status() : noWay(ends);
  const bool isOut = step(fromGroup, from % routers, toGroup % routers);
  const int32_t global = firstCoreUp_ + fromGroup * groupCount_ + toGroup;
  links.push_back(global);
  const bool isIn = step(toGroup, fromGroup % routers, to % routers);
  return isOut && isIn && isOpen(global) ? Status() : noWay(ends);
}

std::string Network::nameOf(int32_t link) const {
  const bool isDragonfly = description_.shape == Shape::kDragonfly;
  const char* leafName = isDragonfly ? "router" : "leaf";
  if (link < 2 * portCount()) {
    const int32_t port = link % portCount();
    const NetworkPort& it = ports_[static_cast<size_t>(port)];
    const std::string end = fmt::format("node {} port {}", it.node, it.rail);
    const std::string leaf = fmt::format("{} {}", leafName, leafOf(port));
    return link < portCount() ? fmt::format("{} -> {}", end, leaf)
                              : fmt::format("{} -> {}", leaf, end);
  }
  if (isDragonfly) {
    const int32_t routers = description_.leavesPerPod;
    if (link >= firstCoreUp_) {
      const int32_t pair = link - firstCoreUp_;
      return fmt::format("group {} -> group {}", pair / groupCount_, pair % groupCount_);
    }
    const int32_t at = link - firstUp_;
    const int32_t first = at / (routers * routers) * routers;
    return fmt::format("router {} -> router {}", first + at / routers % routers,
                       first + at % routers);
  }
  const bool isFat = description_.shape == Shape::kFatTree;
  if (isFat && link >= firstCoreUp_) {
    const bool isDown = link >= firstCoreDown_;
    const int32_t at = link - (isDown ? firstCoreDown_ : firstCoreUp_);
    const int32_t agg = at / corePerAgg_ % spineCount_;
    const std::string pod = fmt::format("pod {} switch {}", at / corePerAgg_ / spineCount_, agg);
    const std::string core = fmt::format("core {}", agg * corePerAgg_ + at % corePerAgg_);
    return isDown ? fmt::format("{} -> {}", core, pod) : fmt::format("{} -> {}", pod, core);
  }
  const bool isDown = link >= firstDown_;
  const int32_t at = link - (isDown ? firstDown_ : firstUp_);
  const std::string leaf = fmt::format("leaf {}", at / spineCount_);
  const std::string spine = fmt::format("{} {}", isFat ? "pod switch" : "spine", at % spineCount_);
  return isDown ? fmt::format("{} -> {}", spine, leaf) : fmt::format("{} -> {}", leaf, spine);
}

}  // namespace tutti::sim
