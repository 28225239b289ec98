#include "comm/graphs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/log.h"
#include "comm/machine.h"
#include "topology/registry.h"

namespace tutti::comm {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string machineFile(const std::string& name) {
  return TUTTI_SOURCE_DIR "/tests/golden/topologies/" + name + ".xml";
}

// A described machine with a rank on each of these GPUs, in this order.
topology::Description machineWith(const std::string& name, const std::vector<std::string>& busIds) {
  topology::Description machine = topology::readDescription(machineFile(name)).value();
  std::vector<HostMember> host;
  for (const std::string& busId : busIds)
    host.push_back({Rank{static_cast<int32_t>(host.size())}, busId});
  setRanks(host, machine);
  return machine;
}

std::vector<std::string> gpusOf(const std::string& name) {
  const auto built =
      topology::buildTopology(topology::readDescription(machineFile(name)).value()).value();
  std::vector<std::string> busIds;
  for (const topology::NodeId gpu : topology::nodesOf(built, topology::NodeKind::kGpu))
    busIds.push_back(built[gpu].busId);
  return busIds;
}

Settings settingsWith(std::vector<std::string> variables) {
  return Settings::parse({.environment = std::move(variables), .files = {}});
}

class TempFile {
 public:
  ~TempFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }
  std::string text() const {
    std::stringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }

 private:
  std::string path_ = testing::TempDir() + "tutti_graphs_" + std::to_string(::getpid()) + ".xml";
};

TEST(HostGraphs, AreOfTheGpusThatRanksRunOn) {
  const std::vector<std::string> gpus = gpusOf("dgx1v");
  ASSERT_EQ(gpus.size(), 8u);
  const auto all = planHost(settingsWith({}), machineWith("dgx1v", gpus));
  ASSERT_TRUE(all);
  EXPECT_THAT(describe(*all), HasSubstr("from the search\nring: 6 channels x 20.00 = 120.0 GB/s"));
  const auto four =
      planHost(settingsWith({}), machineWith("dgx1v", {gpus.begin(), gpus.begin() + 4}));
  ASSERT_TRUE(four);
  ASSERT_FALSE(four->found.empty());
  for (const graph::Channel& channel : four->found[0].graph.channels)
    EXPECT_EQ(channel.gpus.size(), 4u);
  EXPECT_FALSE(planHost(settingsWith({}), machineWith("dgx1v", {gpus[0]})));
  EXPECT_FALSE(planHost(settingsWith({}), machineWith("dgx1v", {})));
}

TEST(HostGraphs, AreDumpedByOneRankAndReadAgain) {
  const TempFile file;
  const std::string dumps = "NCCL_GRAPH_DUMP_FILE=" + file.path();
  const auto found = planHost(settingsWith({}), machineWith("dgx1v", gpusOf("dgx1v")));
  ASSERT_TRUE(found);
  showGraphs(settingsWith({dumps}), *found, true, Rank{1});
  EXPECT_FALSE(std::filesystem::exists(file.path()));
  showGraphs(settingsWith({dumps, "NCCL_GRAPH_DUMP_FILE_RANK=1"}), *found, false, Rank{1});
  EXPECT_THAT(file.text(), HasSubstr("<graphs version=\"1\">"));
  const auto read = planHost(settingsWith({"NCCL_GRAPH_FILE=" + file.path()}),
                             machineWith("dgx1v", gpusOf("dgx1v")));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->source, file.path());
  ASSERT_EQ(read->found.size(), found->found.size());
  for (size_t i = 0; i < read->found.size(); ++i)
    EXPECT_EQ(read->found[i].graph.channels, found->found[i].graph.channels);
}

TEST(HostGraphs, ThatCannotBeWrittenCostAWarning) {
  const auto found = planHost(settingsWith({}), machineWith("dgx1v", gpusOf("dgx1v")));
  ASSERT_TRUE(found);
  log::configure({.level = log::Level::kWarn});
  for (const auto& [path, why] : {std::pair<std::string, std::string>{"/nowhere/g.xml", "No such"},
                                  {"/dev/full", "No space left"},
                                  {"/proc", "Is a directory"}}) {
    testing::internal::CaptureStdout();
    showGraphs(settingsWith({"NCCL_GRAPH_DUMP_FILE=" + path}), *found, false, Rank{0});
    EXPECT_THAT(testing::internal::GetCapturedStdout(),
                HasSubstr("WARN NCCL_GRAPH_DUMP_FILE: cannot write " + path + ": " + why));
  }
  log::configure({});
}

TEST(HostGraphs, OfAnotherMachinesFileAreSearchedInstead) {
  const TempFile file;
  const auto found = planHost(settingsWith({}), machineWith("dgx1v", gpusOf("dgx1v")));
  ASSERT_TRUE(found);
  showGraphs(settingsWith({"NCCL_GRAPH_DUMP_FILE=" + file.path()}), *found, false, Rank{0});
  for (const std::string& path : {file.path(), std::string("/nowhere/graphs.xml")}) {
    const auto other = planHost(settingsWith({"NCCL_GRAPH_FILE=" + path}),
                                machineWith("hgx_h100_4gpu", gpusOf("hgx_h100_4gpu")));
    ASSERT_TRUE(other);
    EXPECT_EQ(other->source, "the search");
  }
}

TEST(Choices, AreToldForEachCollective) {
  const std::string text =
      describeChoices({.rankCount = 8, .geometry = plan::linkGeometry(1 << 19), .algorithms = {}});
  for (const char* collective : {"AllReduce", "AllGather", "Broadcast", "AlltoAll", "Send"})
    EXPECT_THAT(text, HasSubstr(collective));
  EXPECT_THAT(text, HasSubstr(" from "));
  EXPECT_THAT(describeChoices({.rankCount = 8, .geometry = {}, .algorithms = "nvls"}),
              HasSubstr("AllReduce      nothing that NCCL_ALGO allows"));
}

TEST(Choices, OfGpuRanksNameAlgorithmAndProtocol) {
  EXPECT_THAT(describeChoices(launch::GpuBatcher::Limits{.rankCount = 4}),
              HasSubstr("AllReduce      oneshot by lines"));
  EXPECT_THAT(describeChoices(launch::GpuBatcher::Limits{.rankCount = 12, .hasPrograms = true}),
              HasSubstr("AllReduce      oneshot by lines, as a program, "));
}

TEST(Choices, OfGpuRanksTellHowManyBlocksWereAskedFor) {
  EXPECT_THAT(describeChoices(launch::GpuBatcher::Limits{.rankCount = 4}), Not(HasSubstr("CTA")));
  EXPECT_THAT(describeChoices(launch::GpuBatcher::Limits{
                  .rankCount = 2, .maxBlocks = 9, .minBlocks = 4, .prefersEngines = true}),
              AllOf(HasSubstr("blocks         4 to 9 (NCCL_MIN_CTAS, NCCL_MAX_CTAS)\n"),
                    HasSubstr("copy engines   into symmetric windows (NCCL_CTA_POLICY)\n")));
  EXPECT_THAT(
      describeChoices(
          launch::GpuBatcher::Limits{.rankCount = 4, .savesBlocks = true, .hasBulk = true}),
      HasSubstr(
          "blocks         32 at most in long calls of more than two ranks (NCCL_CTA_POLICY)\n"));
}

}  // namespace
}  // namespace tutti::comm
