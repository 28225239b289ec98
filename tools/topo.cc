// tutti topo: the machine as the planner sees it, from a file or from the machine itself, as text,
// picture or data.
#include <fmt/core.h>

#include <CLI/App.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/settings.h"
#include "tools/command.h"
#include "tools/topo_svg.h"
#include "topology/paths.h"
#include "topology/print.h"
#include "topology/registry.h"
#include "topology/topology.h"
#include "topology/xml.h"

namespace tutti::tools {
namespace {

struct Options {
  std::string file;
  std::string profile;
  std::string root;
  bool svg = false, html = false, xml = false, json = false;
};

// A picture of a machine by other rules than those that were asked for would be wrong.
Result<topology::PathPolicy> policyOf(const Settings& settings) {
  for (const SettingComplaint& complaint : settings.complaints()) {
    if (complaint.name == "NCCL_P2P_LEVEL" || complaint.name == "NCCL_NET_GDR_LEVEL")
      return invalidArgument("{}", complaint.text);
  }
  topology::PathPolicy policy;
  TUTTI_TRY_ASSIGN(policy.peerLevel,
                   topology::parseLevel("NCCL_P2P_LEVEL", settings.text("NCCL_P2P_LEVEL")));
  if (settings.text("NCCL_P2P_DISABLE") == "1") policy.peerLevel = topology::PathKind::kLoc;
  TUTTI_TRY_ASSIGN(policy.directNetLevel,
                   topology::parseLevel("NCCL_NET_GDR_LEVEL", settings.text("NCCL_NET_GDR_LEVEL")));
  policy.relayOverGpus = settings.text("NCCL_NVB_DISABLE") != "1";
  policy.relayToNics = settings.integer("NCCL_PXN_DISABLE") == 0;
  policy.relayToNicsOverC2c = settings.text("NCCL_PXN_C2C") != "0";
  policy.directNetOverC2c = settings.text("NCCL_NET_GDR_C2C") != "0";
  return policy;
}

Result<topology::Description> describe(const Options& options, const Settings& settings) {
  std::string file = options.file;
  if (file.empty() && options.root.empty()) file = settings.text("NCCL_TOPO_FILE");
  Result<topology::Description> found =
      file.empty() ? topology::discover({.root = options.root}) : topology::readDescription(file);
  if (!found.ok() || options.profile.empty()) return found;
  return topology::completeFromFile(found.value(), options.profile);
}

nlohmann::ordered_json toJson(const topology::Topology& machine, const topology::Node& node) {
  nlohmann::ordered_json each = {{"kind", topology::nameOf(node.kind)},
                                 {"host", node.host},
                                 {"number", node.number},
                                 {"name", node.name}};
  if (!node.busId.empty()) each["bus_id"] = node.busId;
  if (node.parent != topology::kNoNode) each["parent"] = topology::index(node.parent);
  switch (node.kind) {
    case topology::NodeKind::kGpu:
      each["rank"] = node.gpu.rank;
      each["sm"] = node.gpu.smVersion;
      each["gpudirect"] = node.gpu.directNet;
      each["peer_over_pci"] = node.gpu.peerOverPci;
      break;
    case topology::NodeKind::kNet:
      each["gb_per_second"] = node.net.gbPerSecond;
      each["gpudirect"] = node.net.directGpu;
      if (node.net.rail >= 0) each["rail"] = node.net.rail;
      break;
    case topology::NodeKind::kCpu:
      each["processors"] = topology::processorsOf(node.cpu.affinity);
      break;
    case topology::NodeKind::kPci:
    case topology::NodeKind::kNvSwitch:
    case topology::NodeKind::kNic: break;
  }
  for (const topology::LinkId id : node.links) {
    const topology::Link& link = machine[id];
    each["links"].push_back({{"to", topology::index(link.to)},
                             {"kind", topology::nameOf(link.kind)},
                             {"gb_per_second", link.gbPerSecond},
                             {"lanes", link.lanes}});
  }
  return each;
}

std::string textOf(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// Line by line, since each two ends of a host have a path: all of them at once took 300 MB for the
// largest file that is accepted.
class JsonList {
 public:
  explicit JsonList(std::string_view name) { fmt::print(" \"{}\": [", name); }
  ~JsonList() { fmt::print("{} ],\n", isEmpty_ ? "" : "\n"); }
  JsonList(const JsonList&) = delete;
  JsonList& operator=(const JsonList&) = delete;

  void add(const nlohmann::ordered_json& value) {
    fmt::print("{}\n  {}", isEmpty_ ? "" : ",", textOf(value));
    isEmpty_ = false;
  }

 private:
  bool isEmpty_ = true;
};

void printPathsOf(JsonList& list, const topology::Topology& machine, const topology::Paths& paths,
                  int32_t host) {
  std::vector<topology::NodeId> ends;
  for (const topology::NodeKind kind :
       {topology::NodeKind::kGpu, topology::NodeKind::kCpu, topology::NodeKind::kNet}) {
    for (const topology::NodeId each : nodesOf(machine, kind, host)) ends.push_back(each);
  }
  for (const topology::NodeId from : ends) {
    for (const topology::NodeId to : ends) {
      if (from == to) continue;
      const topology::Path& path = paths.between(from, to);
      nlohmann::ordered_json each = {{"from", topology::index(from)},
                                     {"to", topology::index(to)},
                                     {"kind", topology::nameOf(path.kind)},
                                     {"gb_per_second", path.gbPerSecond}};
      if (path.relay != topology::kNoNode) each["relay"] = topology::index(path.relay);
      list.add(each);
    }
  }
}

// Paths are those within a host; between two hosts it is the narrower one's way out.
void printJson(const topology::Topology& machine, const topology::Paths& paths) {
  const auto hosts = static_cast<int32_t>(machine.hosts.size());
  fmt::print("{{\n");
  {
    JsonList nodes("nodes");
    for (const topology::Node& node : machine.nodes) nodes.add(toJson(machine, node));
  }
  {
    JsonList list("paths");
    for (int32_t host = 0; host < hosts; ++host) printPathsOf(list, machine, paths, host);
  }
  {
    JsonList ways("ways_out");
    for (int32_t host = 0; hosts > 1 && host < hosts; ++host) {
      const topology::Path& path = paths.outside(host);
      ways.add({{"host", host},
                {"kind", topology::nameOf(path.kind)},
                {"gb_per_second", path.gbPerSecond}});
    }
  }
  fmt::print(" \"assumed\": {}\n}}\n", textOf(machine.assumptions));
}

std::string titleOf(const topology::Description& description) {
  const std::string& source = description.source;
  const size_t slash = source.rfind('/');
  std::string name = slash == std::string::npos ? source : source.substr(slash + 1);
  if (name.ends_with(".xml")) name.resize(name.size() - 4);
  return name;
}

Status show(const Options& options) {
  const Settings settings = Settings::load();
  TUTTI_TRY_ASSIGN(const topology::PathPolicy policy, policyOf(settings));
  TUTTI_TRY_ASSIGN(const topology::Description description, describe(options, settings));
  if (options.xml) {
    fmt::print("{}", topology::writeXml(description));
    return {};
  }
  TUTTI_TRY_ASSIGN(const topology::Topology machine, topology::buildTopology(description));
  const topology::Paths paths = computePaths(machine, policy);
  if (options.json) {
    printJson(machine, paths);
  } else if (options.svg) {
    fmt::print("{}", drawSvg(machine, titleOf(description)));
  } else if (options.html) {
    fmt::print("{}", drawHtml(machine, titleOf(description), printTree(machine),
                              printPaths(machine, paths)));
  } else {
    fmt::print("{}\n{}", printTree(machine), printPaths(machine, paths));
  }
  return {};
}

}  // namespace

void addTopo(CLI::App& app, int& exitCode) {
  auto options = std::make_shared<Options>();  // shared by the options and the callback
  CLI::App* command = app.add_subcommand(
      "topo", "Show processors, GPUs, NICs, the links between them and the paths that follow");
  command->add_option(
      "--topo,--file", options->file,
      "A topology XML (NCCL_TOPO_FILE) or hwloc's; without: NCCL_TOPO_FILE, or this machine");
  command->add_option("--profile", options->profile,
                      "A node profile that completes a skeleton without GPUs");
  command->add_option("--root", options->root, "Look for /sys and /proc below this folder")
      ->excludes("--topo");
  CLI::Option_group* form = command->add_option_group("form");
  form->add_flag("--svg", options->svg, "Print a picture");
  form->add_flag("--html", options->html, "Print a page with picture, tree and paths");
  form->add_flag("--xml", options->xml, "Print the topology XML");
  form->add_flag("--json", options->json, "Print nodes, links and paths as JSON");
  form->require_option(0, 1);
  command->footer(
      "Paths heed NCCL_P2P_LEVEL, NCCL_P2P_DISABLE, NCCL_NET_GDR_LEVEL, NCCL_NVB_DISABLE and "
      "NCCL_PXN_DISABLE.\n"
      "Exit code: 0 shown, 2 usage, 3 a file that cannot be read or makes no sense.\n"
      "Example: tutti topo --svg > machine.svg");
  command->callback([options, &exitCode] {
    const Status status = show(*options);
    if (status.ok()) return;
    fmt::print(stderr, "tutti topo: {}\n", status.message());
    exitCode = kExitEnvironment;
  });
}

}  // namespace tutti::tools
