#include "comm/tuner_plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string>

namespace tutti::comm {
namespace {

using testing::HasSubstr;

std::string pathOf(int version) {
  return fmt::format("{}/libnccl-tuner-fake{}.so", TUTTI_FAKE_TUNERS, version);
}

constexpr std::array<plan::AlgorithmCost, 4> kCosts = {
    {{"ring", 9}, {"oneshot", 3}, {"tree", 5}, {"pat", 7}}};

plan::Tuner::Question questionFor(Collective collective, std::string_view chosen) {
  return {.collective = collective, .bytes = 4096, .costs = kCosts, .chosen = chosen};
}

// Every version of the interface, by the plug-in of tests/fakes/tuner.c; FAKE_TUNER says what it
// does.
class TunerPlugin : public testing::TestWithParam<int> {
 protected:
  static void order(const char* what) { ASSERT_EQ(::setenv("FAKE_TUNER", what, 1), 0); }
  void TearDown() override { ::unsetenv("FAKE_TUNER"); }
  static Result<std::unique_ptr<plan::Tuner>> open() {
    TUTTI_TRY_ASSIGN(const PluginLibrary library, loadTuner(pathOf(GetParam())));
    EXPECT_EQ(library.version, GetParam());
    return openTuner(library, {.id = 77, .rankCount = 4, .nodeCount = 1});
  }
};

INSTANTIATE_TEST_SUITE_P(Versions, TunerPlugin, testing::Values(2, 3, 4, 5),
                         [](const auto& version) { return fmt::format("v{}", version.param); });

TEST_P(TunerPlugin, OverridesTheChoiceOfTheCollectiveThatItNames) {
  order("tree 4");
  const auto tuner = open();
  ASSERT_TRUE(tuner.ok()) << tuner.status().message();
  EXPECT_EQ(tuner.value()->name(), "fake");
  EXPECT_EQ(tuner.value()->advise(questionFor(Collective::kAllReduce, "oneshot")).algorithm,
            "tree");
  EXPECT_EQ(tuner.value()->advise(questionFor(Collective::kAllReduce, "ring")).algorithm, "tree");
  EXPECT_EQ(tuner.value()->advise(questionFor(Collective::kReduceScatter, "oneshot")).algorithm,
            "");
}

TEST_P(TunerPlugin, HasNoOpinionWhereItChangesNothing) {
  order("nothing");
  const auto tuner = open();
  ASSERT_TRUE(tuner.ok()) << tuner.status().message();
  EXPECT_EQ(tuner.value()->advise(questionFor(Collective::kAllReduce, "oneshot")).algorithm, "");
  EXPECT_EQ(tuner.value()->advise(questionFor(Collective::kAllReduce, "ring")).algorithm, "");
}

TEST_P(TunerPlugin, IsNotAskedForWhatItsInterfaceDoesNotKnow) {
  order("ring");
  const auto tuner = open();
  ASSERT_TRUE(tuner.ok()) << tuner.status().message();
  EXPECT_EQ(tuner.value()->advise(questionFor(Collective::kAllToAll, "oneshot")).algorithm, "");
}

TEST_P(TunerPlugin, CannotAskForWhatCpuRanksLack) {
  order("nvls");
  const auto tuner = open();
  ASSERT_TRUE(tuner.ok()) << tuner.status().message();
  EXPECT_EQ(tuner.value()->advise(questionFor(Collective::kAllReduce, "oneshot")).algorithm, "");
}

constexpr std::array<plan::AlgorithmCost, 3> kKernels = {
    {{"oneshot", 4, graph::Protocol::kLl},
     {"twoshot", 8, graph::Protocol::kLl128},
     {"twoshot", 15, graph::Protocol::kSimple}}};

plan::Tuner::Question questionForKernels() {
  return {.collective = Collective::kAllReduce,
          .bytes = 4096,
          .costs = kKernels,
          .chosen = "oneshot",
          .chosenProtocol = graph::Protocol::kLl,
          .areKernels = true};
}

// GPU kernels stand in the ring's row.
TEST_P(TunerPlugin, OverridesTheProtocolAndTheBlocksOfGpuKernels) {
  order("ring 4 simple 3");
  const auto tuner = open();
  ASSERT_TRUE(tuner.ok()) << tuner.status().message();
  const plan::Tuner::Advice advice = tuner.value()->advise(questionForKernels());
  EXPECT_EQ(advice.algorithm, "twoshot");
  EXPECT_EQ(advice.protocol, graph::Protocol::kSimple);
  EXPECT_EQ(advice.channels, 3);
  order("ring 4 ll128");
  EXPECT_EQ(tuner.value()->advise(questionForKernels()).protocol, graph::Protocol::kLl128);
  order("tree 4");
  EXPECT_EQ(tuner.value()->advise(questionForKernels()).algorithm, "");
}

TEST_P(TunerPlugin, LeavesOurChoiceWhereItForbidsAll) {
  order("none-left");
  const auto tuner = open();
  ASSERT_TRUE(tuner.ok()) << tuner.status().message();
  EXPECT_EQ(tuner.value()->advise(questionFor(Collective::kAllReduce, "oneshot")).algorithm, "");
  EXPECT_EQ(tuner.value()->advise(questionFor(Collective::kAllReduce, "ring")).algorithm, "");
}

TEST_P(TunerPlugin, IsNotAskedAgainOnceACallOfItFailed) {
  order("fail-call");
  const auto tuner = open();
  ASSERT_TRUE(tuner.ok()) << tuner.status().message();
  EXPECT_EQ(tuner.value()->advise(questionFor(Collective::kAllReduce, "oneshot")).algorithm, "");
  order("ring");
  EXPECT_EQ(tuner.value()->advise(questionFor(Collective::kAllReduce, "oneshot")).algorithm, "");
}

TEST_P(TunerPlugin, NamesThePlugInWhoseInitFailed) {
  order("fail-init");
  const auto tuner = open();
  ASSERT_FALSE(tuner.ok());
  EXPECT_THAT(std::string(tuner.status().message()), HasSubstr("fake"));
  EXPECT_THAT(std::string(tuner.status().message()), HasSubstr("init returned 2"));
}

TEST(TunerFiles, AreNoErrorWhereNobodyAskedForOne) {
  EXPECT_FALSE(loadTuner("").value().exists());
  EXPECT_FALSE(loadTuner("none").value().exists());
}

TEST(TunerFiles, ThatAreNotThereOrNoTunersAreNamed) {
  for (const char* setting :
       {"absent", "/nowhere/libnccl-tuner.so", "STATIC_PLUGIN", "libm.so.6"}) {
    const auto library = loadTuner(setting);
    ASSERT_FALSE(library.ok()) << setting;
    EXPECT_THAT(std::string(library.status().message()),
                HasSubstr(fmt::format("NCCL_TUNER_PLUGIN={}", setting)));
  }
  EXPECT_THAT(std::string(loadTuner("absent").status().message()),
              HasSubstr("libnccl-tuner-absent.so"));
}

}  // namespace
}  // namespace tutti::comm
