// What a communicator of some of a cluster's ranks sees of it. Its graphs are searched among the
// GPUs that take part, as the library does, so nodes with others of their GPUs in it are of another
// kind; ports, switches and their names stay.
#include <algorithm>
#include <map>

#include "sim/cluster.h"
#include "topology/keep_gpus.h"

namespace tutti::sim {

// A node with the members of a part on it.
struct Cluster::PartNode {
  int32_t node = 0;
  std::vector<std::pair<int32_t, Rank>> members{};  // local number, rank in the part; ascending
};

namespace {

// The kind with these of its GPUs, or so many of its CPU ranks.
NodeKind kindWith(const NodeKind& whole, const std::vector<int32_t>& locals) {
  NodeKind kind = whole;
  if (whole.gpus.empty()) {
    kind.cpuRankCount = static_cast<int32_t>(locals.size());
    return kind;
  }
  if (locals.size() == whole.gpus.size()) return kind;
  kind.topology = topology::keepGpus(whole.topology, locals);
  kind.describe();
  return kind;
}

}  // namespace

Result<Cluster> Cluster::part(std::span<const Rank> ranks) const {
  if (ranks.empty()) return invalidArgument("cluster {}: a part of no ranks", name_);
  std::map<int32_t, PartNode> byNode;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (index(ranks[i]) < 0 || index(ranks[i]) >= rankCount())
      return invalidArgument("cluster {}: no rank {}; ranks are 0 to {}", name_, index(ranks[i]),
                             rankCount() - 1);
    PartNode& node = byNode[nodeOf(ranks[i])];
    node.node = nodeOf(ranks[i]);
    node.members.emplace_back(localOf(ranks[i]), Rank{static_cast<int32_t>(i)});
  }
  Cluster made;
  made.name_ = name_;
  made.network_ = network_;
  made.placeOf_.resize(ranks.size());
  std::map<std::pair<int32_t, std::vector<int32_t>>, int32_t> kinds;
  for (auto& [number, from] : byNode) {
    std::ranges::sort(from.members);
    std::vector<int32_t> locals;
    for (const auto& [local, rank] : from.members) {
      if (!locals.empty() && locals.back() == local)
        return invalidArgument("cluster {}: rank {} stands in a part twice", name_,
                               index(ranks[static_cast<size_t>(index(rank))]));
      locals.push_back(local);
    }
    const auto [kind, isNew] =
        kinds.try_emplace({kindOf(number), locals}, static_cast<int32_t>(made.kinds_.size()));
    if (isNew) made.kinds_.push_back(kindWith(kindAt(number), locals));
    made.addPart(nodes_[static_cast<size_t>(number)], from, kind->second);
  }
  TUTTI_TRY(made.scaleAs(*this, ranks));
  return made;
}

void Cluster::addPart(const NodePlace& whole, const PartNode& from, int32_t kind) {
  NodePlace place{.number = whole.number,
                  .kind = kind,
                  .firstLink = networkBase_,
                  .firstPort = whole.firstPort,
                  .ranks = {}};
  for (const auto& [local, rank] : from.members) {
    placeOf_[static_cast<size_t>(index(rank))] = {static_cast<int32_t>(nodes_.size()),
                                                  static_cast<int32_t>(place.ranks.size())};
    place.ranks.push_back(rank);
  }
  nodes_.push_back(std::move(place));
  networkBase_ += kinds_[static_cast<size_t>(kind)].linkCount();
}

// The network is the same; a node with some of its GPUs has some of the links, by the same names.
std::vector<int32_t> Cluster::linksIn(const Cluster& whole) const {
  std::vector<int32_t> numbers(static_cast<size_t>(linkCount()), -1);
  std::map<int32_t, std::vector<int32_t>> ofKind;  // a part's kind: what its links are in the whole
  for (const NodePlace& node : nodes_) {
    const auto full = std::ranges::lower_bound(whole.nodes_, node.number, {}, &NodePlace::number);
    if (full == whole.nodes_.end() || full->number != node.number) continue;
    const int32_t count = kinds_[static_cast<size_t>(node.kind)].linkCount();
    const auto [known, isNew] = ofKind.try_emplace(node.kind);
    if (isNew) {
      std::map<std::string, int32_t> byName;
      const int32_t most = whole.kinds_[static_cast<size_t>(full->kind)].linkCount();
      for (int32_t i = 0; i < most; ++i)
        byName.try_emplace(whole.nameOfLink(full->firstLink + i), i);
      for (int32_t i = 0; i < count; ++i) {
        const auto found = byName.find(nameOfLink(node.firstLink + i));
        known->second.push_back(found == byName.end() ? -1 : found->second);
      }
    }
    for (int32_t i = 0; i < count; ++i) {
      const int32_t local = known->second[static_cast<size_t>(i)];
      if (local >= 0) numbers[static_cast<size_t>(node.firstLink + i)] = full->firstLink + local;
    }
  }
  for (int32_t link = networkBase_; link < linkCount(); ++link)
    numbers[static_cast<size_t>(link)] = whole.networkBase_ + link - networkBase_;
  return numbers;
}

// What was supposed of links and ranks of the whole. Links of GPUs outside are not here.
Status Cluster::scaleAs(const Cluster& whole, std::span<const Rank> ranks) {
  for (const auto& [link, factor] : whole.scaled_) {
    const std::string wanted = whole.nameOfLink(link);
    for (int32_t each = 0; each < networkBase_; ++each) {
      if (nameOfLink(each) != wanted) continue;
      TUTTI_TRY(scaleLink(wanted, factor));
      break;
    }
  }
  for (size_t i = 0; i < ranks.size(); ++i) {
    const double speed = whole.speedOf(ranks[i]);
    if (speed != 1) TUTTI_TRY(slowRank(static_cast<int32_t>(i), speed));
  }
  return {};
}

}  // namespace tutti::sim
