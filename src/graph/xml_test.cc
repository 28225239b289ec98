#include "graph/xml.h"

#include <gmock/gmock.h>

#include "graph/graphs_testing.h"
#include "graph/search.h"

namespace tutti::graph {
namespace {

using topology::Paths;
using topology::Topology;

std::vector<NodeGraph> graphsOf(const Topology& topology, const Paths& paths, bool betweenNodes) {
  std::vector<NodeGraph> graphs;
  for (const Pattern pattern : {Pattern::kRing, Pattern::kBalancedTree, Pattern::kSwitch}) {
    graphs.push_back(
        search(topology, paths, {.pattern = pattern, .betweenNodes = betweenNodes}).graph);
  }
  return graphs;
}

TEST(GraphXml, IsReadAsItWasWritten) {
  for (const std::string& name : topology::machinesIn(topology::goldenFolder())) {
    SCOPED_TRACE(name);
    const Topology topology = topology::machine(name);
    const Paths paths = topology::computePaths(topology);
    for (const bool betweenNodes : {false, true}) {
      const std::string text = writeGraphs(topology, graphsOf(topology, paths, betweenNodes));
      const auto read = parseGraphs(text, "written", {topology, paths});
      ASSERT_TRUE(read.ok()) << read.status().message();
      EXPECT_EQ(writeGraphs(topology, read.value()), text);
      for (const NodeGraph& each : read.value()) {
        if (each.pattern != Pattern::kSwitch && !each.channels.empty())
          expectValid(topology, paths, each, 0);
      }
    }
  }
}

std::string refusal(const std::string& text, const std::string& machine) {
  const Topology topology = topology::machine(machine);
  const Paths paths = topology::computePaths(topology);
  const auto read = parseGraphs(text, "graphs.xml", {topology, paths});
  EXPECT_FALSE(read.ok());
  return read.ok() ? "" : std::string(read.status().message());
}

std::string fileOf(const std::string& machine, bool betweenNodes) {
  const Topology topology = topology::machine(machine);
  return writeGraphs(topology, graphsOf(topology, topology::computePaths(topology), betweenNodes));
}

TEST(GraphXml, OfAnotherMachineIsRefusedWithTheDifference) {
  using testing::HasSubstr;
  const std::string ofEight = fileOf("dgx_h100", false);
  EXPECT_THAT(refusal(ofEight, "hgx_h100_4gpu"),
              HasSubstr("it has GPU 4, this machine GPUs 0 1 2 3"));
  EXPECT_THAT(refusal(ofEight, "hgx_h100_4gpu"), HasSubstr("graphs.xml:8:"));
  EXPECT_THAT(refusal(fileOf("hgx_h100_4gpu", false), "dgx_h100"),
              HasSubstr("GPUs 4 5 6 7 of this machine are left out"));
  EXPECT_THAT(refusal(ofEight, "server_8xl40s"),
              HasSubstr("GPU 0 and GPU 1 are neighbours at NVL, on this machine they are at PIX"));
  EXPECT_THAT(refusal(fileOf("dgx_h100", true), "vm_4xh100"), HasSubstr("another machine's graph"));
}

// The same GPU numbers, so only distance and width tell.
TEST(GraphXml, OfAMachineWithAsManyGpusIsRefusedWithTheDifference) {
  using testing::HasSubstr;
  EXPECT_THAT(refusal(fileOf("server_8xl40s", false), "dgx1v"),
              HasSubstr("farthest neighbours are at SYS, on this machine at NV"));
  EXPECT_THAT(refusal(fileOf("dgx_h100", false), "dgx_a100"),
              testing::AllOf(HasSubstr("its channels take"), HasSubstr("on this machine")));
}

TEST(GraphXml, OfAPublishedMachineIsRefusedOnAnother) {
  const std::filesystem::path folder = std::filesystem::path(TUTTI_TEST_DATA) / "topologies";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "the published graphs are not here";
  const auto of = [&](const char* name) { return topology::readText(folder / name); };
  EXPECT_THAT(refusal(of("8x3090_pcie.graph.xml"), "dgx1v"), testing::HasSubstr("farthest"));
  EXPECT_THAT(refusal(of("dgx1v_8xV100.graph.xml"), "server_8xl40s"),
              testing::HasSubstr("another machine's graph"));
}

TEST(GraphXml, ThatIsNoneIsRefusedWhereItGoesWrong) {
  using testing::HasSubstr;
  const auto graph = [](const std::string& attributes, const std::string& inside) {
    return "<graphs version=\"1\">\n<graph id=\"0\" speedintra=\"20\" " + attributes + ">" +
           inside + "</graph></graphs>";
  };
  const std::string usual = "pattern=\"4\" nchannels=\"1\" typeintra=\"NVL\" typeinter=\"PIX\"";
  EXPECT_THAT(refusal("<system version=\"1\"/>", "vm_4xh100"), HasSubstr("wanted <graphs>"));
  EXPECT_THAT(refusal("<graphs version=\"7\"/>", "vm_4xh100"), HasSubstr("1 can be read"));
  EXPECT_THAT(refusal("<graphs version=\"1\"/>", "vm_4xh100"), HasSubstr("no <graph>"));
  EXPECT_THAT(refusal(graph("pattern=\"9\"", ""), "vm_4xh100"), HasSubstr("graphs.xml:2:"));
  EXPECT_THAT(refusal(graph(usual, ""), "vm_4xh100"), HasSubstr("1 channels are announced, 0"));
  EXPECT_THAT(refusal(graph("pattern=\"4\" nchannels=\"0\" typeintra=\"XYZ\"", ""), "vm_4xh100"),
              HasSubstr("\"XYZ\": wanted LOC, NVL"));
  EXPECT_THAT(
      refusal(graph(usual, "<channel><gpu dev=\"0\"/><gpu dev=\"0\"/></channel>"), "vm_4xh100"),
      HasSubstr("GPU 0 comes twice"));
  EXPECT_THAT(refusal(graph(usual, "<channel><net dev=\"77\"/></channel>"), "vm_4xh100"),
              HasSubstr("it has network port 77"));
}

TEST(GraphXml, OfOthersIsRead) {
  const std::filesystem::path folder = std::filesystem::path(TUTTI_TEST_DATA) / "topologies";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "the published graphs are not here";
  for (const char* name : {"dgx1v_8xV100", "8x3090_pcie"}) {
    const Result<Topology> topology = buildTopology(topology::describe(folder, name));
    ASSERT_TRUE(topology.ok());
    const Paths paths = topology::computePaths(topology.value());
    const auto read = parseGraphs(topology::readText(folder / (std::string(name) + ".graph.xml")),
                                  name, {topology.value(), paths});
    ASSERT_TRUE(read.ok()) << read.status().message();
    const NodeGraph& graph = read.value().front();
    EXPECT_EQ(graph.pattern, Pattern::kRing);
    // Ours carry at least as much, by the links' width (V100's links count 20 now, 22 then).
    const double theirs = graph.totalGbPerSecond() * (graph.channels.size() > 1 ? 20. / 22 : 1);
    const SearchOptions options{.betweenNodes = graph.channels[0].entry != topology::kNoNode};
    EXPECT_GE(search(topology.value(), paths, options).graph.totalGbPerSecond(),
              theirs - kRounding);
  }
}

}  // namespace
}  // namespace tutti::graph
