// Collectives between hosts over other networks than sockets: plug-ins as a user loads them, by
// NCCL_NET_PLUGIN. NCCL_HOSTID puts ranks on hosts of their own.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "../../src/base/process_counts_testing.h"
#include "allocation_counter.h"
#include "network_plugins.h"
#include "network_ranks.h"

namespace tutti::conformance {
namespace {

// Short payloads, and long ones that go over all adapters.
ncclResult_t allReduceOften(ncclComm_t comm, int rankCount, int rank) {
  for (const size_t count : {1, 100, 5000, 300'000}) {
    for (int round = 0; round < 4; ++round) {
      std::vector<int64_t> values(count, rank + 1);
      const ncclResult_t result =
          ncclAllReduce(values.data(), values.data(), count, ncclInt64, ncclSum, comm, nullptr);
      if (result != ncclSuccess) return result;
      for (const int64_t value : values) EXPECT_EQ(value, rankCount * (rankCount + 1) / 2);
    }
  }
  return ncclSuccess;
}

TEST(NetworkRanks, DISABLED_AllReduce) {
  const ProcessRank self = thisProcess();
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRank(&comm, self.count, self.id, self.rank), ncclSuccess);
  EXPECT_EQ(allReduceOften(comm, self.count, self.rank), ncclSuccess) << ncclGetLastError(comm);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

// A library whose constructor hangs has the loader's lock for ever: exit() would wait for it.
TEST(NetworkRanks, DISABLED_AllReduceAndLeaveWithoutExit) {
  const ProcessRank self = thisProcess();
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRank(&comm, self.count, self.id, self.rank), ncclSuccess);
  EXPECT_EQ(allReduceOften(comm, self.count, self.rank), ncclSuccess) << ncclGetLastError(comm);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  ::_exit(HasFailure() ? 1 : 0);
}

TEST(NetworkRanks, DISABLED_AllReduceInLittleMemory) {
  const ProcessRank self = thisProcess();
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRank(&comm, self.count, self.id, self.rank), ncclSuccess);
  const size_t before = residentBytes();
  EXPECT_EQ(allReduceOften(comm, self.count, self.rank), ncclSuccess) << ncclGetLastError(comm);
  EXPECT_LT(residentBytes() - before, size_t{64} << 20);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

// kGatheredBytes of each rank, to each.
TEST(NetworkRanks, DISABLED_AllGather) {
  const ProcessRank self = thisProcess();
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRank(&comm, self.count, self.id, self.rank), ncclSuccess);
  const size_t each = kGatheredBytes / kRounds / sizeof(int64_t);
  const std::vector<int64_t> own(each, self.rank);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<int64_t> all(each * static_cast<size_t>(self.count), -1);
    ASSERT_EQ(ncclAllGather(own.data(), all.data(), each, ncclInt64, comm, nullptr), ncclSuccess)
        << ncclGetLastError(comm);
    for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<int64_t>(i / each));
  }
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

// kExchangedBytes of each rank, to the one in its place among the second half, and back.
TEST(NetworkRanks, DISABLED_Exchange) {
  const ProcessRank self = thisProcess();
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRank(&comm, self.count, self.id, self.rank), ncclSuccess);
  const int partner = (self.rank + self.count / 2) % self.count;
  const size_t each = kExchangedBytes / kRounds / sizeof(int64_t);
  const std::vector<int64_t> own(each, self.rank);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<int64_t> got(each, -1);
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclSend(own.data(), each, ncclInt64, partner, comm, nullptr), ncclSuccess);
    EXPECT_EQ(ncclRecv(got.data(), each, ncclInt64, partner, comm, nullptr), ncclSuccess);
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(comm);
    for (const int64_t value : got) ASSERT_EQ(value, partner);
  }
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

// From another thread, while the plug-in is being asked what it has.
TEST(NetworkRanks, DISABLED_AbortAmidTheSearch) {
  using Clock = std::chrono::steady_clock;
  const ProcessRank self = thisProcess();
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRank(&comm, self.count, self.id, self.rank), ncclSuccess);
  Clock::time_point aborted{}, ended{};
  std::thread aborter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    aborted = Clock::now();
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    EXPECT_LT(Clock::now() - aborted, std::chrono::seconds(1));
  });
  EXPECT_NE(allReduceOften(comm, self.count, self.rank), ncclSuccess);
  ended = Clock::now();
  aborter.join();
  EXPECT_LT(ended - aborted, std::chrono::seconds(1));
}

// What is wrong with its network a rank says as it comes to be, and the others say that it did.
TEST(NetworkRanks, DISABLED_InitThatFails) {
  const ProcessRank self = thisProcess();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  const std::string network = textOf("TEST_NETWORKS");
  if (!network.empty()) config.netName = network.c_str();
  ncclComm_t comm = nullptr;
  EXPECT_NE(ncclCommInitRankConfig(&comm, self.count, self.id, self.rank, &config), ncclSuccess);
  EXPECT_THAT(std::string(ncclGetLastError(nullptr)), testing::HasSubstr(textOf("TEST_MESSAGE")));
  if (comm != nullptr) {
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  }
}

// What the plug-in closes may hang, the rest does not.
TEST(NetworkRanks, DISABLED_AllReduceAndDestroyInTime) {
  const ProcessRank self = thisProcess();
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRank(&comm, self.count, self.id, self.rank), ncclSuccess);
  EXPECT_EQ(allReduceOften(comm, self.count, self.rank), ncclSuccess) << ncclGetLastError(comm);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(1500));
}

void failAtAllReduce() {
  const ProcessRank self = thisProcess();
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRank(&comm, self.count, self.id, self.rank), ncclSuccess);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_NE(allReduceOften(comm, self.count, self.rank), ncclSuccess);
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
  const char* limit = std::getenv("TEST_WITHIN_MS");
  EXPECT_LT(taken.count(), limit == nullptr ? 60'000 : std::atof(limit));
  const char* wanted = std::getenv("TEST_MESSAGE");
  const std::string message = ncclGetLastError(comm);
  EXPECT_NE(message.find(wanted == nullptr ? "" : wanted), std::string::npos) << message;
  const auto aborted = std::chrono::steady_clock::now();
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  EXPECT_LT(std::chrono::steady_clock::now() - aborted, std::chrono::seconds(1));
}

// TEST_NETWORKS: "NAME=CLASS,...", either may be left out. A communicator each, all at once, the
// later ones split from the first.
TEST(NetworkRanks, DISABLED_AllReduceOverNetworksOfConfigs) {
  const ProcessRank self = thisProcess();
  std::vector<ncclComm_t> comms;
  std::stringstream wishes(textOf("TEST_NETWORKS"));
  for (std::string wish; std::getline(wishes, wish, ',');) {
    const size_t middle = wish.find('=');
    const std::string name = wish.substr(0, middle);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    if (!name.empty()) config.netName = name.c_str();
    if (middle != std::string::npos) config.trafficClass = std::stoi(wish.substr(middle + 1));
    ncclComm_t comm = nullptr;
    ASSERT_EQ(comms.empty() ? ncclCommInitRankConfig(&comm, self.count, self.id, self.rank, &config)
                            : ncclCommSplit(comms.front(), 0, self.rank, &comm, &config),
              ncclSuccess);
    comms.push_back(comm);
  }
  const std::string message = textOf("TEST_MESSAGE");
  for (ncclComm_t comm : comms) {
    const ncclResult_t result = allReduceOften(comm, self.count, self.rank);
    EXPECT_EQ(result, message.empty() ? ncclSuccess : ncclInvalidUsage) << ncclGetLastError(comm);
    EXPECT_THAT(std::string(ncclGetLastError(comm)), testing::HasSubstr(message));
  }
  for (ncclComm_t comm : comms)
    EXPECT_EQ(message.empty() ? ncclCommDestroy(comm) : ncclCommAbort(comm), ncclSuccess);
}

// A child without a config of its own has its parent's network.
TEST(NetworkRanks, DISABLED_AllReduceOfAChild) {
  const ProcessRank self = thisProcess();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.netName = "Other";
  ncclComm_t comm = nullptr, child = nullptr;
  ASSERT_EQ(ncclCommInitRankConfig(&comm, self.count, self.id, self.rank, &config), ncclSuccess);
  ASSERT_EQ(ncclCommSplit(comm, 0, self.rank, &child, nullptr), ncclSuccess);
  EXPECT_EQ(allReduceOften(child, self.count, self.rank), ncclSuccess) << ncclGetLastError(child);
  EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST(NetworkRanks, DISABLED_AllReduceThatFails) { failAtAllReduce(); }

TEST(NetworkRanks, DISABLED_AllReduceThatFailsAndLeaveWithoutExit) {
  failAtAllReduce();
  ::_exit(HasFailure() ? 1 : 0);
}

class NetPlugins : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Versions, NetPlugins, testing::Values(6, 7, 8, 9, 10, 11),
                         [](const auto& version) {
                           return std::string("v").append(std::to_string(version.param));
                         });

TEST_P(NetPlugins, CarryAllCollectives) {
  const Outcome outcome = run(kAllCollectives, "01", {pluginOf(GetParam())});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_EQ(outcome.count("links to other hosts over Fake: plug-in "), 2u) << outcome.log;
  EXPECT_EQ(outcome.count("goes over sockets"), 0u) << outcome.log;
}

TEST(NetPlugin, CarriesAllCollectivesOfSeveralRanksAHost) {
  const Outcome outcome = run(kAllCollectives, "0110", {pluginOf(11)});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_EQ(outcome.count("goes over sockets"), 0u) << outcome.log;
}

// Rank 0 names an adapter of its own: what it sends goes by way of rank 1, which names the others'.
// What they send to it goes as ever: nobody there names its adapter.
TEST(NetPlugin, IsRelayedToWhereOwnAdaptersMayNotLead) {
  const Outcome outcome = run(kAllCollectives, "0011", {pluginOf(11), "NCCL_DEBUG_SUBSYS=NET,P2P"},
                              {"NCCL_IB_HCA=another"});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  for (const char* way : {"what rank 0 sends to rank 2 goes by way of rank 1",
                          "what rank 0 sends to rank 3 goes by way of rank 1"})
    EXPECT_EQ(outcome.count(way), 1u) << outcome.log;
  EXPECT_EQ(outcome.count("goes by way of"), 2u) << outcome.log;
}

TEST(NetPlugin, ThatTakesNothingAtOnceIsAskedAgain) {
  const Outcome outcome = run(kAllReduce, "012", {pluginOf(9), "FAKE_NET=slow"});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_EQ(outcome.count("goes over sockets"), 0u) << outcome.log;
}

TEST(NetPlugin, IsChosenByNameFromAList) {
  const Outcome outcome = run(
      kAllReduce, "01",
      {"LD_LIBRARY_PATH=" TUTTI_FAKE_NETS, "NCCL_NET=fake", "NCCL_NET_PLUGIN=absent,fake8,fake9"});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_EQ(outcome.count("libnccl-net-absent.so"), 2u) << outcome.log;
  EXPECT_EQ(
      outcome.count("links to other hosts over Fake: plug-in libnccl-net-fake8.so, version 8"), 2u)
      << outcome.log;
}

TEST(NetPlugin, GivesWayToSocketsWhereTheyAreAskedFor) {
  const Outcome outcome = run(kAllReduce, "01", {pluginOf(11), "NCCL_NET=Socket"});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_EQ(outcome.count("over Fake"), 0u) << outcome.log;
}

TEST(NetPlugin, ThatFailsAtTheStartIsToldAndSocketsTakeItsPlace) {
  for (const auto& [order, reason] : std::vector<std::pair<std::string, std::string>>{
           {"fail-init", "network plug-in Fake: init returned 2"},
           {"no-devices", "it has no adapter for memory of the host (0 adapters)"},
           {"fail-listen", "network plug-in Fake: listen returned 2"},
           {"fail-connect", "network plug-in Fake: connect returned 2"},
           {"fail-accept", "network plug-in Fake: accept returned 2"},
           {"never-connect", "Fake does not connect to rank"}}) {
    const Outcome outcome =
        run(kAllReduce, "01", {pluginOf(10), "FAKE_NET=" + order, "TUTTI_TIMEOUT_MS=4000"});
    EXPECT_TRUE(outcome.isGood()) << order << '\n' << outcome.log;
    EXPECT_GE(outcome.count(reason), 2u) << order << '\n' << outcome.log;
  }
}

TEST(NetPlugin, ThatHangsAtTheStartIsToldAndSocketsTakeItsPlace) {
  for (const std::string call : {"init", "devices", "listen", "connect", "accept"}) {
    const Outcome outcome =
        run(kAllReduce, "01", {pluginOf(11), "FAKE_NET=hang-" + call, "TUTTI_TIMEOUT_MS=2000"});
    EXPECT_TRUE(outcome.isGood()) << call << '\n' << outcome.log;
    const std::string named = call == "devices" ? "listing its devices" : call;
    EXPECT_GE(outcome.count("network plug-in Fake has not returned from " + named + " within "), 2u)
        << outcome.log;
    EXPECT_THAT(outcome.log, testing::ContainsRegex("WARN.*(links|a link from rank) .*sockets"))
        << call;
  }
}

TEST(NetPlugin, ThatHangsAsItIsLoadedIsToldAndSocketsTakeItsPlace) {
  const Outcome outcome = run("NetworkRanks.DISABLED_AllReduceAndLeaveWithoutExit", "01",
                              {pluginOf(11), "FAKE_NET=hang-open", "TUTTI_TIMEOUT_MS=2000"});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_THAT(
      outcome.log,
      testing::ContainsRegex("WARN NCCL_NET_PLUGIN=.*/libnccl-net-fake11.so has not returned from "
                             "dlopen within 2000 ms"));
}

TEST(NetPlugin, ThatHangsOnOneRankGivesWayToSockets) {
  for (const std::string call : {"init", "listen", "connect", "accept"}) {
    const Outcome outcome =
        run(kAllReduce, "012", {pluginOf(9), "TUTTI_TIMEOUT_MS=2000"}, {"FAKE_NET=hang-" + call});
    EXPECT_TRUE(outcome.isGood()) << call << '\n' << outcome.log;
    EXPECT_GE(outcome.count("Fake has not returned from " + call + " within "), 1u) << outcome.log;
  }
}

TEST(NetPlugin, ThatHangsKeepsNoAbortWaiting) {
  const Outcome outcome = run("NetworkRanks.DISABLED_AbortAmidTheSearch", "01",
                              {pluginOf(11), "FAKE_NET=hang-init", "TUTTI_TIMEOUT_MS=20000"});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_EQ(outcome.count("has not returned from"), 0u) << outcome.log;
}

// T is counted from when the call begins to hang: what the loop takes before is little.
TEST(NetPlugin, ThatHangsInACallEndsTheCallsOfAllRanksInTime) {
  for (const auto& [order, call] :
       std::vector<std::pair<std::string, std::string>>{{"hang-register 0", "regMr"},
                                                        {"hang-register 5", "regMr"},
                                                        {"hang-send 0", "isend"},
                                                        {"hang-send 15", "isend"},
                                                        {"hang-recv 20", "irecv"},
                                                        {"hang-test 40", "test"}}) {
    const Outcome outcome = run(
        kFailingAllReduce, "012",
        {pluginOf(11), "TUTTI_TIMEOUT_MS=2000", "TEST_WITHIN_MS=4500",
         "TEST_MESSAGE=rank 0: AllReduce is stuck: network plug-in Fake has not returned from " +
             call + " for 2."},
        {"FAKE_NET=" + order});
    EXPECT_TRUE(outcome.isGood()) << order << '\n' << outcome.log;
  }
}

TEST(NetPlugin, ThatHangsInACallKeepsNoAbortWaiting) {
  for (const std::string order :
       {"hang-register 5", "hang-send 5", "hang-recv 20", "hang-test 40"}) {
    const Outcome outcome = run("NetworkRanks.DISABLED_AbortAmidTheSearch", "01",
                                {pluginOf(9), "FAKE_NET=" + order, "TUTTI_TIMEOUT_MS=20000"});
    EXPECT_TRUE(outcome.isGood()) << order << '\n' << outcome.log;
  }
}

TEST(NetPlugin, ThatHangsAsItClosesIsLeftBehind) {
  for (const std::string call :
       {"release", "close-send", "close-recv", "close-listen", "finalize"}) {
    const Outcome outcome = run("NetworkRanks.DISABLED_AllReduceAndDestroyInTime", "01",
                                {pluginOf(11), "FAKE_NET=hang-" + call, "TUTTI_TIMEOUT_MS=4000"});
    EXPECT_TRUE(outcome.isGood()) << call << '\n' << outcome.log;
    // Of listeners, and of what ends with the process, nobody waits for the end.
    const bool isAwaited = call != "close-listen" && call != "finalize";
    EXPECT_GE(outcome.count("network plug-in Fake has not returned from "), isAwaited ? 2u : 0u)
        << outcome.log;
  }
}

TEST(NetPlugin, ThatIsSlowInACallIsWaitedFor) {
  for (const std::string order : {"late-send 5", "late-recv 20", "late-test 40"}) {
    const Outcome outcome =
        run(kAllReduce, "012", {pluginOf(9), "FAKE_NET=" + order, "TUTTI_TIMEOUT_MS=4000"});
    EXPECT_TRUE(outcome.isGood()) << order << '\n' << outcome.log;
    EXPECT_EQ(outcome.count("has not returned from"), 0u) << order << '\n' << outcome.log;
  }
}

// Where it hangs for one rank only, the others learn of that rank's failure as of any other: once
// it has failed, and of a rank that has left within another time limit.
TEST(NetPlugin, ThatHangsAndIsAskedForEndsTheCallsOfAllRanksInTime) {
  const Settings usual = {pluginOf(10), "NCCL_NET=Fake", "TUTTI_TIMEOUT_MS=2000"};
  for (const std::string call : {"init", "listen", "connect", "accept"}) {
    const std::string hang = "FAKE_NET=hang-" + call;
    const std::string asked = call == "init" ? "NCCL_NET=Fake: this network cannot be used: " : "";
    const std::string message =
        "TEST_MESSAGE=" + asked + "network plug-in Fake has not returned from " + call + " within ";
    Settings all = usual;
    all.insert(all.end(), {hang, message, "TEST_WITHIN_MS=3500"});
    const Outcome onAll = run(kFailingAllReduce, "01", all);
    EXPECT_TRUE(onAll.isGood()) << call << '\n' << onAll.log;
    Settings one = usual;
    one.emplace_back("TEST_WITHIN_MS=5500");
    const Outcome onOne = run(kFailingAllReduce, "012", one, {hang});
    EXPECT_TRUE(onOne.isGood()) << call << " on rank 0\n" << onOne.log;
    EXPECT_GE(onOne.count("Fake has not returned from " + call + " within "), 1u) << onOne.log;
  }
}

TEST(NetPlugin, OfOneRankOnlyIsNotUsed) {
  const Outcome outcome = run(kAllReduce, "01", {}, {pluginOf(10)});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_GE(outcome.count("goes over sockets"), 1u) << outcome.log;
}

TEST(NetPlugin, ThatIsAskedForAndMissingIsAnErrorOfInit) {
  const Outcome outcome = run(
      kFailingInit, "01",
      {"NCCL_NET=Other", pluginOf(10), "TEST_MESSAGE=NCCL_NET=Other: there is no such network"});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
}

TEST(NetPlugin, ThatIsMissingForOneRankFailsTheInitOfAll) {
  const Outcome outcome =
      run(kFailingInit, "012", {"TEST_MESSAGE=NCCL_NET=Other: there is no such network"},
          {"NCCL_NET=Other"});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
}

TEST(NetPlugin, IsNotLookedForByRanksOfOneHost) {
  const Outcome outcome = run(kAllReduce, "00", {"NCCL_NET=Other", pluginOf(10)});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_EQ(outcome.count("Fake"), 0u) << outcome.log;
  EXPECT_EQ(outcome.count("links to other hosts"), 0u) << outcome.log;
}

// What a communicator's config asks for, "Fake" and "Other" being there.
const std::string kByConfig = "NetworkRanks.DISABLED_AllReduceOverNetworksOfConfigs";
const std::string kTwoPlugins = pluginOf(11) + "," TUTTI_FAKE_NETS "/libnccl-net-other.so";

TEST(NetworkOfAConfig, IsTheCommunicatorsOwn) {
  const Outcome outcome =
      run(kByConfig, "01", {kTwoPlugins, "TEST_NETWORKS=other,Fake,Socket,Fake=3"});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_EQ(outcome.count("links to other hosts over Other: plug-in "), 2u) << outcome.log;
  EXPECT_EQ(outcome.count("links to other hosts over Fake: plug-in "), 4u) << outcome.log;
  EXPECT_EQ(outcome.count("over sockets: config.netName=Socket"), 2u) << outcome.log;
  EXPECT_EQ(outcome.count("goes over sockets"), 0u) << outcome.log;
}

TEST(NetworkOfAConfig, IsAlsoThatOfChildrenWithoutOne) {
  const Outcome outcome = run("NetworkRanks.DISABLED_AllReduceOfAChild", "01", {kTwoPlugins});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_EQ(outcome.count("links to other hosts over Other: plug-in "), 2u) << outcome.log;
  EXPECT_EQ(outcome.count("over Fake") + outcome.count("goes over sockets"), 0u) << outcome.log;
}

TEST(NetworkOfAConfig, GivesWayToTheSettings) {
  const Outcome outcome =
      run(kByConfig, "01", {kTwoPlugins, "NCCL_NET=Fake", "TEST_NETWORKS=Other"});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_EQ(outcome.count("links to other hosts over Fake: plug-in "), 2u) << outcome.log;
  EXPECT_EQ(outcome.count("over Other"), 0u) << outcome.log;
}

TEST(NetworkOfAConfig, ThatIsMissingIsAnError) {
  const Outcome outcome = run(kFailingInit, "01",
                              {pluginOf(11), "TEST_NETWORKS=Third",
                               "TEST_MESSAGE=config.netName=Third: there is no such network"});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
}

TEST(NetworkOfAConfig, ThatEncryptsNothingIsAnError) {
  const Outcome outcome =
      run(kFailingInit, "01",
          {pluginOf(11), "TUTTI_SECURE=encrypt", "TEST_NETWORKS=Fake",
           "TEST_MESSAGE=config.netName=Fake does not encrypt, as TUTTI_SECURE=encrypt asks"});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
}

// What is on each line of a file, once.
std::set<std::string> linesOf(const std::string& path) {
  std::set<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.insert(line);
  std::filesystem::remove(path);
  return lines;
}

// Before version 11 the plug-in is initialised once all the same.
TEST(TrafficClassOfAConfig, IsThatOfThePluginsConnections) {
  for (const int version : {10, 11}) {
    const std::string report = temporary("classes");
    const Outcome outcome = run(kByConfig, "01",
                                {pluginOf(version), "FAKE_NET=once",
                                 "FAKE_NET_CLASS_REPORT=" + report, "TEST_NETWORKS==7,,Fake=106"});
    EXPECT_TRUE(outcome.isGood()) << outcome.log;
    EXPECT_EQ(outcome.count("goes over sockets"), 0u) << outcome.log;
    EXPECT_EQ(linesOf(report), (std::set<std::string>{"-1", "7", "106"})) << version;
  }
}

TEST(NetPlugin, ThatFailsLaterEndsTheCallsOfAllRanks) {
  for (const auto& [order, reason] : std::vector<std::pair<std::string, std::string>>{
           {"fail-send 5", "isend returned 2"},
           {"fail-recv 20", "irecv returned 2"},
           {"fail-test 40", "test returned 2"},
           {"short 10", "the sender of a link sends|bytes of a payload were moved"}}) {
    const Outcome outcome =
        run(kFailingAllReduce, "01", {pluginOf(11), "FAKE_NET=" + order, "TUTTI_TIMEOUT_MS=5000"});
    EXPECT_TRUE(outcome.isGood()) << order << '\n' << outcome.log;
    EXPECT_THAT(outcome.log, testing::ContainsRegex(reason)) << order;
  }
}

// libfabric over TCP, on the loopback interface.
bool hasLibfabric() {
  void* library = ::dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
  return library != nullptr && ::dlclose(library) == 0;
}

class Libfabric : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!hasLibfabric()) GTEST_SKIP() << "there is no libfabric.so.1";
  }
};
INSTANTIATE_TEST_SUITE_P(Layouts, Libfabric, testing::Values("01", "001", "0110"),
                         [](const auto& layout) { return "h" + layout.param; });

TEST_P(Libfabric, CarriesAllCollectives) {
  const Outcome outcome =
      run(kAllCollectives, GetParam(), {"NCCL_NET=ofi", "TUTTI_OFI_PROVIDER=tcp"});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_EQ(outcome.count("links to other hosts over ofi: libfabric's tcp"), GetParam().size())
      << outcome.log;
}

// Between processes of one host only, so never by itself; but asked for, it is a network as
// another.
TEST_P(Libfabric, CarriesAllCollectivesThroughItsSharedMemory) {
  const Outcome outcome =
      run(kAllCollectives, GetParam(), {"NCCL_NET=ofi", "TUTTI_OFI_PROVIDER=shm"});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_EQ(outcome.count("links to other hosts over ofi: libfabric's shm"), GetParam().size())
      << outcome.log;
  EXPECT_EQ(outcome.count("goes over sockets"), 0u) << outcome.log;
}

TEST(LibfabricProvider, TakesLittleMemory) {
  if (!hasLibfabric()) GTEST_SKIP() << "there is no libfabric.so.1";
  if (!canCount()) GTEST_SKIP() << "a sanitizer's own memory counts, too";
  const Outcome outcome = run("NetworkRanks.DISABLED_AllReduceInLittleMemory", "01",
                              {"NCCL_NET=ofi", "TUTTI_OFI_PROVIDER=tcp"});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
}

// A libfabric.so.1 whose constructor never returns.
TEST(LibfabricProvider, ThatHangsAsItIsLoadedEndsTheCalls) {
  const Outcome outcome = run(
      "NetworkRanks.DISABLED_AllReduceThatFailsAndLeaveWithoutExit", "01",
      {"NCCL_NET=ofi", "LD_LIBRARY_PATH=" TUTTI_HANGING_LIBRARY, "TUTTI_TIMEOUT_MS=2000",
       "TEST_WITHIN_MS=5500",
       "TEST_MESSAGE=NCCL_NET=ofi: this network cannot be used: libfabric has not returned from "
       "opening a provider within 2000 ms"});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
}

TEST(LibfabricProvider, ThatIsAskedForAndMissingIsAnError) {
  if (!hasLibfabric()) GTEST_SKIP() << "there is no libfabric.so.1";
  const Outcome outcome =
      run(kFailingInit, "01",
          {"NCCL_NET=ofi", "TUTTI_OFI_PROVIDER=nosuch", "TEST_MESSAGE=no provider nosuch"});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
}

}  // namespace
}  // namespace tutti::conformance
