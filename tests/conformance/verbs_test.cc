// Collectives between hosts over InfiniBand and RoCE, as far as there are any without adapters:
// over the libibverbs of tests/fakes/verbs, which the ranks find by its soname.
#include <gmock/gmock.h>

#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "network_ranks.h"

#ifdef TUTTI_FAKE_VERBS
namespace tutti::conformance {
namespace {

using testing::HasSubstr;

class Verbs : public testing::Test {
 protected:
  // Two cards, one with two ports.
  Verbs() { describe({"0000:17:00.0", "0000:17:00.1", "0000:3b:00.0"}); }
  void describe(const std::vector<std::string>& places) { adapters_.describe(places); }

  Settings with(const Settings& more = {}) const {
    Settings settings = adapters_.settings();
    settings.insert(settings.end(), more.begin(), more.end());
    return settings;
  }

 private:
  const FakeAdapters adapters_;
};

class VerbsLayouts : public Verbs, public testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(Layouts, VerbsLayouts, testing::Values("01", "001", "0110"),
                         [](const auto& layout) { return "h" + layout.param; });

TEST_P(VerbsLayouts, CarryAllCollectives) {
  const Outcome outcome = run(kAllCollectives, GetParam(), with());
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_EQ(outcome.count("links to other hosts over IB: 2 adapters: mlx5_0:1"), GetParam().size())
      << outcome.log;
  EXPECT_EQ(outcome.count("goes over sockets"), 0u) << outcome.log;
}

TEST_F(Verbs, ObeysItsSettings) {
  const Outcome outcome =
      run(kAllReduce, "012",
          with({"NCCL_NET=IB", "NCCL_IB_HCA==mlx5_0:1,mlx5_2", "NCCL_IB_QPS_PER_CONNECTION=4",
                "NCCL_IB_SPLIT_DATA_ON_QPS=1", "NCCL_IB_ADAPTIVE_ROUTING=0", "NCCL_IB_USE_INLINE=0",
                "NCCL_IB_TC=106", "NCCL_NET_MERGE_LEVEL=LOC"}));
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_EQ(outcome.count("mlx5_1:1: NCCL_IB_HCA==mlx5_0:1,mlx5_2"), 3u) << outcome.log;
}

// What each process has sent over each port, as its lanes say when they go.
std::map<std::string, std::map<std::string, double>> sentBy(const Outcome& outcome) {
  std::map<std::string, std::map<std::string, double>> bytes;
  std::stringstream log(outcome.log);
  const std::regex line("[^ :]*:([0-9]+):.* a lane over (.*) sent .* messages, (.*) bytes");
  std::smatch match;
  for (std::string text; std::getline(log, text);)
    if (std::regex_search(text, match, line)) bytes[match[1]][match[2]] += std::stod(match[3]);
  return bytes;
}

TEST_F(Verbs, KeepsAllAdaptersBusyAlike) {
  const Outcome outcome = run(kAllReduce, "01", with({"NCCL_NET_MERGE_LEVEL=LOC"}));
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_EQ(outcome.count("3 adapters"), 2u) << outcome.log;
  const auto processes = sentBy(outcome);
  EXPECT_EQ(processes.size(), 2u) << outcome.log;
  for (const auto& [process, bytes] : processes) {
    ASSERT_EQ(bytes.size(), 3u) << outcome.log;
    for (const auto& [port, sent] : bytes)
      EXPECT_NEAR(sent / bytes.at("mlx5_0:1"), 1, 0.05) << port;
  }
}

// Two hosts with four adapters each.
class FourAdapters : public Verbs {
 protected:
  FourAdapters() { describe({"0000:17:00.0", "0000:3b:00.0", "0000:86:00.0", "0000:af:00.0"}); }

  // Those of one name carry alike, and all together no less than the calls must have moved.
  void expectAlike(const char* body, const std::string& hosts, double leastBytes) {
    const Outcome outcome = run(body, hosts, with());
    EXPECT_TRUE(outcome.isGood()) << outcome.log;
    EXPECT_GE(outcome.count("4 adapters"), 2u) << outcome.log;
    std::map<std::string, double> all;
    double total = 0;
    for (const auto& [process, bytes] : sentBy(outcome)) {
      for (const auto& [port, sent] : bytes) {
        all[port] += sent;
        total += sent;
      }
    }
    ASSERT_EQ(all.size(), 4u) << outcome.log;
    EXPECT_GE(total, leastBytes);
    for (const auto& [port, sent] : all)
      EXPECT_NEAR(sent / (total / 4), 1, 0.05)
          << body << ", " << port << ": " << sent << " of " << total;
  }
};

TEST_F(FourAdapters, AreBusyAlikeForFourRanksAHost) {
  // Either host sends the other a vector's worth each time: of two hosts' partial sums the half
  // that is not its own, and that half's result.
  const double vectors = 4 * 8 * (1 + 100 + 5000 + 300'000);
  expectAlike(kAllReduce, "00001111", 2 * vectors);
}

TEST_F(FourAdapters, AreBusyAlikeForEightRanksAHost) {
  const std::string hosts = "0000000011111111";
  expectAlike(kAllGather, hosts, 16.0 * kGatheredBytes);  // each rank's crosses at least once
  expectAlike(kExchange, hosts, 16.0 * kExchangedBytes);
}

TEST_F(Verbs, GivesWayWhereItIsDisabledOrAbsent) {
  for (const auto& [settings, reason] : std::vector<std::pair<Settings, std::string>>{
           {with({"NCCL_IB_DISABLE=1"}), "over sockets: NCCL_IB_DISABLE=1"},
           {with({"NCCL_IB_HCA=other"}), "over sockets: InfiniBand has no port to use"},
           {{"LD_LIBRARY_PATH=" TUTTI_FAKE_VERBS}, "has no port to use: no adapter"},
           {with({"NCCL_NET=Socket"}), "over sockets: NCCL_NET=Socket"}}) {
    const Outcome outcome = run(kAllReduce, "01", settings);
    EXPECT_TRUE(outcome.isGood()) << outcome.log;
    EXPECT_EQ(outcome.count(reason), 2u) << reason << '\n' << outcome.log;
  }
}

TEST_F(Verbs, ThatIsAskedForAndMissingIsAnError) {
  const Outcome outcome =
      run(kFailingInit, "01",
          with({"NCCL_NET=IB", "NCCL_IB_HCA=other",
                "TEST_MESSAGE=NCCL_NET=IB: this network cannot be used: InfiniBand has no port "
                "to use: mlx5_0:1: NCCL_IB_HCA=other"}));
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
}

// InfiniBand's service level and RoCE's traffic class, of which these adapters show the former.
TEST_F(Verbs, TakeTheTrafficClassOfAConfigWhereNoSettingSaysOtherwise) {
  const std::string report = temporary("marks");
  const auto levels = [&](const Settings& more) {
    Settings settings = with(more);
    settings.insert(settings.end(), {"FAKE_VERBS_REPORT=" + report, "TEST_NETWORKS=IB=5,ib=9"});
    const Outcome outcome =
        run("NetworkRanks.DISABLED_AllReduceOverNetworksOfConfigs", "01", settings);
    EXPECT_TRUE(outcome.isGood()) << outcome.log;
    std::set<int> found;
    std::ifstream file(report);
    for (int level = 0, trafficClass = 0; file >> level >> trafficClass;) found.insert(level);
    std::filesystem::remove(report);
    return found;
  };
  EXPECT_EQ(levels({}), (std::set<int>{5, 9}));
  EXPECT_EQ(levels({"NCCL_IB_SL=0"}), std::set<int>{0});
}

TEST_F(Verbs, OfOneRankOnlyIsNotUsed) {
  const Outcome outcome = run(kAllReduce, "01", {"LD_LIBRARY_PATH=" TUTTI_FAKE_VERBS}, with());
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_GE(outcome.count("goes over sockets"), 1u) << outcome.log;
}

TEST_F(Verbs, ThatFailsAtTheStartIsToldAndSocketsTakeItsPlace) {
  for (const auto& [order, reason] : std::vector<std::pair<std::string, std::string>>{
           {"fail open", "ibv_open_device of mlx5_0"},
           {"fail pd", "ibv_alloc_pd of mlx5_0"},
           {"fail cq", "ibv_create_cq of mlx5_0:1"},
           {"fail qp", "ibv_create_qp of mlx5_0:1"},
           {"fail reg", "ulimit -l"},
           {"fail rtr", "ibv_modify_qp to RTR of mlx5_"},
           {"fail rts", "ibv_modify_qp to RTS of mlx5_"}}) {
    const Outcome outcome =
        run(kAllReduce, "01", with({"FAKE_VERBS=" + order, "TUTTI_TIMEOUT_MS=4000"}));
    EXPECT_TRUE(outcome.isGood()) << order << '\n' << outcome.log;
    EXPECT_GE(outcome.count(reason), 2u) << order << '\n' << outcome.log;
  }
}

TEST_F(Verbs, ThatHangsAtTheStartIsToldAndSocketsTakeItsPlace) {
  const std::string text = "libibverbs has not returned from opening InfiniBand within 2000 ms";
  for (const char* call : {"fork", "list", "open", "query", "port"}) {
    const std::string order = std::string("FAKE_VERBS=hang ") + call;
    const Outcome outcome = run(kAllReduce, "01", with({order, "TUTTI_TIMEOUT_MS=2000"}));
    EXPECT_TRUE(outcome.isGood()) << order << '\n' << outcome.log;
    EXPECT_EQ(outcome.count(text + " (see TUTTI_TIMEOUT_MS): links to other hosts go over sockets"),
              2u)
        << order << '\n'
        << outcome.log;
  }
  for (const auto& [call, what] : std::vector<std::pair<std::string, std::string>>{
           {"qp", "making a queue pair"}, {"rtr", "making and connecting a queue pair"}}) {
    const Outcome outcome =
        run(kAllReduce, "01", with({"FAKE_VERBS=hang " + call, "TUTTI_TIMEOUT_MS=2000"}));
    EXPECT_TRUE(outcome.isGood()) << call << '\n' << outcome.log;
    EXPECT_GE(outcome.count("libibverbs has not returned from " + what), 1u) << outcome.log;
    EXPECT_GE(outcome.count("goes over sockets"), 1u) << outcome.log;
  }
  const Outcome loaded = run("NetworkRanks.DISABLED_AllReduceAndLeaveWithoutExit", "01",
                             with({"FAKE_VERBS=hang load", "TUTTI_TIMEOUT_MS=2000"}));
  EXPECT_TRUE(loaded.isGood()) << loaded.log;
  EXPECT_THAT(loaded.log, HasSubstr(text));
}

TEST_F(Verbs, ThatHangsAndIsAskedForEndsTheCalls) {
  for (const char* call : {"list", "open"}) {
    const Outcome outcome =
        run(kFailingAllReduce, "01",
            with({std::string("FAKE_VERBS=hang ") + call, "NCCL_NET=IB", "TUTTI_TIMEOUT_MS=2000",
                  "TEST_WITHIN_MS=5500",
                  "TEST_MESSAGE=NCCL_NET=IB: this network cannot be used: libibverbs has not "
                  "returned from opening InfiniBand within "}));
    EXPECT_TRUE(outcome.isGood()) << call << '\n' << outcome.log;
  }
}

TEST_F(Verbs, ThatFailsLaterEndsTheCallsOfAllRanks) {
  for (const auto& [order, reason] : std::vector<std::pair<std::string, std::string>>{
           {"fail send 30", "ibv_post_send of mlx5_"},
           {"fail recv 30", "ibv_post_recv of mlx5_"},
           {"complete 60 12", "transport retry counter exceeded"},
           {"complete 60 10", "remote access error"},
           {"event 60 device-fatal", "failed or was removed"},
           {"event 60 qp-fatal", "local work queue catastrophic error"},
           {"event 60 port-error", "has been down for"}}) {
    const Outcome outcome =
        run(kFailingAllReduce, "01", with({"FAKE_VERBS=" + order, "TUTTI_TIMEOUT_MS=2000"}));
    EXPECT_TRUE(outcome.isGood()) << order << '\n' << outcome.log;
    EXPECT_THAT(outcome.log, HasSubstr(reason)) << order;
  }
}

TEST_F(Verbs, SurvivesAPortThatComesBack) {
  const Outcome outcome = run(kAllReduce, "01", with({"FAKE_VERBS=event 60 flap"}));
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_GE(outcome.count("is back"), 2u) << outcome.log;
}

}  // namespace
}  // namespace tutti::conformance
#endif
