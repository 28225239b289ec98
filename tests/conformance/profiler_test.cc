// Profiler plug-ins as a user loads them: by NCCL_PROFILER_PLUGIN, seen in what they are told.
#include <unistd.h>

#include <filesystem>

#include "../fakes/profiler_log.h"
#include "network_ranks.h"

namespace tutti::conformance {
namespace {

using testing_profiler::read;
using testing_profiler::Told;

std::string pluginOf(int version) {
  return std::string("NCCL_PROFILER_PLUGIN=" TUTTI_FAKE_PROFILERS "/libnccl-profiler-fake")
      .append(std::to_string(version))
      .append(".so");
}

// The parent's kind, by the child's.
int parentKind(int kind, int version) {
  const bool hasApi = version >= 5;
  switch (kind) {
    case 2: return hasApi ? 512 : 1;
    case 4: return hasApi ? 1024 : 1;
    case 16: return 8;
    case 512:
    case 1024: return 256;
    default: return 0;
  }
}

class Profilers : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Versions, Profilers, testing::Values(1, 2, 3, 4, 5),
                         [](const auto& version) {
                           return std::string("v").append(std::to_string(version.param));
                         });

TEST_P(Profilers, AreToldOfGroupsCallsTransfersAndMessagesWithTheirParents) {
  const int version = GetParam();
  const std::string file = temporary("told");
  const Outcome outcome =
      run("TracedRanks.DISABLED_Calls", "abc", {pluginOf(version), "FAKE_PROFILER_FILE=" + file});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  for (const int rank : {0, 1, 2}) {
    const Told told = read(file + "." + std::to_string(rank));
    EXPECT_EQ(told.count(1), 4u);
    EXPECT_EQ(told.count(2), 3u);
    EXPECT_EQ(told.count(4), 2u);
    EXPECT_EQ(told.count(64), version < 3 ? 0u : 5u);
    EXPECT_EQ(told.count(256), version < 5 ? 0u : 4u);
    EXPECT_GE(told.count(8), 8u);
    size_t steps = 0;
    for (const auto& [number, event] : told.events) {
      EXPECT_EQ(event.stops, 1) << event.line;
      const int parent = parentKind(event.kind, version);
      EXPECT_TRUE(parent == 0 || told.kindOf(event.parent) == parent) << event.line;
      const bool isOfCall = event.kind == 8 || event.kind == 64;
      const int above = told.kindOf(event.parent);
      EXPECT_TRUE(!isOfCall || above == 2 || above == 4) << event.line;
      const size_t at = event.line.find("steps ");
      if (event.kind == 8) steps += std::stoul(event.line.substr(at + 6));
    }
    EXPECT_EQ(told.count(16), steps);
    EXPECT_EQ(told.strange, 0u);
    EXPECT_EQ(told.finalizes, 1u);
  }
}

TEST(Profiler, IsFoundByItsShortNameInTheLibraryPathAndCanBeHadWithATrace) {
  const std::string folder = temporary("both");
  std::filesystem::create_directory(folder);
  const std::string file = temporary("told");
  const Outcome outcome =
      run("TracedRanks.DISABLED_Calls", "ab",
          {"LD_LIBRARY_PATH=" TUTTI_FAKE_PROFILERS, "NCCL_PROFILER_PLUGIN=fake4",
           "FAKE_PROFILER_FILE=" + file, "TUTTI_TRACE_DIR=" + folder});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_EQ(read(file + ".0").count(2), 3u);
  EXPECT_EQ(read(file + ".1").count(2), 3u);
  size_t files = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator(folder)) ++files;
  EXPECT_EQ(files, 2u);
  std::filesystem::remove_all(folder);
}

TEST(Profiler, ThatFailsIsToldOfOnceARankAndCallsGoOn) {
  for (const auto& [settings, reason] : std::vector<std::pair<Settings, std::string>>{
           {{pluginOf(4), "FAKE_PROFILER=fail-init"}, "init returned 2"},
           {{pluginOf(4), "FAKE_PROFILER=fail-start"}, "startEvent returned 3"},
           {{pluginOf(2), "FAKE_PROFILER=fail-state"}, "recordEventState returned 3"},
           {{pluginOf(5), "FAKE_PROFILER=fail-stop"}, "stopEvent returned 3"},
           {{"NCCL_PROFILER_PLUGIN=absent"}, "libnccl-profiler-absent.so"},
           {{"NCCL_PROFILER_PLUGIN=STATIC_PLUGIN"},
            "has no profiler plug-in of a version that is known here"},
           {{pluginOf(3), "FAKE_PROFILER=no-function"}, "lacks function 3 of 5"},
           {{pluginOf(5), "FAKE_PROFILER=no-name"}, "plug-in (no name) of "},
           {{pluginOf(4), "FAKE_PROFILER=hang-init", "TUTTI_TIMEOUT_MS=2000"},
            "fake4.so has not returned from init within 1000 ms"}}) {
    const Outcome outcome = run("TracedRanks.DISABLED_Calls", "ab", settings);
    EXPECT_TRUE(outcome.isGood()) << outcome.log;
    EXPECT_EQ(outcome.count(reason), 2u) << outcome.log;
  }
}

TEST(Profiler, ThatHangsAsItIsLoadedOnOneRankIsLeftBehind) {
  for (const std::string kind : {"PROFILER", "TUNER"}) {
    const std::string plugin = kind == "PROFILER" ? pluginOf(4)
                                                  : "NCCL_TUNER_PLUGIN=" TUTTI_FAKE_TUNERS
                                                    "/libnccl-tuner-fake4.so";
    const Outcome outcome = run("NetworkRanks.DISABLED_AllReduceAndLeaveWithoutExit", "00",
                                {plugin, "TUTTI_TIMEOUT_MS=2000"}, {"FAKE_" + kind + "=hang-open"});
    EXPECT_TRUE(outcome.isGood()) << outcome.log;
    EXPECT_EQ(outcome.count("fake4.so has not returned from dlopen within 1000 ms"), 1u)
        << outcome.log;
  }
}

}  // namespace
}  // namespace tutti::conformance
