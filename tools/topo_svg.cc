// Layout: every leaf of the tree (GPU, NIC, bare CPU or switch) gets a column; what is above stands
// over its columns. NICs and GPUs have rows of their own, GPUs lowest, so that NVLinks need not
// pass anything else. Lines are labelled where they end, in the child's own column, so labels never
// meet; direct NVLinks are arcs below the GPUs, coloured by width.
#include "tools/topo_svg.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "base/markup.h"
#include "topology/print.h"

namespace tutti::tools {
namespace {

using topology::kLocalGbPerSecond;
using topology::kNoLink;
using topology::Link;
using topology::LinkId;
using topology::LinkKind;
using topology::Node;
using topology::NodeId;
using topology::NodeKind;
using topology::processorsOf;
using topology::shortNumber;
using topology::Topology;

constexpr double kColumn = 108, kBox = 96, kMargin = 28;
constexpr double kTitle = 58, kCpuHeight = 54, kPciHeight = 30, kDeviceHeight = 58,
                 kSwitchHeight = 36;
constexpr double kGap = 54;        // between rows: room for a label
constexpr double kBusHeight = 40;  // the bar that joins more than two CPUs
constexpr double kFoot = 20;       // a line of text at the bottom

struct Colours {
  std::string_view fill, stroke;
};
constexpr Colours kCpuColours{"#dbe7f6", "#3c6ca8"}, kPciColours{"#eeeeee", "#777777"},
    kGpuColours{"#dcefd2", "#4c8a2c"}, kNicColours{"#fbe6c8", "#b5771a"},
    kSwitchColours{"#d4ecec", "#26807f"};
// Arcs by width, narrowest first.
constexpr std::string_view kArcColours[] = {"#8f6bb3", "#d1495b", "#1f77b4", "#e08e0b"};

// About what a line of the usual size takes.
double widthOf(std::string_view text) { return 6.9 * static_cast<double>(text.size()); }

struct Place {
  double x = 0;  // middle
  double top = 0;
  double width = 0;
  double height = 0;
};

class Painter {
 public:
  void box(const Place& at, const Colours& colours) {
    text_ += fmt::format(
        R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="5" fill="{}" stroke="{}" stroke-width="1.5"/>)"
        "\n",
        at.x - at.width / 2, at.top, at.width, at.height, colours.fill, colours.stroke);
  }
  struct Style {
    double size = 12;
    bool isBold = false;
    std::string_view anchor = "middle";
    std::string_view colour = "#222222";
    bool hasHalo = false;  // readable across lines
  };
  void words(double x, double y, std::string_view what, const Style& style) {
    text_ += fmt::format(
        R"(<text x="{:.1f}" y="{:.1f}" font-size="{}" text-anchor="{}" fill="{}"{}{}>{}</text>)"
        "\n",
        x, y, style.size, style.anchor, style.colour, style.isBold ? R"( font-weight="bold")" : "",
        style.hasHalo
            ? R"( paint-order="stroke" stroke="#ffffff" stroke-width="4" stroke-linejoin="round")"
            : "",
        escapeMarkup(what));
  }
  void path(const std::string& shape, std::string_view colour, double width) {
    text_ += fmt::format(R"(<path d="{}" fill="none" stroke="{}" stroke-width="{:.1f}"/>)"
                         "\n",
                         shape, colour, width);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

class Drawing {
 public:
  Drawing(const Topology& topology, std::string title)
      : topology_(topology), title_(std::move(title)), places_(topology.nodes.size()) {}

  std::string draw() {
    double top = kMargin;
    double right = 0;
    for (int32_t host = 0; host < static_cast<int32_t>(topology_.hosts.size()); ++host) {
      top = drawHost(host, top);
      right = std::max(right, right_);
    }
    for (const std::string& line : topology_.assumptions) {
      painter_.words(kMargin, top + 4, "assumed: " + line,
                     {.anchor = "start", .colour = "#8a5a00"});
      right = std::max(right, kMargin + widthOf("assumed: " + line));
      top += kFoot;
    }
    const double width = std::max(right + kMargin, 420.0);
    const double height = top + kMargin / 2;
    return fmt::format(
        R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}" )"
        R"(font-family="DejaVu Sans, Verdana, Helvetica, sans-serif">)"
        "\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{2}</svg>\n",
        width, height, painter_.take());
  }

 private:
  const Node& node(NodeId id) const { return topology_[id]; }
  Place& place(NodeId id) { return places_[index(id)]; }

  std::vector<NodeId> below(NodeId id) const {
    std::vector<NodeId> found;
    for (const LinkId link : linksDown(topology_, id)) {
      if (node(topology_[link].to).kind != NodeKind::kNet) found.push_back(topology_[link].to);
    }
    return found;
  }

  // Columns from the left, depth first; the middle of a node is that of its columns.
  void layColumns(NodeId id, int depth) {
    Place& mine = place(id);
    const std::vector<NodeId> children = below(id);
    const bool isDevice = node(id).kind == NodeKind::kGpu || node(id).kind == NodeKind::kNic;
    if (!isDevice) depth_ = std::max(depth_, depth);
    if (children.empty()) {
      const bool isBareCpu = node(id).kind == NodeKind::kCpu;
      const double columns = isBareCpu ? 1.5 : 1;
      mine.x = right_ + columns * kColumn / 2;
      mine.width = kBox + (isBareCpu ? kColumn / 2 : 0);
      right_ += columns * kColumn;
      return;
    }
    const double left = right_;
    for (const NodeId child : children) layColumns(child, depth + 1);
    // A CPU is as wide as what it holds; a name must fit.
    const double wanted = node(id).kind == NodeKind::kCpu ? 1.5 * kColumn : kColumn;
    right_ = std::max(right_, left + wanted);
    mine.x = (left + right_) / 2;
    mine.width = right_ - left - (kColumn - kBox);
    if (node(id).kind == NodeKind::kPci) mine.width = std::min(mine.width, 200.0);
  }

  double drawHost(int32_t host, double top) {
    const std::vector<NodeId> cpus = nodesOf(topology_, NodeKind::kCpu, host);
    right_ = kMargin;
    depth_ = 0;
    for (const NodeId cpu : cpus) {
      layColumns(cpu, 0);
      if (cpu != cpus.back()) right_ += kColumn / 3;  // room for the socket link's line
    }
    painter_.words(kMargin, top + 16, hostTitle(host),
                   {.size = 17, .isBold = true, .anchor = "start"});
    const std::string facts = summary(host);
    painter_.words(kMargin, top + 34, facts, {.anchor = "start", .colour = "#555555"});
    right_ = std::max(right_, kMargin + widthOf(facts));
    const bool hasBus = cpus.size() > 2;
    const double cpuTop = top + kTitle + (cpus.size() > 1 ? kBusHeight : 0);
    const double pciTop = cpuTop + kCpuHeight + kGap;
    const double nicTop = pciTop + depth_ * (kPciHeight + kGap);
    const bool hasNics = !nodesOf(topology_, NodeKind::kNic, host).empty();
    const double gpuTop = nicTop + (hasNics ? portsHeight(host) + kGap : 0);
    for (const NodeId cpu : cpus) placeRows(cpu, 0, {cpuTop, pciTop, nicTop, gpuTop});
    for (const NodeId cpu : cpus) drawTree(cpu);
    drawSockets(cpus, hasBus, top + kTitle);
    const bool hasGpus = !nodesOf(topology_, NodeKind::kGpu, host).empty();
    return drawNvLinks(host, hasGpus ? gpuTop + kDeviceHeight : gpuTop - (hasNics ? kGap : 0)) +
           kMargin;
  }

  std::string hostTitle(int32_t host) const {
    return topology_.hosts.size() > 1 ? fmt::format("{} · host {}", title_, host) : title_;
  }

  std::string summary(int32_t host) const {
    std::string text;
    const auto add = [&](NodeKind kind, std::string_view what) {
      const size_t count = nodesOf(topology_, kind, host).size();
      if (count > 0) text += fmt::format("{} {}{}, ", count, what, count == 1 ? "" : "s");
    };
    add(NodeKind::kCpu, "CPU");
    add(NodeKind::kGpu, "GPU");
    add(NodeKind::kNet, "network port");
    return text + "GB/s one way, ×: PCI lanes or NVLinks";
  }

  size_t portsOf(NodeId nic) const { return linksDown(topology_, nic).size(); }
  double nicHeight(NodeId nic) const { return 14 + 32 * static_cast<double>(portsOf(nic)); }
  double portsHeight(int32_t host) const {
    double height = 0;
    for (const NodeId nic : nodesOf(topology_, NodeKind::kNic, host))
      height = std::max(height, nicHeight(nic));
    return height;
  }

  struct Rows {
    double cpu, pci, nic, gpu;
  };
  void placeRows(NodeId id, int depth, const Rows& rows) {
    Place& mine = place(id);
    switch (node(id).kind) {
      case NodeKind::kCpu: mine.top = rows.cpu, mine.height = kCpuHeight; break;
      case NodeKind::kPci:
        mine.top = rows.pci + (depth - 1) * (kPciHeight + kGap), mine.height = kPciHeight;
        break;
      case NodeKind::kNic: mine.top = rows.nic, mine.height = nicHeight(id); break;
      case NodeKind::kGpu: mine.top = rows.gpu, mine.height = kDeviceHeight; break;
      case NodeKind::kNvSwitch:
      case NodeKind::kNet: break;
    }
    for (const NodeId child : below(id)) placeRows(child, depth + 1, rows);
  }

  // Lines first, so that boxes lie above them; down from the parent, across, down into the child.
  void drawTree(NodeId id) {
    const Place& mine = place(id);
    for (const LinkId link : linksDown(topology_, id)) {
      const NodeId child = topology_[link].to;
      if (node(child).kind == NodeKind::kNet) continue;
      const Place& its = place(child);
      const double bottom = mine.top + mine.height;
      const double turn = bottom + 14;
      const double width = std::clamp(std::sqrt(topology_[link].gbPerSecond) / 2.5, 1.2, 4.0);
      painter_.path(
          fmt::format("M{:.1f} {:.1f}V{:.1f}H{:.1f}V{:.1f}", mine.x, bottom, turn, its.x, its.top),
          kPciColours.stroke, width);
      const double gb = topology_[link].gbPerSecond;
      if (gb < kLocalGbPerSecond)
        painter_.words(its.x + 6, its.top - 10, lanes(topology_[link]),
                       {.size = 11, .anchor = "start"});
      drawC2c(child);
    }
    for (const NodeId child : below(id)) drawTree(child);
    drawBox(id);
  }

  static std::string lanes(const Link& link) {
    return link.lanes > 0 ? fmt::format("×{} · {}", link.lanes, shortNumber(link.gbPerSecond))
                          : shortNumber(link.gbPerSecond);
  }

  void drawC2c(NodeId gpu) {
    for (const LinkId each : node(gpu).links) {
      const Link& link = topology_[each];
      const bool isToCpu = node(link.to).kind == NodeKind::kCpu && link.kind != LinkKind::kPci;
      if (node(gpu).kind != NodeKind::kGpu || !isToCpu) continue;
      const Place& cpu = place(link.to);
      const Place& mine = place(gpu);
      const double x =
          std::clamp(mine.x - 34, cpu.x - cpu.width / 2 + 6, cpu.x + cpu.width / 2 - 6);
      painter_.path(fmt::format("M{:.1f} {:.1f}V{:.1f}", x, cpu.top + cpu.height, mine.top),
                    kSwitchColours.stroke, 4);
      // Two short lines fit between this line and the PCI link's.
      const double y = mine.top - 30;
      const Painter::Style style{.size = 11, .anchor = "start", .colour = kSwitchColours.stroke};
      painter_.words(x + 5, y, link.kind == LinkKind::kC2c ? "C2C" : "NVL", style);
      painter_.words(x + 5, y + 13, shortNumber(link.gbPerSecond), style);
    }
  }

  void drawBox(NodeId id) {
    const Place& at = place(id);
    const Node& mine = node(id);
    switch (mine.kind) {
      case NodeKind::kCpu: {
        painter_.box(at, kCpuColours);
        painter_.words(at.x, at.top + 22, mine.name, {.size = 15, .isBold = true});
        const std::string processors = processorsOf(mine.cpu.affinity);
        if (!processors.empty() && static_cast<double>(processors.size()) < at.width / 8)
          painter_.words(at.x, at.top + 41, "processors " + processors, {.size = 11});
        break;
      }
      case NodeKind::kPci:
        painter_.box(at, kPciColours);
        painter_.words(at.x, at.top + 19, (at.width > 130 ? "PCI " : "") + mine.busId,
                       {.size = 11});
        break;
      case NodeKind::kGpu:
        painter_.box(at, kGpuColours);
        painter_.words(at.x, at.top + 18, mine.name, {.size = 14, .isBold = true});
        painter_.words(at.x, at.top + 34, gpuFacts(mine), {.size = 11});
        painter_.words(at.x, at.top + 50, mine.busId, {.size = 11, .colour = "#555555"});
        break;
      case NodeKind::kNic: drawNic(id); break;
      case NodeKind::kNvSwitch:
      case NodeKind::kNet: break;
    }
  }

  static std::string gpuFacts(const Node& gpu) {
    std::string text = gpu.gpu.smVersion > 0
                           ? fmt::format("sm {}.{}", gpu.gpu.smVersion / 10, gpu.gpu.smVersion % 10)
                           : "";
    if (gpu.gpu.rank >= 0)
      text += fmt::format("{}rank {}", text.empty() ? "" : " · ", gpu.gpu.rank);
    return text;
  }

  void drawNic(NodeId id) {
    const Place& at = place(id);
    painter_.box(at, kNicColours);
    double y = at.top + 19;
    for (const LinkId link : linksDown(topology_, id)) {
      const Node& port = node(topology_[link].to);
      constexpr size_t kShown = 12;
      painter_.words(at.x, y, port.name.substr(0, kShown), {.size = 12, .isBold = true});
      const std::string rail = port.net.rail >= 0 ? fmt::format(" · rail {}", port.net.rail) : "";
      painter_.words(at.x, y + 15, fmt::format("{}{}", shortNumber(port.net.gbPerSecond), rail),
                     {.size = 11});
      y += 32;
    }
  }

  // Two CPUs: a line between them. More: each is joined to each, drawn as one bar.
  void drawSockets(const std::vector<NodeId>& cpus, bool hasBus, double top) {
    if (cpus.size() < 2) return;
    const LinkId first = findLink(topology_, cpus[0], cpus[1]);
    if (first == kNoLink) return;
    const double y = top + 10;
    const double left = place(cpus.front()).x;
    const double right = place(cpus.back()).x;
    painter_.path(fmt::format("M{:.1f} {:.1f}H{:.1f}", left, y, right), kCpuColours.stroke, 3);
    for (const NodeId cpu : cpus)
      painter_.path(fmt::format("M{0:.1f} {1:.1f}V{2:.1f}", place(cpu).x, y, place(cpu).top),
                    kCpuColours.stroke, 3);
    painter_.words((left + right) / 2, y - 8,
                   fmt::format("{} GB/s between {}", shortNumber(topology_[first].gbPerSecond),
                               hasBus ? "each two CPUs" : "the CPUs"),
                   {.size = 12, .colour = kCpuColours.stroke, .hasHalo = true});
  }

  // Returns where the host's drawing ends.
  double drawNvLinks(int32_t host, double top) {
    const std::vector<NodeId> switches = nodesOf(topology_, NodeKind::kNvSwitch, host);
    if (!switches.empty()) return drawSwitch(switches.front(), top);
    return drawArcs(host, top);
  }

  double drawSwitch(NodeId nvSwitch, double top) {
    const double barTop = top + kGap;
    double left = 1e9;
    double right = 0;
    for (const LinkId each : node(nvSwitch).links) {
      const Place& gpu = place(topology_[each].to);
      left = std::min(left, gpu.x - kBox / 2);
      right = std::max(right, gpu.x + kBox / 2);
      painter_.path(fmt::format("M{:.1f} {:.1f}V{:.1f}", gpu.x, top, barTop), kSwitchColours.stroke,
                    5);
      painter_.words(
          gpu.x + 7, top + 32, lanes(topology_[each]),
          {.size = 11, .anchor = "start", .colour = kSwitchColours.stroke, .hasHalo = true});
      right_ = std::max(right_, gpu.x + 80);
    }
    painter_.box(
        {.x = (left + right) / 2, .top = barTop, .width = right - left, .height = kSwitchHeight},
        kSwitchColours);
    painter_.words((left + right) / 2, barTop + 23, "NVSwitch: NVLink from each GPU to each other",
                   {.size = 14, .isBold = true});
    return barTop + kSwitchHeight;
  }

  double drawArcs(int32_t host, double top) {
    std::map<double, std::string> legend;  // by width
    std::vector<const Link*> arcs;
    for (const NodeId gpu : nodesOf(topology_, NodeKind::kGpu, host)) {
      for (const LinkId each : node(gpu).links) {
        const Link& link = topology_[each];
        if (link.kind != LinkKind::kNvLink || node(link.to).kind != NodeKind::kGpu ||
            link.to < link.from)
          continue;
        arcs.push_back(&link);
        legend[link.gbPerSecond] = fmt::format("NVLink {} GB/s", lanes(link));
      }
    }
    if (arcs.empty()) return top;
    double deepest = 0;
    for (const Link* link : arcs) {
      const auto rank =
          static_cast<size_t>(std::distance(legend.begin(), legend.find(link->gbPerSecond)));
      const Place& from = place(link->from);
      const Place& to = place(link->to);
      const double span = std::abs(to.x - from.x);
      const double depth = 24 + span * 0.24;
      deepest = std::max(deepest, depth);
      // Arcs to the right leave on the right, so that many at one GPU fan out.
      const double shift = (to.x > from.x ? 1 : -1) * std::min(36.0, 8 + span / 40);
      painter_.path(fmt::format("M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}",
                                from.x + shift, top, from.x + shift, top + depth * 1.33,
                                to.x - shift, top + depth * 1.33, to.x - shift, top),
                    colourOf(rank), 2.0 + 1.2 * static_cast<double>(rank));
    }
    double x = kMargin;
    const double y = top + deepest + 30;
    size_t rank = 0;
    for (const auto& [width, words] : legend) {
      painter_.path(fmt::format("M{:.1f} {:.1f}h34", x, y - 4), colourOf(rank),
                    2.0 + 1.2 * static_cast<double>(rank));
      painter_.words(x + 42, y, words, {.size = 13, .anchor = "start"});
      x += 220;
      ++rank;
    }
    right_ = std::max(right_, x);
    return y + 6;
  }

  static std::string_view colourOf(size_t rank) {
    return kArcColours[std::min(rank, std::size(kArcColours) - 1)];
  }

  const Topology& topology_;
  const std::string title_;
  std::vector<Place> places_;
  Painter painter_;
  double right_ = 0;
  int depth_ = 0;
};

}  // namespace

std::string drawSvg(const Topology& topology, const std::string& title) {
  return Drawing(topology, title).draw();
}

std::string drawHtml(const Topology& topology, const std::string& title, const std::string& tree,
                     const std::string& paths) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta "
      "charset=\"utf-8\"><title>{0}</title>\n<style>body{{font-family:sans-serif;margin:1.5em}}"
      "svg{{max-width:100%;height:auto}}pre{{overflow-x:auto;background:#f6f6f6;padding:1em}}</"
      "style></head>\n<body>\n{1}<h2>Tree</h2>\n<pre>{2}</pre>\n"
      "<h2>Paths</h2>\n<p>Closeness, GB/s, and the relay (g: GPU, c: CPU) where there is "
      "one.</p>\n<pre>{3}</pre>\n</body></html>\n",
      escapeMarkup(title), drawSvg(topology, title), escapeMarkup(tree), escapeMarkup(paths));
}

}  // namespace tutti::tools
