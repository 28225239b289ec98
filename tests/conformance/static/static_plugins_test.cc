// A program that has its plug-ins inside: those of tests/fakes are linked into this one, which
// exports them, and a setting's STATIC_PLUGIN finds them there. Built twice: with every version of
// every interface (STATIC_NEWEST), of which the newest is taken, and with the oldest of each alone.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "../collnet_ranks.h"

namespace tutti::conformance {
namespace {

#ifdef STATIC_NEWEST
constexpr int kNetVersion = 11, kCollnetVersion = 11, kProfilerVersion = 5, kTunerVersion = 5;
#else
constexpr int kNetVersion = 6, kCollnetVersion = 6, kProfilerVersion = 1, kTunerVersion = 2;
#endif

std::string overTheNetwork() {
  return "links to other hosts over Fake: plug-in the program, version " +
         std::to_string(kNetVersion);
}

// Of each rank's file, which goes: the lines by their first word, and the events' kinds.
struct Told {
  std::map<std::string, size_t> verbs;
  std::map<int, size_t> kinds;
};
Told read(const std::string& path) {
  Told told;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::stringstream words(line);
    std::string verb, number, word;
    words >> verb >> number >> word;
    ++told.verbs[verb];
    int kind = 0;
    if (verb == "start" && words >> kind) ++told.kinds[kind];
  }
  std::filesystem::remove(path);
  return told;
}

class StaticNet : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Layouts, StaticNet, testing::Values("012", "0110"),
                         [](const auto& layout) { return "h" + layout.param; });

TEST_P(StaticNet, CarriesAllCollectives) {
  const Outcome outcome = run(kAllCollectives, GetParam(), {"NCCL_NET_PLUGIN=STATIC_PLUGIN"});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_EQ(outcome.count(overTheNetwork()), GetParam().size()) << outcome.log;
  EXPECT_EQ(outcome.count("goes over sockets"), 0u) << outcome.log;
}

TEST(StaticPlugins, AreFoundInAListBehindOneThatIsMissing) {
  const Outcome outcome = run(kAllReduce, "012", {"NCCL_NET_PLUGIN=absent,STATIC_PLUGIN"});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_EQ(outcome.count(overTheNetwork()), 3u) << outcome.log;
  EXPECT_GE(outcome.count("libnccl-net-absent.so"), 3u) << outcome.log;
}

TEST(StaticPlugins, ThatFailGiveWayToSockets) {
  const Outcome outcome =
      run(kAllReduce, "012", {"NCCL_NET_PLUGIN=STATIC_PLUGIN", "FAKE_NET=fail-init"});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_GE(outcome.count("network plug-in Fake: init returned 2"), 3u) << outcome.log;
  EXPECT_EQ(outcome.count("over Fake"), 0u) << outcome.log;
}

TEST(StaticPlugins, ReduceInTheNetworkOfTheSameProgram) {
  const ReducerProcess reducer;
  const std::string report = temporary("collnet_report");
  Settings settings = {"NCCL_NET_PLUGIN=STATIC_PLUGIN", "FAKE_COLLNET_REPORT=" + report,
                       "NCCL_ALGO=allreduce:collnetchain;ring,twoshot,direct,pairwise"};
  const Outcome outcome = run("CollnetRanks.DISABLED_SumsAndProducts", "0112",
                              reducer.settings(kCollnetVersion, settings));
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_GE(outcome.count("FakeSwitch reduces between 3 hosts"), 4u) << outcome.log;
  EXPECT_GE(outcome.count("plug-in the program, version " + std::to_string(kCollnetVersion)), 4u)
      << outcome.log;
  const auto uses = usesIn(report);
  ASSERT_FALSE(uses.empty()) << outcome.log;
  EXPECT_GE(uses.at(0).reductions, 100u);
}

TEST(StaticPlugins, ProfileCallsAndMessages) {
  const std::string file = temporary("told");
  const Outcome outcome = run("TracedRanks.DISABLED_Calls", "abc",
                              {"NCCL_PROFILER_PLUGIN=STATIC_PLUGIN", "FAKE_PROFILER_FILE=" + file});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  for (const int rank : {0, 1, 2}) {
    const Told told = read(file + "." + std::to_string(rank));
    ASSERT_EQ(told.verbs.count("start"), 1u) << outcome.log;
    EXPECT_EQ(told.kinds.at(2), 3u);  // collectives
    EXPECT_EQ(told.kinds.at(4), 2u);  // a send and a receive
    EXPECT_GE(told.kinds.at(8), 8u);  // their messages
    EXPECT_EQ(told.kinds.contains(256), kProfilerVersion >= 5);
    EXPECT_EQ(told.verbs.at("stop"), told.verbs.at("start"));
    EXPECT_EQ(told.verbs.at("finalize"), 1u);
  }
}

TEST(StaticPlugins, ChooseAlgorithms) {
  const Outcome outcome = run(
      "TunedRanks.DISABLED_AllReduce", "000",
      {"NCCL_TUNER_PLUGIN=STATIC_PLUGIN", "FAKE_TUNER=tree 4", "NCCL_DEBUG_SUBSYS=INIT,TUNING"});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_EQ(outcome.count("fake tuner for 3 ranks on 1 nodes"), 3u) << outcome.log;
  EXPECT_EQ(outcome.count("-> tree (tuner plug-in fake; else "), 9u) << outcome.log;
  EXPECT_EQ(outcome.count("fake of the program, version " + std::to_string(kTunerVersion)), 3u)
      << outcome.log;
}

TEST(StaticPlugins, OfAllKindsServeOneAllReduce) {
  const std::string file = temporary("told");
  const Outcome outcome =
      run("TunedRanks.DISABLED_AllReduce", "0012",
          {"NCCL_NET_PLUGIN=STATIC_PLUGIN", "NCCL_PROFILER_PLUGIN=STATIC_PLUGIN",
           "NCCL_TUNER_PLUGIN=STATIC_PLUGIN", "FAKE_TUNER=tree 4", "FAKE_PROFILER_FILE=" + file,
           "NCCL_DEBUG_SUBSYS=NET,INIT,TUNING"});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_EQ(outcome.count(overTheNetwork()), 4u) << outcome.log;
  EXPECT_EQ(outcome.count("-> tree (tuner plug-in fake; else "), 12u) << outcome.log;
  for (const int rank : {0, 1, 2, 3})
    EXPECT_EQ(read(file + "." + std::to_string(rank)).kinds[2], 3u) << rank;
}

}  // namespace
}  // namespace tutti::conformance
