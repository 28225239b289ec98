#include "graph/xml.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>

#include "graph/link_load.h"

namespace tutti::graph {
namespace {

using topology::isCloser;
using topology::NodeId;
using topology::NodeKind;
using topology::PathKind;
using topology::Topology;
using topology::XmlElement;

constexpr int64_t kMaxDevice = 1'000'000;
constexpr int64_t kMaxChannels = 64;
constexpr double kMaxGbPerSecond = 1e6;
constexpr double kMaxLatencyUs = 1e9;
// A file may take a little more of a link than we think it carries: others count other shares of a
// link's width as usable (NCCL once 22 GB/s of a V100's NVLink, 20 today).
constexpr double kMostShare = 1.25;

// The graph's number among a dump's, and what the pattern is called there.
struct PatternNumber {
  Pattern pattern;
  int64_t id;
  int64_t number;
};
constexpr std::array kNumbers = {
    PatternNumber{Pattern::kRing, 0, 4},      PatternNumber{Pattern::kBalancedTree, 1, 1},
    PatternNumber{Pattern::kSplitTree, 1, 2}, PatternNumber{Pattern::kTree, 1, 3},
    PatternNumber{Pattern::kSwitch, 3, 5},    PatternNumber{Pattern::kDirect, 4, 6}};

PatternNumber numbersOf(Pattern pattern) {
  return *std::ranges::find(kNumbers, pattern, &PatternNumber::pattern);
}

std::optional<PathKind> kindOf(std::string_view name) {
  constexpr std::array kAll = {PathKind::kLoc, PathKind::kNvl, PathKind::kNvb, PathKind::kC2c,
                               PathKind::kPix, PathKind::kPxb, PathKind::kP2c, PathKind::kPxn,
                               PathKind::kPhb, PathKind::kSys, PathKind::kNet, PathKind::kDis};
  for (const PathKind each : kAll) {
    if (topology::nameOf(each) == name) return each;
  }
  return std::nullopt;
}

std::string writeChannel(const Topology& topology, const Channel& channel) {
  std::string text = "    <channel>\n";
  const auto addPort = [&](NodeId port) {
    if (port != topology::kNoNode)
      text += fmt::format("      <net dev=\"{}\"/>\n", topology[port].number);
  };
  addPort(channel.entry);
  for (const NodeId gpu : channel.gpus)
    text += fmt::format("      <gpu dev=\"{}\"/>\n", topology[gpu].number);
  addPort(channel.exit);
  return text + "    </channel>\n";
}

// What of a machine a file can name.
class Machine {
 public:
  explicit Machine(const GraphPlace& place)
      : place_(place),
        gpus_(nodesOf(place.topology, NodeKind::kGpu, place.host)),
        ports_(nodesOf(place.topology, NodeKind::kNet, place.host)) {}

  NodeId gpu(int64_t number) const { return find(gpus_, number); }
  NodeId port(int64_t number) const { return find(ports_, number); }
  size_t gpuCount() const { return gpus_.size(); }
  std::string gpuNumbers() const { return numbers("GPUs", gpus_); }
  std::string portNumbers() const { return numbers("network ports", ports_); }
  bool isPort(NodeId node) const { return place_.topology[node].kind == NodeKind::kNet; }
  std::string name(NodeId node) const { return place_.topology[node].name; }
  PathKind kindBetween(NodeId from, NodeId to) const { return place_.paths.between(from, to).kind; }
  LinkLoad noLoad() const { return {place_.topology, place_.paths}; }
  const topology::Link& link(topology::LinkId id) const { return place_.topology[id]; }
  // GPUs that the channel does not visit, as text.
  std::string missingFrom(const Channel& channel) const {
    std::vector<NodeId> missing;
    for (const NodeId each : gpus_) {
      if (std::ranges::find(channel.gpus, each) == channel.gpus.end()) missing.push_back(each);
    }
    return numbers("GPUs", missing);
  }

 private:
  NodeId find(const std::vector<NodeId>& nodes, int64_t number) const {
    const auto found = std::ranges::find_if(
        nodes, [&](NodeId node) { return place_.topology[node].number == number; });
    return found == nodes.end() ? topology::kNoNode : *found;
  }
  std::string numbers(std::string_view what, const std::vector<NodeId>& nodes) const {
    if (nodes.empty()) return fmt::format("no {}", what);
    std::string text(what);
    for (const NodeId each : nodes) text += fmt::format(" {}", place_.topology[each].number);
    return text;
  }

  const GraphPlace& place_;
  std::vector<NodeId> gpus_;
  std::vector<NodeId> ports_;
};

class Parser {
 public:
  explicit Parser(const Machine& machine) : machine_(machine) {}

  Result<std::vector<NodeGraph>> parse(const XmlElement& root) {
    if (root.name() != "graphs") return root.fault("wanted <graphs>");
    TUTTI_TRY_ASSIGN(const int64_t version,
                     root.integer("version", {.low = 0, .high = kMaxDevice}));
    if (version != 1)
      return root.faultAt("version", fmt::format("{} of the graph XML; 1 can be read", version));
    std::vector<NodeGraph> graphs;
    for (const XmlElement& child : root.children()) {
      if (child.name() != "graph") continue;
      TUTTI_TRY_ASSIGN(NodeGraph graph, parseGraph(child));
      graphs.push_back(std::move(graph));
    }
    if (graphs.empty()) return root.fault("there is no <graph> in it");
    return graphs;
  }

 private:
  Result<NodeGraph> parseGraph(const XmlElement& element) const {
    NodeGraph graph;
    TUTTI_TRY_ASSIGN(const int64_t number, element.integer("pattern", {.low = 1, .high = 6}));
    graph.pattern = std::ranges::find(kNumbers, number, &PatternNumber::number)->pattern;
    TUTTI_TRY_ASSIGN(graph.intraGbPerSecond, element.real("speedintra", kMaxGbPerSecond));
    TUTTI_TRY_ASSIGN(graph.interGbPerSecond, element.real("speedinter", kMaxGbPerSecond));
    TUTTI_TRY_ASSIGN(graph.interLatencyUs, element.real("latencyinter", kMaxLatencyUs));
    TUTTI_TRY_ASSIGN(graph.intraKind, parseKind(element, "typeintra"));
    TUTTI_TRY_ASSIGN(graph.interKind, parseKind(element, "typeinter"));
    TUTTI_TRY_ASSIGN(const int64_t count,
                     element.integer("nchannels", {.low = 0, .high = kMaxChannels}));
    for (const XmlElement& child : element.children()) {
      if (child.name() != "channel") continue;
      TUTTI_TRY_ASSIGN(Channel channel, parseChannel(child, graph));
      graph.crossNic |= channel.entry != channel.exit;
      graph.channels.push_back(std::move(channel));
    }
    if (graph.channels.size() != static_cast<size_t>(count))
      return element.faultAt("nchannels", fmt::format("{} channels are announced, {} follow", count,
                                                      graph.channels.size()));
    if (!graph.channels.empty() && graph.intraGbPerSecond <= 0)
      return element.faultAt("speedintra", "channels that carry nothing");
    for (const Channel& each : graph.channels)
      graph.sameChannels &= each.gpus == graph.channels.front().gpus;
    TUTTI_TRY(checkDistance(element, graph));
    TUTTI_TRY(checkLinks(element, graph));
    return graph;
  }

  static Result<PathKind> parseKind(const XmlElement& element, std::string_view attribute) {
    TUTTI_TRY_ASSIGN(const std::string name, element.text(attribute));
    const std::optional<PathKind> kind = kindOf(name);
    if (!kind.has_value())
      return element.faultAt(attribute, fmt::format("\"{}\": wanted LOC, NVL, NVB, PIX, PXB, PXN, "
                                                    "PHB, SYS or another kind of path",
                                                    name.substr(0, 16)));
    return *kind;
  }

  Result<Channel> parseChannel(const XmlElement& element, const NodeGraph& graph) const {
    Channel channel;
    for (const XmlElement& child : element.children()) {
      if (child.name() == "gpu") {
        TUTTI_TRY(addGpu(child, channel));
      } else if (child.name() == "net") {
        TUTTI_TRY(addPort(child, channel));
      }
    }
    const bool isHead = graph.pattern == Pattern::kSwitch || graph.pattern == Pattern::kDirect;
    if (isHead ? channel.gpus.empty() : channel.gpus.size() != machine_.gpuCount())
      return element.fault(fmt::format("another machine's graph: {} of this machine are left out",
                                       machine_.missingFrom(channel)));
    if (channel.exit == topology::kNoNode) channel.exit = channel.entry;
    TUTTI_TRY(checkNeighbours(element, graph, channel));
    return channel;
  }

  Status addGpu(const XmlElement& element, Channel& channel) const {
    TUTTI_TRY_ASSIGN(const int64_t number, element.integer("dev", {.low = 0, .high = kMaxDevice}));
    const NodeId gpu = machine_.gpu(number);
    if (gpu == topology::kNoNode)
      return element.faultAt("dev", fmt::format("another machine's graph: it has GPU {}, this "
                                                "machine {}",
                                                number, machine_.gpuNumbers()));
    if (std::ranges::find(channel.gpus, gpu) != channel.gpus.end())
      return element.faultAt("dev", fmt::format("GPU {} comes twice in this channel", number));
    channel.gpus.push_back(gpu);
    return {};
  }

  Status addPort(const XmlElement& element, Channel& channel) const {
    TUTTI_TRY_ASSIGN(const int64_t number, element.integer("dev", {.low = 0, .high = kMaxDevice}));
    const NodeId port = machine_.port(number);
    if (port == topology::kNoNode)
      return element.faultAt("dev", fmt::format("another machine's graph: it has network port {}, "
                                                "this machine {}",
                                                number, machine_.portNumbers()));
    (channel.gpus.empty() ? channel.entry : channel.exit) = port;
    return {};
  }

  struct Neighbours {
    NodeId from;
    NodeId to;
    PathKind limit;  // as far apart as the graph says
  };

  static std::vector<Neighbours> neighboursOf(const NodeGraph& graph, const Channel& channel) {
    std::vector<Neighbours> found;
    const bool isRing = graph.pattern == Pattern::kRing;
    for (size_t i = 0; i + 1 < channel.gpus.size(); ++i)
      found.push_back({channel.gpus[i], channel.gpus[i + 1], graph.intraKind});
    if (channel.entry != topology::kNoNode) {
      found.push_back({channel.entry, channel.gpus.front(), graph.interKind});
      if (isRing) found.push_back({channel.gpus.back(), channel.exit, graph.interKind});
    } else if (isRing && channel.gpus.size() > 1) {
      found.push_back({channel.gpus.back(), channel.gpus.front(), graph.intraKind});
    }
    return found;
  }

  // Neighbours that are farther apart here than the graph says.
  Status checkNeighbours(const XmlElement& element, const NodeGraph& graph,
                         const Channel& channel) const {
    for (const auto& [from, to, limit] : neighboursOf(graph, channel)) {
      const PathKind kind = machine_.kindBetween(from, to);
      if (!isCloser(limit, kind)) continue;
      return element.fault(fmt::format(
          "another machine's graph: {} and {} are neighbours at {}, on this machine they are at {}",
          machine_.name(from), machine_.name(to), topology::nameOf(limit), topology::nameOf(kind)));
    }
    return {};
  }

  // GPUs that are all closer than the graph says its farthest neighbours are: a ring for PCI would
  // leave NVLinks idle. Heads have no neighbours.
  Status checkDistance(const XmlElement& element, const NodeGraph& graph) const {
    std::optional<Neighbours> farthest;
    for (const Channel& channel : graph.channels) {
      if (channel.gpus.size() < 2) continue;
      for (const Neighbours& each : neighboursOf(graph, channel)) {
        if (machine_.isPort(each.from) || machine_.isPort(each.to)) continue;
        if (!farthest || isCloser(machine_.kindBetween(farthest->from, farthest->to),
                                  machine_.kindBetween(each.from, each.to)))
          farthest = each;
      }
    }
    if (!farthest) return {};
    const PathKind kind = machine_.kindBetween(farthest->from, farthest->to);
    if (!isCloser(kind, graph.intraKind)) return {};
    return element.faultAt(
        "typeintra",
        fmt::format("another machine's graph: its farthest neighbours are at {}, on this machine "
                    "at {} ({} and {})",
                    topology::nameOf(graph.intraKind), topology::nameOf(kind),
                    machine_.name(farthest->from), machine_.name(farthest->to)));
  }

  // Channels that together take more of a link than it carries here.
  Status checkLinks(const XmlElement& element, const NodeGraph& graph) const {
    LinkLoad load = machine_.noLoad();
    for (const Channel& each : graph.channels) load.add(graph, each);
    const LinkLoad::Busiest busiest = load.busiest();
    if (busiest.share <= kMostShare) return {};
    const topology::Link& link = machine_.link(busiest.link);
    return element.faultAt(
        "speedintra",
        fmt::format("another machine's graph: its channels take {:.4g} GB/s from {} to {}, which "
                    "carries {:.4g} on this machine",
                    busiest.gbPerSecond, machine_.name(link.from), machine_.name(link.to),
                    link.gbPerSecond));
  }

  const Machine& machine_;
};

}  // namespace

std::string writeGraphs(const Topology& topology, std::span<const NodeGraph> graphs) {
  std::string text = "<graphs version=\"1\">\n";
  for (const NodeGraph& graph : graphs) {
    const PatternNumber numbers = numbersOf(graph.pattern);
    text += fmt::format(
        "  <graph id=\"{}\" pattern=\"{}\" crossnic=\"{}\" nchannels=\"{}\" speedintra=\"{:.6g}\" "
        "speedinter=\"{:.6g}\" latencyinter=\"{:.6g}\" typeintra=\"{}\" typeinter=\"{}\" "
        "samechannels=\"{}\"",
        numbers.id, numbers.number, graph.crossNic ? 1 : 0, graph.channels.size(),
        graph.intraGbPerSecond, graph.interGbPerSecond, graph.interLatencyUs,
        topology::nameOf(graph.intraKind), topology::nameOf(graph.interKind),
        graph.sameChannels ? 1 : 0);
    text += graph.channels.empty() ? "/>\n" : ">\n";
    for (const Channel& each : graph.channels) text += writeChannel(topology, each);
    if (!graph.channels.empty()) text += "  </graph>\n";
  }
  return text + "</graphs>\n";
}

Result<std::vector<NodeGraph>> parseGraphs(std::string_view text, const std::string& source,
                                           const GraphPlace& place,
                                           const topology::XmlLimits& limits) {
  TUTTI_TRY_ASSIGN(const auto document, topology::XmlDocument::parse(text, source, limits));
  const Machine machine(place);
  return Parser(machine).parse(document->root());
}

}  // namespace tutti::graph
