#include "comm/graphs.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>

#include "base/log.h"
#include "base/units.h"
#include "base/whole_file.h"
#include "graph/print.h"
#include "graph/xml.h"
#include "kernels/gpu_catalog.h"
#include "schedule/schedule.h"
#include "topology/paths.h"
#include "topology/registry.h"

namespace tutti::comm {
namespace {

using topology::Topology;

constexpr std::array kPatterns = {graph::Pattern::kRing, graph::Pattern::kBalancedTree,
                                  graph::Pattern::kSwitch};

std::vector<int32_t> gpuRanks(const Topology& topology) {
  std::vector<int32_t> ranks;
  for (const topology::NodeId gpu : topology::nodesOf(topology, topology::NodeKind::kGpu)) {
    if (topology[gpu].gpu.rank >= 0) ranks.push_back(topology[gpu].gpu.rank);
  }
  return ranks;
}

// Of NCCL_GRAPH_FILE; none where it is not set, or not usable.
std::vector<graph::FoundGraph> graphsOfFile(const std::string& path, const Topology& topology,
                                            const topology::Paths& paths) {
  if (path.empty()) return {};
  const auto parse = [&]() -> Result<std::vector<graph::NodeGraph>> {
    TUTTI_TRY_ASSIGN(const std::string text, topology::readXmlText(path));
    return graph::parseGraphs(text, path, {topology, paths});
  };
  const Result<std::vector<graph::NodeGraph>> read = parse();
  if (!read.ok()) {
    log::warn("NCCL_GRAPH_FILE is not used, graphs are searched instead: {}",
              read.status().message());
    return {};
  }
  std::vector<graph::FoundGraph> found;
  for (const graph::NodeGraph& each : read.value())
    found.push_back({.graph = each, .boundGbPerSecond = each.totalGbPerSecond()});
  return found;
}

HostGraphs planTopology(const Settings& settings, Topology topology) {
  const topology::Paths paths = topology::computePaths(topology);
  HostGraphs graphs;
  graphs.source = settings.text("NCCL_GRAPH_FILE");
  graphs.found = graphsOfFile(graphs.source, topology, paths);
  if (graphs.found.empty()) {
    graphs.source = "the search";
    for (const graph::Pattern pattern : kPatterns) {
      graph::FoundGraph found = graph::search(topology, paths, {.pattern = pattern});
      if (!found.graph.channels.empty()) graphs.found.push_back(std::move(found));
    }
  }
  graphs.topology = std::move(topology);
  return graphs;
}

void dump(const std::string& path, const HostGraphs& graphs) {
  std::vector<graph::NodeGraph> plain;
  for (const graph::FoundGraph& each : graphs.found) plain.push_back(each.graph);
  const Status status = writeWholeFile(path, graph::writeGraphs(graphs.topology, plain), kForAll);
  if (!status.ok()) log::warn("NCCL_GRAPH_DUMP_FILE: {}", status.message());
}

}  // namespace

std::optional<HostGraphs> planHost(const Settings& settings, const topology::Description& machine) {
  Result<Topology> built = topology::buildTopology(machine);
  if (!built.ok()) {
    log::warn("graphs: {}", built.status().message());
    return std::nullopt;
  }
  const std::vector<int32_t> ranks = gpuRanks(built.value());
  if (ranks.size() < 2) return std::nullopt;
  return planTopology(settings, topology::trim(built.value(), ranks));
}

void showGraphs(const Settings& settings, const HostGraphs& graphs, bool isFirst, Rank self) {
  const std::string& path = settings.text("NCCL_GRAPH_DUMP_FILE");
  if (!path.empty() && settings.integer("NCCL_GRAPH_DUMP_FILE_RANK") == index(self))
    dump(path, graphs);
  if (!isFirst || !log::isEnabled(log::Level::kInfo, log::Subsystem::kInit)) return;
  std::stringstream lines(describe(graphs));
  for (std::string line; std::getline(lines, line);)
    log::info(log::Subsystem::kInit, "graph {}", line);
}

std::string describe(const HostGraphs& graphs) {
  std::string text = fmt::format("from {}\n", graphs.source);
  for (const graph::FoundGraph& each : graphs.found) text += graph::print(graphs.topology, each);
  return text;
}

std::string describeChoices(const plan::Agreement& agreement) {
  std::string text;
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (collective == Collective::kRecv) continue;  // as its send
    std::string line;
    for (const plan::Switch& each : plan::switchesOf(collective, agreement))
      line += line.empty() ? std::string(each.algorithm)
                           : fmt::format(", {} from {} bytes", each.algorithm, each.bytes);
    text += fmt::format("{:<13}  {}\n", name(collective),
                        line.empty() ? "nothing that NCCL_ALGO allows" : line);
  }
  return text;
}

std::string describeChoices(const launch::GpuBatcher::Limits& limits) {
  constexpr int kFirstPower = 3, kLastPower = 32;
  launch::GpuChooser chooser(limits);
  std::string text;
  if (limits.minBlocks > 1 || limits.maxBlocks < wire::kGpuMaxBlocks) {
    text += fmt::format("{:<13}  {} to {} (NCCL_MIN_CTAS, NCCL_MAX_CTAS)\n", "blocks",
                        limits.minBlocks, limits.maxBlocks);
  }
  if (limits.hasBulk && (limits.savesBlocks || limits.adaptsBlocks)) {
    text +=
        fmt::format("{:<13}  {} at most in long calls {}\n", "blocks", kernels::cuda::kSavingBlocks,
                    limits.savesBlocks ? "of more than two ranks (NCCL_CTA_POLICY)"
                                       : "while other kernels have the GPUs");
  }
  if (limits.prefersEngines)
    text += fmt::format("{:<13}  into symmetric windows (NCCL_CTA_POLICY)\n", "copy engines");
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (isPointToPoint(collective)) continue;
    const auto blocks = static_cast<uint64_t>(schedule::blockCount(collective, limits.rankCount));
    std::string line, last;
    for (int power = kFirstPower; power <= kLastPower; ++power) {
      const uint64_t bytes = uint64_t{1} << power;
      const auto decision = chooser.decisionFor(
          {.collective = collective, .count = divideUp(bytes, blocks * sizeof(float))});
      const auto choice = decision.program
                              ? kernels::cuda::programKernel(decision.request, *decision.program)
                              : kernels::cuda::choose(decision.request);
      if (!choice) break;
      std::string taken = fmt::format("{} by {}{}", choice->algorithm, choice->protocol,
                                      decision.program ? ", as a program" : "");
      if (taken == last) continue;
      line += line.empty() ? taken : fmt::format(", {} from {} bytes", taken, bytes);
      last = std::move(taken);
    }
    text += fmt::format("{:<13}  {}\n", name(collective), line);
  }
  return text;
}

}  // namespace tutti::comm
