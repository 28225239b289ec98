// Tuner plug-ins as a user loads them: by NCCL_TUNER_PLUGIN, seen in what the log says was chosen.
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "processes.h"

namespace tutti::conformance {
namespace {

TEST(TunedRanks, DISABLED_AllReduce) {
  const ProcessRank self = thisProcess();
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRank(&comm, self.count, self.id, self.rank), ncclSuccess)
      << ncclGetLastError(nullptr);
  std::vector<std::vector<int64_t>> vectors;
  for (const size_t count : {1, 5000, 100000}) {
    std::vector<int64_t>& values = vectors.emplace_back(count, self.rank + 1);
    ASSERT_EQ(ncclAllReduce(values.data(), values.data(), count, ncclInt64, ncclSum, comm, nullptr),
              ncclSuccess)
        << ncclGetLastError(comm);
  }
  // Calls of GPU ranks go on until here.
  EXPECT_EQ(ncclCommFinalize(comm), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  for (const std::vector<int64_t>& values : vectors)
    EXPECT_EQ(values.back(), self.count * (self.count + 1) / 2);
}

// Runs it on two ranks and returns what they logged. `ofRank0`: further settings of that one.
std::string logOf(const std::vector<std::string>& settings,
                  const std::vector<std::string>& ofRank0 = {}) {
  const auto fileOf = [](int rank) {
    std::stringstream name;
    name << testing::TempDir() << "tutti_tuner_log_" << ::getpid() << '.' << rank;
    return name.str();
  };
  const auto all = [&](int rank) {
    std::vector<std::string> variables = settings;
    if (rank == 0) variables.insert(variables.end(), ofRank0.begin(), ofRank0.end());
    variables.push_back("NCCL_DEBUG=INFO");
    variables.push_back("NCCL_DEBUG_SUBSYS=INIT,TUNING");
    variables.push_back("NCCL_DEBUG_FILE=" + fileOf(rank));
    return variables;
  };
  EXPECT_EQ(runProcesses("TunedRanks.DISABLED_AllReduce", 2, all), (std::vector<int>{0, 0}));
  std::stringstream text;
  for (const int rank : {0, 1}) {
    text << std::ifstream(fileOf(rank)).rdbuf();
    std::filesystem::remove(fileOf(rank));
  }
  return text.str();
}

size_t countOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

std::string pluginOf(int version) {
  return std::string("NCCL_TUNER_PLUGIN=" TUTTI_FAKE_TUNERS "/libnccl-tuner-fake")
      .append(std::to_string(version))
      .append(".so");
}

class Tuners : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Versions, Tuners, testing::Values(2, 3, 4, 5), [](const auto& version) {
  return std::string("v").append(std::to_string(version.param));
});

TEST_P(Tuners, OverruleTheChoiceOfARunningProgram) {
  const std::string log = logOf({pluginOf(GetParam()), "FAKE_TUNER=tree 4"});
  EXPECT_EQ(countOf(log, "-> tree (tuner plug-in fake; else "), 6u) << log;
  EXPECT_EQ(countOf(log, "fake tuner for 2 ranks on 1 nodes"), 2u) << log;
}

// By the stand-in for the driver, whose memory is the host's and which runs no kernels.
TEST_P(Tuners, AreAskedByGpuRanksThatGoThroughTheHost) {
  const std::string fakes = TUTTI_FAKE_CUDA;
  if (!std::filesystem::exists(fakes + "/libcuda.so.1")) GTEST_SKIP() << "built without CUDA";
  const std::string log =
      logOf({pluginOf(GetParam()), "FAKE_TUNER=tree 4", "LD_LIBRARY_PATH=" + fakes,
             "TUTTI_DEVICE=cuda", "NCCL_P2P_DISABLE=1"});
  EXPECT_EQ(countOf(log, "GPU ranks go through host memory"), 1u) << log;
  EXPECT_GE(countOf(log, "-> tree (tuner plug-in fake; else "), 6u) << log;
  EXPECT_EQ(countOf(log, "fake tuner for 2 ranks on 1 nodes"), 2u) << log;
}

TEST(Tuner, IsFoundByItsShortNameInTheLibraryPath) {
  const std::string log =
      logOf({"LD_LIBRARY_PATH=" TUTTI_FAKE_TUNERS, "NCCL_TUNER_PLUGIN=fake4", "FAKE_TUNER=tree 4"});
  EXPECT_EQ(countOf(log, "-> tree (tuner plug-in fake"), 6u) << log;
}

TEST(Tuner, ThatFailsIsToldAndTheLibraryChoosesForItself) {
  for (const auto& [settings, reason] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{pluginOf(4), "FAKE_TUNER=fail-init"}, "init returned 2"},
           {{pluginOf(4), "FAKE_TUNER=fail-call"}, "getCollInfo returned 3"},
           {{"NCCL_TUNER_PLUGIN=absent"}, "libnccl-tuner-absent.so"},
           {{"NCCL_TUNER_PLUGIN=STATIC_PLUGIN"},
            "has no tuner plug-in of a version that is known here"},
           {{pluginOf(2), "FAKE_TUNER=no-function"}, "lacks function 2 of 3"},
           {{pluginOf(5), "FAKE_TUNER=no-function"}, "lacks function 2 of 3"},
           {{pluginOf(4), "FAKE_TUNER=hang-init", "TUTTI_TIMEOUT_MS=2000"},
            "has not returned from init within 1000 ms"}}) {
    const std::string log = logOf(settings);
    EXPECT_EQ(countOf(log, reason), 2u) << log;
    EXPECT_EQ(countOf(log, "AllReduce: "), 6u) << log;
    EXPECT_EQ(countOf(log, "(tuner plug-in"), 0u) << log;
  }
}

// The others wait for the rank whose plug-in does, within T.
TEST(Tuner, ThatHangsOnOneRankIsLeftBehind) {
  const std::string log = logOf({pluginOf(3), "TUTTI_TIMEOUT_MS=2000"}, {"FAKE_TUNER=hang-init"});
  EXPECT_EQ(countOf(log, "tuner plug-in fake of "), 2u) << log;
  EXPECT_EQ(countOf(log, "has not returned from init within 1000 ms"), 1u) << log;
  EXPECT_EQ(countOf(log, "AllReduce: "), 6u) << log;
}

TEST_P(Tuners, ThatAnswerWithGarbageChangeNothing) {
  const std::string log = logOf({pluginOf(GetParam()), "FAKE_TUNER=garbage"});
  EXPECT_EQ(countOf(log, "AllReduce: "), 6u) << log;
  EXPECT_EQ(countOf(log, "(tuner plug-in"), 0u) << log;
}

TEST_P(Tuners, WithoutANameServeAsWell) {
  const std::string log = logOf({pluginOf(GetParam()), "FAKE_TUNER=no-name"});
  EXPECT_EQ(countOf(log, "tuner plug-in (no name) of "), 2u) << log;
}

}  // namespace
}  // namespace tutti::conformance
