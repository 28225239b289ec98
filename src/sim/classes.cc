#include "sim/classes.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "sim/time_constants.h"

namespace tutti::sim {
namespace {

// Spreads well enough that sums of it tell multisets apart (splitmix64).
uint64_t mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}
uint64_t join(uint64_t one, uint64_t other) { return mix(one ^ mix(other)); }

struct RawEdge {
  int32_t from = 0;
  int32_t to = 0;
  int32_t outPosition = 0;
  int32_t inPosition = 0;
  bool isBetweenNodes = false;
  double latencyUs = 0;
  double mostGbPerSecond = 0;  // that it could ask for
  int32_t exit = -1;           // between nodes: its first and last link of the network, by number
  int32_t entry = -1;
  uint32_t firstLink = 0;
  uint32_t linkCount = 0;
};

class Classifier {
 public:
  Classifier(const Traffic& traffic, const ClassOptions& options)
      : traffic_(traffic), options_(options) {}

  Result<Classes> run() {
    TUTTI_TRY(collect());
    keepShortLinks();
    refine();
    gather();
    return std::move(made_);
  }

 private:
  int32_t laneOf(int32_t channel, Rank rank) const {
    return channel * traffic_.rankCount() + index(rank);
  }

  Status collect() {
    const Cluster& cluster = traffic_.cluster();
    for (int32_t channel = 0; channel < traffic_.channelCount(); ++channel) {
      const std::vector<Traffic::Shape> shapes = traffic_.shapesOf(channel);
      for (int32_t rank = 0; rank < traffic_.rankCount(); ++rank) {
        const Traffic::Shape& shape = shapes[static_cast<size_t>(rank)];
        const double speed = cluster.speedOf(Rank{rank});
        laneColours_.push_back(join(shape.form, std::bit_cast<uint64_t>(speed)));
        for (size_t i = 0; i < shape.sendsTo.size(); ++i) {
          const Rank to = shape.sendsTo[i];
          const auto& back = shapes[static_cast<size_t>(index(to))].receivesFrom;
          const auto in = std::ranges::find(back, Rank{rank}) - back.begin();
          TUTTI_TRY(addEdge(channel, {Rank{rank}, to},
                            {static_cast<int32_t>(i), static_cast<int32_t>(in)}));
        }
      }
    }
    made_.laneCount = static_cast<int64_t>(laneColours_.size());
    return {};
  }

  Status addEdge(int32_t channel, std::pair<Rank, Rank> ends, std::pair<int32_t, int32_t> places) {
    const Cluster& cluster = traffic_.cluster();
    TUTTI_TRY_ASSIGN(const FlowRoute route, traffic_.route(channel, ends.first, ends.second));
    RawEdge edge{.from = laneOf(channel, ends.first),
                 .to = laneOf(channel, ends.second),
                 .outPosition = places.first,
                 .inPosition = places.second,
                 .isBetweenNodes = route.kind == topology::PathKind::kNet,
                 .latencyUs = route.switchCount * cluster.network().description().switchLatencyUs +
                              route.portLatencyUs,
                 .firstLink = static_cast<uint32_t>(routes_.size())};
    double narrowest = 1e18;
    for (size_t i = 0; i < route.links.size(); ++i) {
      const int32_t link = route.links[i];
      narrowest = std::min(narrowest, capacity(link));
      // Beside a node's own links the ends are where it meets the network.
      const bool isEnd = i == 0 || i + 1 == route.links.size() ||
                         cluster.isNetworkLink(link) != cluster.isNetworkLink(route.links[i - 1]) ||
                         cluster.isNetworkLink(link) != cluster.isNetworkLink(route.links[i + 1]);
      if (!options_.onlyEnds || isEnd) routes_.push_back(numberOf(link));
      if (!cluster.isNetworkLink(link)) continue;
      if (edge.exit < 0) edge.exit = numberOf(link);
      edge.entry = numberOf(link);
    }
    edge.linkCount = static_cast<uint32_t>(routes_.size()) - edge.firstLink;
    const double lane = options_.laneGbPerSecond * cluster.speedOf(ends.first);
    edge.mostGbPerSecond = edge.isBetweenNodes ? narrowest : std::min(lane, narrowest);
    edges_.push_back(edge);
    return {};
  }

  double capacity(int32_t link) const {
    const Cluster& cluster = traffic_.cluster();
    return cluster.gbPerSecond(link) * (cluster.isNetworkLink(link) ? kNetworkShare : 1);
  }

  int32_t numberOf(int32_t link) {
    const auto [at, isNew] = numbers_.try_emplace(link, static_cast<int32_t>(links_.size()));
    if (isNew) links_.push_back(link);
    return at->second;
  }

  // A link that carries all that its edges could ever ask for slows nobody down: only what an edge
  // reaches at most remains of it. What edges ask for together is bounded by the port that they
  // leave or enter by, too: on rails without oversubscription spines are never short, however the
  // hash falls, as what collides there has shared a port before.
  void keepShortLinks() {
    const std::vector<double> byExit = askedBy(&RawEdge::exit);
    const std::vector<double> byEntry = askedBy(&RawEdge::entry);
    constexpr double kRounding = 1 + 1e-9;
    isShort_.resize(links_.size());
    for (size_t i = 0; i < links_.size(); ++i)
      isShort_[i] = std::min(byExit[i], byEntry[i]) > capacity(links_[i]) * kRounding;
  }

  // By link: what its edges ask for, of those with the same port no more than that carries. A port
  // is not bounded by itself.
  std::vector<double> askedBy(int32_t RawEdge::*port) const {
    std::unordered_map<uint64_t, double> together;  // link and port
    std::vector<double> asked(links_.size());
    for (const RawEdge& edge : edges_) {
      for (uint32_t i = 0; i < edge.linkCount; ++i) {
        const int32_t link = routes_[edge.firstLink + i];
        if (edge.*port < 0 || link == edge.exit || link == edge.entry) {
          asked[static_cast<size_t>(link)] += edge.mostGbPerSecond;
        } else {
          together[uint64_t{static_cast<uint32_t>(link)} << 32 |
                   static_cast<uint32_t>(edge.*port)] += edge.mostGbPerSecond;
        }
      }
    }
    for (const auto& [key, sum] : together) {
      const int32_t through = links_[static_cast<uint32_t>(key)];
      asked[key >> 32] += std::min(sum, capacity(through));
    }
    return asked;
  }

  template <typename Visit>
  void forLinks(const RawEdge& edge, Visit visit) const {
    for (uint32_t i = 0; i < edge.linkCount; ++i) {
      const auto link = static_cast<size_t>(routes_[edge.firstLink + i]);
      if (isShort_[link]) visit(link);
    }
  }

  static size_t countDistinct(std::vector<uint64_t> colours) {
    std::ranges::sort(colours);
    return static_cast<size_t>(std::ranges::unique(colours).begin() - colours.begin());
  }

  void refine() {
    for (const int32_t link : links_)
      linkColours_.push_back(mix(std::bit_cast<uint64_t>(capacity(link))));
    edgeColours_.resize(edges_.size());
    size_t classes = 0;
    for (made_.rounds = 0; made_.rounds < options_.mostRounds; ++made_.rounds) {
      colourEdges();
      const size_t now =
          countDistinct(laneColours_) + countDistinct(linkColours_) + countDistinct(edgeColours_);
      if (now == classes) return;
      classes = now;
      colourEnds();
    }
    made_.isExact = false;
  }

  void colourEdges() {
    for (size_t i = 0; i < edges_.size(); ++i) {
      const RawEdge& edge = edges_[i];
      uint64_t colour = join(laneColours_[static_cast<size_t>(edge.from)],
                             static_cast<uint64_t>(edge.outPosition));
      colour = join(colour, join(laneColours_[static_cast<size_t>(edge.to)],
                                 static_cast<uint64_t>(edge.inPosition) + 1));
      colour = join(colour, std::bit_cast<uint64_t>(edge.latencyUs) + edge.isBetweenNodes);
      colour = join(colour, std::bit_cast<uint64_t>(edge.mostGbPerSecond));
      forLinks(edge, [&](size_t link) { colour = join(colour, linkColours_[link]); });
      edgeColours_[i] = colour;
    }
  }

  void colourEnds() {
    std::vector<uint64_t> lanes(laneColours_.size()), links(linkColours_.size());
    for (size_t i = 0; i < edges_.size(); ++i) {
      lanes[static_cast<size_t>(edges_[i].from)] += mix(edgeColours_[i]);
      lanes[static_cast<size_t>(edges_[i].to)] += mix(~edgeColours_[i]);
      forLinks(edges_[i], [&](size_t link) { links[link] += mix(edgeColours_[i]); });
    }
    for (size_t i = 0; i < lanes.size(); ++i) laneColours_[i] = join(laneColours_[i], lanes[i]);
    for (size_t i = 0; i < links.size(); ++i) linkColours_[i] = join(linkColours_[i], links[i]);
  }

  // Numbers for colours, in the order of their first members.
  static std::vector<int32_t> number(const std::vector<uint64_t>& colours) {
    std::unordered_map<uint64_t, int32_t> numbers;
    std::vector<int32_t> found;
    for (const uint64_t colour : colours)
      found.push_back(
          numbers.try_emplace(colour, static_cast<int32_t>(numbers.size())).first->second);
    return found;
  }

  void gather() {
    made_.laneClassOf = number(laneColours_);
    const std::vector<int32_t> edgeClass = number(edgeColours_);
    for (size_t i = 0; i < laneColours_.size(); ++i) {
      const auto which = static_cast<size_t>(made_.laneClassOf[i]);
      if (which == made_.lanes.size()) {
        const auto rank = static_cast<int32_t>(i) % traffic_.rankCount();
        made_.lanes.push_back({.channel = static_cast<int32_t>(i) / traffic_.rankCount(),
                               .rank = Rank{rank},
                               .count = 0,
                               .speed = traffic_.cluster().speedOf(Rank{rank}),
                               .outgoing = {},
                               .incoming = {}});
      }
      ++made_.lanes[which].count;
    }
    std::vector<int32_t> linkClass = gatherLinks();
    for (size_t i = 0; i < edges_.size(); ++i) gatherEdge(edges_[i], edgeClass[i], linkClass);
    countCrossings(edgeClass, linkClass);
  }

  void gatherEdge(const RawEdge& edge, int32_t number, const std::vector<int32_t>& linkClass) {
    const int32_t from = made_.laneClassOf[static_cast<size_t>(edge.from)];
    const int32_t to = made_.laneClassOf[static_cast<size_t>(edge.to)];
    if (static_cast<size_t>(number) == made_.edges.size()) {
      made_.edges.push_back({.from = from,
                             .to = to,
                             .count = 0,
                             .isBetweenNodes = edge.isBetweenNodes,
                             .latencyUs = edge.latencyUs,
                             .mostGbPerSecond = edge.mostGbPerSecond,
                             .links = {}});
      // Two links of one class on the way fill up alike: one stands for both.
      std::vector<int32_t>& links = made_.edges.back().links;
      forLinks(edge, [&](size_t link) {
        if (std::ranges::find(links, linkClass[link]) == links.end())
          links.push_back(linkClass[link]);
      });
      const auto put = [number](std::vector<int32_t>& list, int32_t position) {
        if (list.size() <= static_cast<size_t>(position))
          list.resize(static_cast<size_t>(position) + 1, -1);
        list[static_cast<size_t>(position)] = number;
      };
      put(made_.lanes[static_cast<size_t>(from)].outgoing, edge.outPosition);
      put(made_.lanes[static_cast<size_t>(to)].incoming, edge.inPosition);
    }
    ++made_.edges[static_cast<size_t>(number)].count;
  }

  // By link; -1 where it is never short.
  std::vector<int32_t> gatherLinks() {
    std::unordered_map<uint64_t, int32_t> numbers;
    std::vector<int32_t> found(links_.size(), -1);
    for (size_t i = 0; i < links_.size(); ++i) {
      if (!isShort_[i]) continue;
      const auto [at, isNew] =
          numbers.try_emplace(linkColours_[i], static_cast<int32_t>(made_.links.size()));
      if (isNew)
        made_.links.push_back(
            {.link = links_[i], .count = 0, .gbPerSecond = capacity(links_[i]), .edges = {}});
      found[i] = at->second;
      ++made_.links[static_cast<size_t>(at->second)].count;
    }
    return found;
  }

  // How many edges of each class cross one link: those of its first member.
  void countCrossings(const std::vector<int32_t>& edgeClass,
                      const std::vector<int32_t>& linkClass) {
    std::vector<std::unordered_map<int32_t, int32_t>> counts(made_.links.size());
    for (size_t i = 0; i < edges_.size(); ++i) {
      forLinks(edges_[i], [&](size_t link) {
        const auto which = static_cast<size_t>(linkClass[link]);
        if (made_.links[which].link == links_[link]) ++counts[which][edgeClass[i]];
      });
    }
    for (size_t i = 0; i < counts.size(); ++i) {
      made_.links[i].edges.assign(counts[i].begin(), counts[i].end());
      std::ranges::sort(made_.links[i].edges);
    }
  }

  const Traffic& traffic_;
  const ClassOptions& options_;
  std::vector<RawEdge> edges_;
  std::vector<int32_t> routes_;  // numbers of links, edge after edge
  std::vector<int32_t> links_;   // of the cluster, by number
  std::unordered_map<int32_t, int32_t> numbers_;
  std::vector<bool> isShort_;
  std::vector<uint64_t> laneColours_, edgeColours_, linkColours_;
  Classes made_;
};

}  // namespace

Result<Classes> classify(const Traffic& traffic, const ClassOptions& options) {
  return Classifier(traffic, options).run();
}

}  // namespace tutti::sim
