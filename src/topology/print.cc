#include "topology/print.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace tutti::topology {
namespace {

std::string_view nameOf(CpuArch arch) {
  switch (arch) {
    case CpuArch::kX86: return "x86_64";
    case CpuArch::kArm64: return "arm64";
    case CpuArch::kPower: return "ppc64";
    case CpuArch::kUnknown: break;
  }
  return "";
}

std::string_view nameOf(CpuVendor vendor) {
  switch (vendor) {
    case CpuVendor::kIntel: return "Intel";
    case CpuVendor::kAmd: return "AMD";
    case CpuVendor::kZhaoxin: return "Zhaoxin";
    case CpuVendor::kUnknown: break;
  }
  return "";
}

class TreePrinter {
 public:
  explicit TreePrinter(const Topology& topology) : topology_(topology) {}

  std::string print() {
    for (size_t host = 0; host < topology_.hosts.size(); ++host)
      printHost(static_cast<int32_t>(host));
    for (const std::string& line : topology_.assumptions)
      text_ += fmt::format("assumed: {}\n", line);
    return std::move(text_);
  }

 private:
  void printHost(int32_t host) {
    text_ += topology_.hosts.size() > 1 ? fmt::format("host {}", host) : std::string("host");
    if (topology_.hosts[static_cast<size_t>(host)].hash != 0)
      text_ += fmt::format(" 0x{:x}", topology_.hosts[static_cast<size_t>(host)].hash);
    text_ += fmt::format(": {}\n", summaryOf(topology_, host));
    const std::vector<NodeId> cpus = nodesOf(topology_, NodeKind::kCpu, host);
    for (const NodeId cpu : cpus) printNode(cpu, kNoLink, "", cpu == cpus.back());
  }

  void printNode(NodeId id, LinkId from, const std::string& indent, bool isLast) {
    text_ += fmt::format("{}{}{}\n", indent, isLast ? "└─ " : "├─ ", label(id, from));
    const std::vector<LinkId> children = linksDown(topology_, id);
    const std::string deeper = indent + (isLast ? "   " : "│  ");
    for (size_t i = 0; i < children.size(); ++i)
      printNode(topology_[children[i]].to, children[i], deeper, i + 1 == children.size());
  }

  std::string label(NodeId id, LinkId from) const {
    const Node& node = topology_[id];
    std::string text = node.name;
    const auto add = [&](std::string_view what) {
      if (!what.empty()) text += fmt::format("  {}", what);
    };
    if (node.kind != NodeKind::kPci) add(node.busId);
    if (from != kNoLink && node.kind != NodeKind::kNet) add(width(topology_[from]));
    switch (node.kind) {
      case NodeKind::kCpu: {
        add(nameOf(node.cpu.vendor));
        add(nameOf(node.cpu.arch));
        const std::string processors = processorsOf(node.cpu.affinity);
        if (!processors.empty()) add(fmt::format("processors {}", processors));
        break;
      }
      case NodeKind::kGpu:
        if (node.gpu.smVersion > 0)
          add(fmt::format("sm {}.{}", node.gpu.smVersion / 10, node.gpu.smVersion % 10));
        if (node.gpu.rank >= 0) add(fmt::format("rank {}", node.gpu.rank));
        if (node.gpu.directNet) add("GPUDirect");
        break;
      case NodeKind::kNet:
        add(fmt::format("{} GB/s", shortNumber(node.net.gbPerSecond)));
        if (node.net.rail >= 0) add(fmt::format("rail {}", node.net.rail));
        if (node.net.directGpu) add("GPUDirect");
        break;
      case NodeKind::kPci:
      case NodeKind::kNvSwitch:
      case NodeKind::kNic: break;
    }
    add(sideLinks(id));
    return text;
  }

  std::string width(const Link& link) const {
    if (link.lanes > 0)
      return fmt::format("×{} {} GB/s", link.lanes, shortNumber(link.gbPerSecond));
    return fmt::format("{} GB/s", shortNumber(link.gbPerSecond));
  }

  // Links that are not the tree's: NVLink, C2C, between CPUs.
  std::string sideLinks(NodeId id) const {
    std::string text;
    for (const LinkId each : topology_[id].links) {
      const Link& link = topology_[each];
      if (link.kind != LinkKind::kNvLink && link.kind != LinkKind::kC2c &&
          link.kind != LinkKind::kSys)
        continue;
      if (topology_[id].kind == NodeKind::kCpu && link.kind != LinkKind::kSys) continue;
      text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", topology::nameOf(link.kind),
                          width(link), topology_[link.to].name);
    }
    return text.empty() ? text : fmt::format("[{}]", text);
  }

  const Topology& topology_;
  std::string text_;
};

std::string columnName(const Topology& topology, NodeId id) {
  const Node& node = topology[id];
  const std::string host = topology.hosts.size() > 1 ? fmt::format("{}:", node.host) : "";
  switch (node.kind) {
    case NodeKind::kGpu: return fmt::format("{}GPU{}", host, node.number);
    case NodeKind::kCpu: return fmt::format("{}CPU{}", host, node.number);
    case NodeKind::kNet: return fmt::format("{}{}", host, node.name);
    case NodeKind::kPci:
    case NodeKind::kNvSwitch:
    case NodeKind::kNic: break;
  }
  return fmt::format("{}{}", host, node.name);
}

std::string cell(const Topology& topology, const Path& path) {
  if (path.kind == PathKind::kLoc) return "-";
  if (path.kind == PathKind::kDis) return "DIS";
  std::string text =
      fmt::format("{} {}", topology::nameOf(path.kind), shortNumber(path.gbPerSecond));
  if (path.relay != kNoNode) {
    const Node& relay = topology[path.relay];
    text += fmt::format(" {}{}", relay.kind == NodeKind::kGpu ? 'g' : 'c', relay.number);
  }
  return text;
}

std::string table(const Topology& topology, const Paths& paths, const std::vector<NodeId>& rows,
                  const std::vector<NodeId>& columns) {
  std::vector<std::vector<std::string>> cells(1, {""});
  for (const NodeId column : columns) cells[0].push_back(columnName(topology, column));
  for (const NodeId row : rows) {
    cells.push_back({columnName(topology, row)});
    for (const NodeId column : columns)
      cells.back().push_back(cell(topology, paths.between(row, column)));
  }
  std::vector<size_t> widths(cells[0].size(), 0);
  for (const std::vector<std::string>& line : cells) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const std::vector<std::string>& line : cells) {
    std::string printed;
    for (size_t i = 0; i < line.size(); ++i)
      printed += fmt::format("{:<{}}", line[i], widths[i] + 2);
    printed.erase(printed.find_last_not_of(' ') + 1);
    text += fmt::format("{}\n", printed);
  }
  return text;
}

}  // namespace

std::string printTree(const Topology& topology) { return TreePrinter(topology).print(); }

std::string summaryOf(const Topology& topology, int32_t host) {
  std::string text;
  for (const NodeKind kind : {NodeKind::kCpu, NodeKind::kGpu, NodeKind::kNet}) {
    const size_t count = nodesOf(topology, kind, host).size();
    if (count == 0) continue;
    const std::string_view what = kind == NodeKind::kNet ? "network port" : nameOf(kind);
    text += fmt::format("{}{} {}{}", text.empty() ? "" : ", ", count, what, count == 1 ? "" : "s");
  }
  if (!nodesOf(topology, NodeKind::kNvSwitch, host).empty()) text += ", NVSwitch";
  return text;
}

namespace {

std::string tablesOf(const Topology& topology, const Paths& paths, int32_t host) {
  const std::vector<NodeId> gpus = nodesOf(topology, NodeKind::kGpu, host);
  const std::vector<NodeId> cpus = nodesOf(topology, NodeKind::kCpu, host);
  const std::vector<NodeId> ports = nodesOf(topology, NodeKind::kNet, host);
  const std::vector<NodeId>& ends = gpus.empty() ? cpus : gpus;
  std::string text = table(topology, paths, ends, ends);
  if (!ports.empty()) text += fmt::format("\n{}", table(topology, paths, ends, ports));
  if (!gpus.empty()) text += fmt::format("\n{}", table(topology, paths, ends, cpus));
  return text;
}

// "0-7,9" of hosts in a row.
std::string rangesOf(const std::vector<int32_t>& hosts) {
  std::string text;
  for (size_t i = 0; i < hosts.size();) {
    size_t last = i;
    while (last + 1 < hosts.size() && hosts[last + 1] == hosts[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", hosts[i]);
    if (last > i) text += fmt::format("-{}", hosts[last]);
    i = last + 1;
  }
  return text;
}

// Hosts by what leads out of them.
std::string waysOut(const Topology& topology, const Paths& paths) {
  std::map<std::string, std::vector<int32_t>> hosts;
  for (int32_t host = 0; host < static_cast<int32_t>(topology.hosts.size()); ++host)
    hosts[cell(topology, paths.outside(host))].push_back(host);
  std::string text;
  for (const auto& [way, each] : hosts)
    text += fmt::format("{}{} of {} {}", text.empty() ? "" : ", ", way,
                        each.size() == 1 ? "host" : "hosts", rangesOf(each));
  return text;
}

}  // namespace

// A host at a time: all there is to say about two hosts is which has the narrower ports, and tables
// over all of them grow by their square (2,048 ends printed 50 MB).
std::string printPaths(const Topology& topology, const Paths& paths) {
  const auto hosts = static_cast<int32_t>(topology.hosts.size());
  std::string text;
  for (int32_t host = 0; host < hosts; ++host)
    text += fmt::format("{}{}", host == 0 ? "" : "\n", tablesOf(topology, paths, host));
  if (hosts < 2) return text;
  return text +
         fmt::format("\nbetween hosts, the narrower of the two: {}\n", waysOut(topology, paths));
}

std::string processorsOf(const std::string& affinity) {
  std::vector<int> digits;  // least significant first
  for (auto each = affinity.rbegin(); each != affinity.rend(); ++each) {
    if (*each == ',') continue;
    digits.push_back(*each >= 'a'   ? *each - 'a' + 10
                     : *each >= 'A' ? *each - 'A' + 10
                                    : *each - '0');
  }
  const auto isSet = [&](size_t bit) {
    return bit / 4 < digits.size() && ((digits[bit / 4] >> (bit % 4)) & 1) != 0;
  };
  std::string text;
  for (size_t bit = 0; bit < digits.size() * 4; ++bit) {
    if (!isSet(bit)) continue;
    size_t last = bit;
    while (isSet(last + 1)) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", bit);
    if (last > bit) text += fmt::format("-{}", last);
    bit = last;
  }
  return text;
}

std::string shortNumber(double value) {
  const double rounded = std::round(value * 10) / 10;
  if (value > 0 && rounded < 0.1) return fmt::format("{:.2g}", value);
  return rounded == std::floor(rounded) ? fmt::format("{:.0f}", rounded)
                                        : fmt::format("{:.1f}", rounded);
}

}  // namespace tutti::topology
