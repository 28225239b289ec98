#include "graph/packing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

namespace tutti::graph {
namespace {

using topology::isWithin;
using topology::PathKind;

constexpr double kSlack = 1e-6;  // of rounding, in GB/s

size_t farness(PathKind kind) {
  // Few kinds lie between two: counting them gives a number to sort by.
  constexpr std::array kAll = {PathKind::kLoc, PathKind::kNvl, PathKind::kNvb, PathKind::kC2c,
                               PathKind::kPix, PathKind::kPxb, PathKind::kP2c, PathKind::kPxn,
                               PathKind::kPhb, PathKind::kSys, PathKind::kNet, PathKind::kDis};
  return static_cast<size_t>(
      std::ranges::count_if(kAll, [&](PathKind each) { return isCloser(each, kind); }));
}

// What of a tree's traffic with the network the GPU at this position of the chain has.
double portShare(Pattern pattern, int32_t gpuCount, size_t position) {
  const bool isAlone = gpuCount == 1;
  switch (pattern) {
    case Pattern::kSplitTree: return position == 0 ? (isAlone ? 1 : .5) : (position == 1 ? .5 : 0);
    case Pattern::kBalancedTree:
      return position == 0 ? (isAlone ? 1 : .75) : (position == 1 ? .25 : 0);
    case Pattern::kRing:
    case Pattern::kTree:
    case Pattern::kSwitch:
    case Pattern::kDirect: break;
  }
  return position == 0 ? 1 : 0;
}

}  // namespace

Packer::Packer(const Fabric& fabric, const PackingTask& task, int64_t patience, int64_t& budget)
    : fabric_(fabric),
      task_(task),
      patience_(patience),
      stepsLeft_(patience),
      budget_(budget),
      hasPorts_(fabric.portCount() > 0),
      left_(fabric.capacities()),
      isVisited_(static_cast<size_t>(fabric.gpuCount()), false) {}

std::vector<PackedChannel> Packer::run() {
  addChannel();
  return std::move(best_);
}

bool Packer::isDone() const {
  return stepsLeft_ <= 0 || budget_ <= 0 || best_.size() >= static_cast<size_t>(task_.mostChannels);
}

void Packer::addChannel() {
  if (channels_.size() > best_.size()) {
    best_ = channels_;
    stepsLeft_ = patience_;
  }
  if (isDone()) return;
  if (task_.sameOrder && !channels_.empty()) {
    addSameAgain();
    return;
  }
  const std::vector<Choice> choices = starts();
  for (size_t i = 0; i < choices.size(); ++i) {
    if (isLikeOneBefore(choices, i)) continue;
    startAt(choices[i].end, choices[i].port);
    if (isDone()) return;
  }
}

// The last channel once more, by any port that still has room.
void Packer::addSameAgain() {
  const std::vector<int32_t> order = channels_.back().gpus;
  for (const Choice& start : starts()) {
    if (start.end != order.front()) continue;
    isVisited_.assign(isVisited_.size(), true);
    for (const int32_t gpu : order) isVisited_[static_cast<size_t>(gpu)] = false;
    startAt(start.end, start.port);
    isVisited_.assign(isVisited_.size(), false);
    if (isDone()) return;
  }
}

void Packer::startAt(int32_t gpu, int32_t port) {
  --stepsLeft_;
  --budget_;
  const double speed = task_.gbPerSecond;
  const bool isRing = task_.pattern == Pattern::kRing;
  if (port >= 0) {
    const bool isTaken =
        isRing ? take(fabric_.route(port, gpu), speed)
               : takeBoth(gpu, port, speed * portShare(task_.pattern, fabric_.gpuCount(), 0));
    if (!isTaken) return;
  }
  current_ = {.gpus = {gpu}, .entry = port};
  isVisited_[static_cast<size_t>(gpu)] = true;
  extend();
  isVisited_[static_cast<size_t>(gpu)] = false;
  if (port < 0) return;
  if (isRing) {
    giveBack(fabric_.route(port, gpu), speed);
  } else {
    giveBackBoth(gpu, port, speed * portShare(task_.pattern, fabric_.gpuCount(), 0));
  }
}

void Packer::extend() {
  --stepsLeft_;
  --budget_;
  if (current_.gpus.size() == static_cast<size_t>(fabric_.gpuCount())) {
    finish();
    return;
  }
  if (isDone() || !isEndLeft()) return;
  const int32_t from = current_.gpus.back();
  const size_t position = current_.gpus.size();
  const double share =
      hasPorts_ ? task_.gbPerSecond * portShare(task_.pattern, fabric_.gpuCount(), position) : 0;
  const std::vector<Choice> choices = nexts();
  for (size_t i = 0; i < choices.size(); ++i) {
    const Choice& next = choices[i];
    if (isLikeOneBefore(choices, i)) continue;
    if (!takeLink(from, next.end)) continue;
    const bool isFastened =
        share == 0 || task_.pattern == Pattern::kRing || takeBoth(next.end, current_.entry, share);
    if (isFastened) {
      current_.gpus.push_back(next.end);
      isVisited_[static_cast<size_t>(next.end)] = true;
      extend();
      isVisited_[static_cast<size_t>(next.end)] = false;
      current_.gpus.pop_back();
      if (share != 0 && task_.pattern != Pattern::kRing)
        giveBackBoth(next.end, current_.entry, share);
    }
    giveBackLink(from, next.end);
    if (isDone()) return;
  }
}

void Packer::finish() {
  const int32_t last = current_.gpus.back();
  const double speed = task_.gbPerSecond;
  if (task_.pattern != Pattern::kRing) {
    keep(current_.entry);
    return;
  }
  if (!hasPorts_) {
    const int32_t first = current_.gpus.front();
    if (first == last) {
      keep(-1);
    } else if (take(fabric_.route(last, first), speed)) {
      keep(-1);
      giveBack(fabric_.route(last, first), speed);
    }
    return;
  }
  for (const int32_t port : exits()) {
    if (!take(fabric_.route(last, port), speed)) continue;
    keep(port);
    giveBack(fabric_.route(last, port), speed);
    if (isDone()) return;
  }
}

// Goes on to the next channel with this one in place.
void Packer::keep(int32_t exit) {
  PackedChannel whole = current_;
  whole.exit = exit;
  channels_.push_back(whole);
  std::vector<bool> visited(isVisited_.size(), false);
  std::swap(isVisited_, visited);
  addChannel();
  std::swap(isVisited_, visited);
  current_ = std::move(whole);
  channels_.pop_back();
}

// A ring by itself is a circle and may begin anywhere. A chain's ends carry half of what the others
// do, so it begins at the GPU with least room. Otherwise the ports with most room, and the GPUs
// next to them.
std::vector<Packer::Choice> Packer::starts() const {
  std::vector<Choice> choices;
  if (!hasPorts_) {
    if (task_.pattern == Pattern::kRing) return {{0, -1, 0, 0, 0}};
    for (int32_t gpu = 0; gpu < fabric_.gpuCount(); ++gpu) {
      double widest = 0;
      for (int32_t other = 0; other < fabric_.gpuCount(); ++other) {
        if (other != gpu) widest = std::max(widest, width(fabric_.route(gpu, other)));
      }
      choices.push_back({gpu, -1, 0, -widest, 0});
    }
  } else {
    for (int32_t port = fabric_.gpuCount(); port < fabric_.gpuCount() + fabric_.portCount();
         ++port) {
      for (int32_t gpu = 0; gpu < fabric_.gpuCount(); ++gpu) {
        const Route& route = fabric_.route(port, gpu);
        if (!route.isUsable() || !isWithin(route.kind, task_.limits.inter)) continue;
        choices.push_back({gpu, port, farness(route.kind), width(route), 0});
      }
    }
  }
  std::ranges::stable_sort(choices, [](const Choice& one, const Choice& other) {
    return std::tuple(one.farness, -one.width) < std::tuple(other.farness, -other.width);
  });
  return choices;
}

std::vector<Packer::Choice> Packer::nexts() const {
  const int32_t from = current_.gpus.back();
  std::vector<Choice> choices;
  if (task_.sameOrder && !channels_.empty()) {
    return {{channels_.back().gpus[current_.gpus.size()], current_.entry, 0, 0, 0}};
  }
  for (int32_t gpu = 0; gpu < fabric_.gpuCount(); ++gpu) {
    const Route& route = fabric_.route(from, gpu);
    if (isVisited_[static_cast<size_t>(gpu)] || !route.isUsable() ||
        !isWithin(route.kind, task_.limits.intra))
      continue;
    choices.push_back({gpu, -1, farness(route.kind), width(route), room(route)});
  }
  std::ranges::stable_sort(choices, [](const Choice& one, const Choice& other) {
    if (one.farness != other.farness) return one.farness < other.farness;
    if (std::abs(one.width - other.width) > kSlack) return one.width > other.width;
    return one.room > other.room + kSlack;
  });
  return choices;
}

bool Packer::isLikeOneBefore(std::span<const Choice> choices, size_t place) const {
  const Choice& late = choices[place];
  for (const Choice& early : choices.first(place)) {
    if (early.port != late.port) continue;
    const Fabric::Twins* twins = fabric_.twins(early.end, late.end);
    if (twins == nullptr) continue;
    const auto isEqual = [&](const std::pair<int32_t, int32_t>& pair) {
      return std::abs(left_[static_cast<size_t>(pair.first)] -
                      left_[static_cast<size_t>(pair.second)]) <= kSlack;
    };
    if (std::ranges::all_of(twins->links, isEqual)) return true;
  }
  return false;
}

bool Packer::canEnd(int32_t gpu, int32_t port) const {
  const Route& route = fabric_.route(gpu, port);
  return route.isUsable() && isWithin(route.kind, task_.limits.inter);
}

// The nearest first, of these the port it came in by.
std::vector<int32_t> Packer::exits() const {
  std::vector<int32_t> ports;
  const int32_t last = current_.gpus.back();
  if (canEnd(last, current_.entry)) ports.push_back(current_.entry);
  if (!task_.crossNic) return ports;
  for (int32_t port = fabric_.gpuCount(); port < fabric_.gpuCount() + fabric_.portCount(); ++port) {
    if (port != current_.entry && canEnd(last, port)) ports.push_back(port);
  }
  std::ranges::stable_sort(ports, topology::isCloser,
                           [&](int32_t port) { return fabric_.route(last, port).kind; });
  return ports;
}

// Whether some GPU that is still to come may be the last one.
bool Packer::isEndLeft() const {
  if (!hasPorts_ || task_.pattern != Pattern::kRing) return true;
  for (int32_t gpu = 0; gpu < fabric_.gpuCount(); ++gpu) {
    if (isVisited_[static_cast<size_t>(gpu)]) continue;
    if (canEnd(gpu, current_.entry)) return true;
    if (!task_.crossNic) continue;
    for (int32_t port = 0; port < fabric_.portCount(); ++port) {
      if (canEnd(gpu, fabric_.gpuCount() + port)) return true;
    }
  }
  return false;
}

double Packer::width(const Route& route) const {
  double narrowest = topology::kLocalGbPerSecond;
  for (const RouteHop& hop : route.hops)
    narrowest = std::min(narrowest, left_[static_cast<size_t>(hop.link)] / hop.weight);
  return route.isUsable() ? narrowest : 0;
}

double Packer::room(const Route& route) const {
  return left_[static_cast<size_t>(route.hops.back().link)] / route.hops.back().weight;
}

bool Packer::take(const Route& route, double gbPerSecond) {
  if (!route.isUsable()) return false;
  for (size_t i = 0; i < route.hops.size(); ++i) {
    double& left = left_[static_cast<size_t>(route.hops[i].link)];
    left -= gbPerSecond * route.hops[i].weight;
    if (left >= -kSlack) continue;
    for (size_t j = 0; j <= i; ++j)
      left_[static_cast<size_t>(route.hops[j].link)] += gbPerSecond * route.hops[j].weight;
    return false;
  }
  return true;
}

void Packer::giveBack(const Route& route, double gbPerSecond) {
  for (const RouteHop& hop : route.hops)
    left_[static_cast<size_t>(hop.link)] += gbPerSecond * hop.weight;
}

bool Packer::takeBoth(int32_t one, int32_t other, double gbPerSecond) {
  if (!take(fabric_.route(one, other), gbPerSecond)) return false;
  if (take(fabric_.route(other, one), gbPerSecond)) return true;
  giveBack(fabric_.route(one, other), gbPerSecond);
  return false;
}

void Packer::giveBackBoth(int32_t one, int32_t other, double gbPerSecond) {
  giveBack(fabric_.route(one, other), gbPerSecond);
  giveBack(fabric_.route(other, one), gbPerSecond);
}

bool Packer::takeLink(int32_t from, int32_t to) {
  if (task_.pattern == Pattern::kRing) return take(fabric_.route(from, to), task_.gbPerSecond);
  return takeBoth(from, to, task_.gbPerSecond / 2);
}

void Packer::giveBackLink(int32_t from, int32_t to) {
  if (task_.pattern == Pattern::kRing) {
    giveBack(fabric_.route(from, to), task_.gbPerSecond);
  } else {
    giveBackBoth(from, to, task_.gbPerSecond / 2);
  }
}

namespace {

// What a channel takes of each link for each unit of its speed.
class Usage {
 public:
  explicit Usage(const Fabric& fabric) : fabric_(fabric), use_(fabric.capacities().size()) {}

  void add(int32_t from, int32_t to, double share) {
    for (const RouteHop& hop : fabric_.route(from, to).hops)
      use_[static_cast<size_t>(hop.link)] += share * hop.weight;
  }
  void addBoth(int32_t one, int32_t other, double share) {
    add(one, other, share);
    add(other, one, share);
  }
  void addRing(const PackedChannel& channel) {
    const std::vector<int32_t>& gpus = channel.gpus;
    for (size_t i = 0; i + 1 < gpus.size(); ++i) add(gpus[i], gpus[i + 1], 1);
    if (channel.entry >= 0) {
      add(channel.entry, gpus.front(), 1);
      add(gpus.back(), channel.exit, 1);
    } else if (gpus.size() > 1) {
      add(gpus.back(), gpus.front(), 1);
    }
  }
  void addChain(const PackedChannel& channel, Pattern pattern) {
    const std::vector<int32_t>& gpus = channel.gpus;
    for (size_t i = 0; i + 1 < gpus.size(); ++i) addBoth(gpus[i], gpus[i + 1], .5);
    if (channel.entry < 0) return;
    for (size_t i = 0; i < std::min<size_t>(gpus.size(), 2); ++i)
      addBoth(gpus[i], channel.entry, portShare(pattern, fabric_.gpuCount(), i));
  }
  double widest() const {
    double speed = topology::kLocalGbPerSecond;
    for (size_t i = 0; i < use_.size(); ++i) {
      if (use_[i] > 0) speed = std::min(speed, fabric_.capacities()[i] / use_[i]);
    }
    return speed;
  }

 private:
  const Fabric& fabric_;
  std::vector<double> use_;
};

}  // namespace

double widestSpeed(const Fabric& fabric, const PackingTask& task,
                   const std::vector<PackedChannel>& channels) {
  Usage usage(fabric);
  for (const PackedChannel& each : channels) {
    if (task.pattern == Pattern::kRing) {
      usage.addRing(each);
    } else {
      usage.addChain(each, task.pattern);
    }
  }
  return usage.widest();
}

}  // namespace tutti::graph
