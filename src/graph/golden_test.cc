// Every machine that is described: its graphs are the ones on file, fit its links and close.
#include <fmt/core.h>

#include <array>
#include <cstdio>
#include <fstream>

#include "graph/graphs_testing.h"
#include "graph/print.h"

namespace tutti::graph {
namespace {

using topology::NodeKind;
using topology::Topology;

struct Task {
  Pattern pattern;
  bool betweenNodes;
};
constexpr std::array kTasks = {
    Task{Pattern::kRing, false},         Task{Pattern::kRing, true},
    Task{Pattern::kBalancedTree, false}, Task{Pattern::kBalancedTree, true},
    Task{Pattern::kSwitch, false},       Task{Pattern::kDirect, true}};

bool isNeeded(Pattern pattern) {
  return pattern == Pattern::kRing || pattern == Pattern::kBalancedTree;
}

// The text of all graphs of the host, after looking at each.
std::string graphsOf(const Topology& topology, const topology::Paths& paths, int32_t host) {
  std::string text;
  const bool hasPorts = !nodesOf(topology, NodeKind::kNet, host).empty();
  for (const Task& task : kTasks) {
    if (task.betweenNodes && !hasPorts) continue;
    const FoundGraph found =
        search(topology, paths,
               {.pattern = task.pattern, .host = host, .betweenNodes = task.betweenNodes});
    if (isNeeded(task.pattern)) {
      EXPECT_FALSE(found.graph.channels.empty()) << nameOf(task.pattern);
      EXPECT_LE(found.graph.totalGbPerSecond(), found.boundGbPerSecond * (1 + kRounding));
      expectValid(topology, paths, found.graph, host);
    } else if (found.graph.channels.empty()) {
      continue;
    }
    text += fmt::format("host {}, {}: {}", host, task.betweenNodes ? "among nodes" : "by itself",
                        print(topology, found));
  }
  return text;
}

std::string graphsOf(const Topology& topology) {
  const topology::Paths paths = topology::computePaths(topology);
  std::string text;
  for (int32_t host = 0; host < static_cast<int32_t>(topology.hosts.size()); ++host) {
    if (!nodesOf(topology, NodeKind::kGpu, host).empty()) text += graphsOf(topology, paths, host);
  }
  return text;
}

class Graphs : public testing::TestWithParam<std::string> {};

TEST_P(Graphs, AreTheOnesOnFile) {
  const std::string text = graphsOf(topology::machine(GetParam()));
  const std::filesystem::path file = topology::goldenFolder() / (GetParam() + ".graphs.txt");
  if (environmentVariable("TUTTI_UPDATE_GOLDEN") && !text.empty()) std::ofstream(file) << text;
  EXPECT_EQ(text, topology::readText(file)) << file;
}

INSTANTIATE_TEST_SUITE_P(OfTheProject, Graphs,
                         testing::ValuesIn(topology::machinesIn(topology::goldenFolder())),
                         [](const auto& each) { return each.param; });

TEST(ForeignGraphs, FitTheLinksOfTheirMachines) {
  const std::filesystem::path folder = std::filesystem::path(TUTTI_TEST_DATA) / "topologies";
  const std::vector<std::string> names = topology::machinesIn(folder);
  if (names.empty()) GTEST_SKIP() << "the published topologies are not on this machine";
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    // A skeleton without GPUs may lack what a graph needs; completing it is not the search's
    // business.
    const Result<Topology> topology = buildTopology(topology::describe(folder, name));
    if (topology.ok()) {
      const std::string text = graphsOf(topology.value());
      if (environmentVariable("TUTTI_UPDATE_GOLDEN")) printf("%s\n%s", name.c_str(), text.c_str());
    }
  }
}

}  // namespace
}  // namespace tutti::graph
