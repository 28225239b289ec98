// How the adapters of a host share what its ranks send: bytes over each, as a plug-in counts them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include "network_plugins.h"
#include "network_ranks.h"

namespace tutti::conformance {
namespace {

constexpr int kRanks = 16;
constexpr size_t kLongCount = 300'000;
// Messages of which each goes over one adapter, with its label.
constexpr size_t kShortCount = 4'096;

std::string reportOf(const std::string& folder, const std::string& call, size_t count,
                     const std::string& host) {
  return folder + "/" + call + "." + std::to_string(count) + "." + host;
}

// In the order in which they are called.
using Collective = ncclResult_t (*)(const int64_t* input, int64_t* output, size_t count,
                                    ncclComm_t comm);
const std::vector<std::pair<std::string, Collective>>& collectives() {
  static const std::vector<std::pair<std::string, Collective>> calls = {
      {"all-reduce",
       [](auto* input, auto* output, size_t count, ncclComm_t comm) {
         return ncclAllReduce(input, output, count, ncclInt64, ncclSum, comm, nullptr);
       }},
      {"all-gather",
       [](auto* input, auto* output, size_t count, ncclComm_t comm) {
         return ncclAllGather(input, output, count / kRanks, ncclInt64, comm, nullptr);
       }},
      {"reduce-scatter",
       [](auto* input, auto* output, size_t count, ncclComm_t comm) {
         return ncclReduceScatter(input, output, count / kRanks, ncclInt64, ncclSum, comm, nullptr);
       }},
      {"all-to-all",
       [](auto* input, auto* output, size_t count, ncclComm_t comm) {
         return ncclAlltoAll(input, output, count / kRanks, ncclInt64, comm, nullptr);
       }},
      {"broadcast",
       [](auto* input, auto* output, size_t count, ncclComm_t comm) {
         return ncclBroadcast(input, output, count, ncclInt64, 0, comm, nullptr);
       }},
      {"reduce",
       [](auto* input, auto* output, size_t count, ncclComm_t comm) {
         return ncclReduce(input, output, count, ncclInt64, ncclSum, 0, comm, nullptr);
       }},
      {"gather",
       [](auto* input, auto* output, size_t count, ncclComm_t comm) {
         return ncclGather(input, output, count / kRanks, ncclInt64, 0, comm, nullptr);
       }},
      {"scatter", [](auto* input, auto* output, size_t count, ncclComm_t comm) {
         return ncclScatter(input, output, count / kRanks, ncclInt64, 0, comm, nullptr);
       }}};
  return calls;
}

// Each by a communicator of its own, whose links the plug-in reports of by host.
TEST(NetworkRanks, DISABLED_CollectivesByAdapter) {
  const ProcessRank self = thisProcess();
  ASSERT_EQ(self.count, kRanks);
  ncclComm_t parent = nullptr;
  ASSERT_EQ(ncclCommInitRank(&parent, self.count, self.id, self.rank), ncclSuccess);
  for (const size_t count : {kShortCount, kLongCount}) {
    const std::vector<int64_t> input(count, self.rank);
    std::vector<int64_t> output(count);
    for (const auto& [name, call] : collectives()) {
      const std::string report =
          reportOf(textOf("TEST_REPORTS"), name, count, textOf("NCCL_HOSTID"));
      ASSERT_EQ(::setenv("FAKE_NET_REPORT", report.c_str(), 1), 0);
      ncclComm_t comm = nullptr;
      ASSERT_EQ(ncclCommSplit(parent, 0, self.rank, &comm, nullptr), ncclSuccess);
      for (int round = 0; round < 4; ++round)
        ASSERT_EQ(call(input.data(), output.data(), count, comm), ncclSuccess) << name;
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    }
  }
  EXPECT_EQ(ncclCommDestroy(parent), ncclSuccess);
}

// By adapter.
std::map<int, double> readReport(const std::string& path) {
  std::map<int, double> bytes;
  std::ifstream file(path);
  int adapter = 0;
  double count = 0;
  while (file >> adapter >> count) bytes[adapter] += count;
  return bytes;
}

void expectAlike(const std::map<int, double>& bytes, const std::string& what) {
  ASSERT_EQ(bytes.size(), 4u) << what;
  const auto [least, most] = std::ranges::minmax(std::views::values(bytes));
  EXPECT_LE(most, 1.05 * least) << what;
}

TEST(NetPlugin, KeepsAllAdaptersBusyAlike) {
  const std::string report = temporary("report");
  const Outcome outcome =
      run(kAllReduce, "01", {pluginOf(11), "FAKE_NET_DEVICES=4", "FAKE_NET_REPORT=" + report});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  expectAlike(readReport(report), "all-reduce");
  std::filesystem::remove(report);
}

// A rank a process, as launchers start them: none knows what adapters the others begin with.
TEST(NetPlugin, KeepsAllAdaptersBusyAlikeWhereEachRankIsAProcess) {
  const std::string folder = temporary("reports");
  std::filesystem::create_directory(folder);
  const Outcome outcome = run("NetworkRanks.DISABLED_CollectivesByAdapter", "0000000011111111",
                              {pluginOf(11), "FAKE_NET_DEVICES=4", "TEST_REPORTS=" + folder});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  const auto bytesOf = [&](const std::string& call, size_t count, const std::string& host) {
    return readReport(reportOf(folder, call, count, host));
  };
  for (const std::string host : {"net-0", "net-1"}) {
    // Of the others of this length a link or two carry all.
    for (const std::string call : {"all-reduce", "all-to-all"})
      expectAlike(bytesOf(call, kShortCount, host), call + ", short, of " + host);
    for (const auto& [name, call] : collectives()) {
      const std::map<int, double> bytes = bytesOf(name, kLongCount, host);
      const bool sendsNothing = name == "gather" ? host == "net-0" : host == "net-1";
      const bool isOneWay = name == "broadcast" || name == "scatter" || name == "gather";
      if (isOneWay && sendsNothing) continue;
      expectAlike(bytes, name + " of " + host);
    }
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tutti::conformance
