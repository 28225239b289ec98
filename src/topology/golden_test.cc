// Every machine that is described: it reads, it writes and reads equal, and its paths are the ones
// on file.
#include <fstream>

#include "topology/machines_testing.h"
#include "topology/print.h"

namespace tutti::topology {
namespace {

class Machines : public testing::TestWithParam<std::string> {};

void expectConsistent(const Topology& topology, const Paths& paths) {
  for (size_t i = 0; i < topology.links.size(); ++i) {
    const Link& link = topology.links[i];
    const Link& back = topology[link.reverse];
    EXPECT_TRUE(back.from == link.to && back.to == link.from && back.kind == link.kind);
    EXPECT_EQ(back.gbPerSecond, link.gbPerSecond);
    EXPECT_GT(link.gbPerSecond, 0);
  }
  std::vector<NodeId> ends = nodesOf(topology, NodeKind::kGpu);
  for (const NodeKind kind : {NodeKind::kCpu, NodeKind::kNet}) {
    for (const NodeId each : nodesOf(topology, kind)) ends.push_back(each);
  }
  for (const NodeId from : ends) {
    for (const NodeId to : ends) {
      const Path& path = paths.between(from, to);
      const Path& back = paths.between(to, from);
      EXPECT_TRUE(path.kind == back.kind && path.gbPerSecond == back.gbPerSecond &&
                  path.relay == back.relay);
      NodeId at = from;
      double narrowest = kLocalGbPerSecond;
      for (const LinkId hop : path.hops) {
        EXPECT_TRUE(topology[hop].from == at);
        at = topology[hop].to;
        narrowest = std::min(narrowest, topology[hop].gbPerSecond);
      }
      if (!path.hops.empty()) {
        EXPECT_TRUE(at == to);
        EXPECT_EQ(path.gbPerSecond, narrowest);
      }
      EXPECT_TRUE(path.kind != PathKind::kDis || topology[from].host != topology[to].host);
    }
  }
}

TEST_P(Machines, AreReadWrittenAndReadEqual) {
  const Description description = describe(goldenFolder(), GetParam());
  const Result<Description> again = parseXml(writeXml(description), "written");
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_TRUE(again.value() == description);
  EXPECT_EQ(writeXml(again.value()), writeXml(description));
}

TEST_P(Machines, HaveThePathsOnFile) {
  const Topology topology = machine(GetParam());
  const Paths paths = computePaths(topology);
  expectConsistent(topology, paths);
  const std::string text = printTree(topology) + "\n" + printPaths(topology, paths);
  const std::filesystem::path file = goldenFolder() / (GetParam() + ".paths.txt");
  if (environmentVariable("TUTTI_UPDATE_GOLDEN")) std::ofstream(file) << text;
  EXPECT_EQ(text, readText(file)) << file;
}

INSTANTIATE_TEST_SUITE_P(OfTheProject, Machines, testing::ValuesIn(machinesIn(goldenFolder())),
                         [](const auto& each) { return each.param; });

TEST(ForeignFiles, AreReadWrittenAndReadEqual) {
  const std::vector<std::string> names = machinesIn(foreignFolder());
  if (names.empty()) GTEST_SKIP() << "no topology files in " << foreignFolder();
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const Description description = describe(foreignFolder(), name);
    const Result<Description> again = parseXml(writeXml(description), "written");
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_TRUE(again.value() == description);
    const Result<Topology> topology = buildTopology(description);
    if (topology.ok()) {
      expectConsistent(topology.value(), computePaths(topology.value()));
    } else {
      EXPECT_TRUE(name.starts_with("azure")) << topology.status().message();
      EXPECT_NE(std::string(topology.status().message()).find("--profile"), std::string::npos);
    }
  }
}

TEST(ForeignFiles, TheRtx3090MachineHasItsKnownPaths) {
  if (!std::filesystem::exists(foreignFolder() / "8x3090_pcie.xml"))
    GTEST_SKIP() << "8x3090_pcie.xml is not here";
  const Result<Topology> built = buildTopology(describe(foreignFolder(), "8x3090_pcie"));
  ASSERT_TRUE(built.ok());
  const Topology& topology = built.value();
  const Paths paths = computePaths(topology);
  const auto expectPath = [&](NodeId from, NodeId to, PathKind kind, double width) {
    EXPECT_EQ(nameOf(paths.between(from, to).kind), nameOf(kind));
    EXPECT_EQ(paths.between(from, to).gbPerSecond, width);
  };
  expectPath(gpu(topology, 0), gpu(topology, 3), PathKind::kPhb, 24);
  expectPath(gpu(topology, 0), gpu(topology, 4), PathKind::kSys, 10);
  expectPath(gpu(topology, 0), port(topology, 0), PathKind::kSys, 7);
  expectPath(gpu(topology, 4), port(topology, 0), PathKind::kPhb, 7);
}

TEST(ForeignFiles, TheVirtualMachineWithH200sHasItsKnownLinks) {
  if (!std::filesystem::exists(foreignFolder() / "h200_4x_vm.xml"))
    GTEST_SKIP() << "h200_4x_vm.xml is not here";
  const Result<Topology> built = buildTopology(describe(foreignFolder(), "h200_4x_vm"));
  ASSERT_TRUE(built.ok());
  const Path path =
      computePaths(built.value()).between(gpu(built.value(), 0), gpu(built.value(), 3));
  EXPECT_EQ(path.kind, PathKind::kNvl);
  EXPECT_NEAR(path.gbPerSecond, 370.8, 1e-9);
  EXPECT_FALSE(built.value().assumptions.empty());
}

}  // namespace
}  // namespace tutti::topology
