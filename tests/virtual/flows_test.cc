// Messages and bytes on every link between hosts of 8 CPU ranks: as many as the simulator's flows
// say, for every algorithm of every collective.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <tutti/inspect.h>

#include <cinttypes>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "processes.h"
#include "schedule/catalog.h"
#include "sim/cluster_file.h"
#include "sim/edges.h"

namespace tutti::conformance {
namespace {

constexpr int kRanks = 8;
constexpr std::array<size_t, 3> kCounts = {1, 4099, 300'007};
constexpr int kRoot = 3;

// Messages and bytes by pair of ranks.
using Sent = std::map<std::pair<int, int>, std::pair<uint64_t, uint64_t>>;

void call(Collective collective, std::vector<float>& in, std::vector<float>& out, size_t count,
          ncclComm_t comm) {
  switch (collective) {
    case Collective::kAllReduce:
      return (void)ncclAllReduce(in.data(), out.data(), count, ncclFloat, ncclSum, comm, nullptr);
    case Collective::kAllGather:
      return (void)ncclAllGather(in.data(), out.data(), count, ncclFloat, comm, nullptr);
    case Collective::kReduceScatter:
      return (void)ncclReduceScatter(in.data(), out.data(), count, ncclFloat, ncclSum, comm,
                                     nullptr);
    case Collective::kBroadcast:
      return (void)ncclBroadcast(in.data(), out.data(), count, ncclFloat, kRoot, comm, nullptr);
    case Collective::kReduce:
      return (void)ncclReduce(in.data(), out.data(), count, ncclFloat, ncclSum, kRoot, comm,
                              nullptr);
    case Collective::kAllToAll:
      return (void)ncclAlltoAll(in.data(), out.data(), count, ncclFloat, comm, nullptr);
    case Collective::kGather:
      return (void)ncclGather(in.data(), out.data(), count, ncclFloat, kRoot, comm, nullptr);
    case Collective::kScatter:
      return (void)ncclScatter(in.data(), out.data(), count, ncclFloat, kRoot, comm, nullptr);
    case Collective::kSend:
    case Collective::kRecv: break;
  }
}

std::string dumpOf(ncclComm_t comm) {
  size_t length = 0;
  EXPECT_EQ(ncclTuttiCommDump(comm, nullptr, 0, &length), ncclSuccess);
  std::string text(length + 1, '\0');
  EXPECT_EQ(ncclTuttiCommDump(comm, text.data(), text.size(), nullptr), ncclSuccess);
  return text;
}

// What the dump says of one direction.
Sent countedBy(const std::string& dump, int rank, bool isOutgoing) {
  Sent found;
  std::istringstream lines(dump);
  for (std::string line; std::getline(lines, line);) {
    int peer = 0;
    uint64_t messages = 0, bytes = 0;
    const char* form = isOutgoing ? "  to %d by net: %" SCNu64 " messages, %" SCNu64 " bytes"
                                  : "  from %d by net: %" SCNu64 " messages, %" SCNu64 " bytes";
    if (std::sscanf(line.c_str(), form, &peer, &messages, &bytes) == 3)
      found[isOutgoing ? std::pair(rank, peer) : std::pair(peer, rank)] = {messages, bytes};
  }
  return found;
}

std::string fileOf(const std::string& base, int rank, bool isOutgoing) {
  return base + "." + std::to_string(rank) + (isOutgoing ? ".out" : ".in");
}

// One communicator, one collective, three sizes: the counters of all three together.
TEST(CountedFlowsOfARank, DISABLED_Rank) {
  const ProcessRank self = thisProcess();
  const auto collective = static_cast<Collective>(std::atoi(std::getenv("TEST_COLLECTIVE")));
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRank(&comm, self.count, self.id, self.rank), ncclSuccess)
      << ncclGetLastError(nullptr);
  for (const size_t count : kCounts) {
    std::vector<float> in(count * kRanks, 1), out(count * kRanks);
    call(collective, in, out, count, comm);
  }
  // All of it is out, and in, once everybody has heard from everybody.
  float value = 0;
  ncclComm_t later = nullptr;
  ASSERT_EQ(ncclCommSplit(comm, 0, self.rank, &later, nullptr), ncclSuccess);
  ASSERT_EQ(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, later, nullptr), ncclSuccess);
  const std::string dump = dumpOf(comm);
  for (const bool isOutgoing : {true, false}) {
    std::ofstream file(fileOf(std::getenv("TEST_FILE"), self.rank, isOutgoing));
    for (const auto& [ends, sums] : countedBy(dump, self.rank, isOutgoing))
      file << ends.first << ' ' << ends.second << ' ' << sums.first << ' ' << sums.second << '\n';
  }
  EXPECT_EQ(ncclCommDestroy(later), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

Sent measured(const std::string& base, bool isOutgoing) {
  Sent all;
  for (int rank = 0; rank < kRanks; ++rank) {
    std::ifstream file(fileOf(base, rank, isOutgoing));
    int from = 0, to = 0;
    uint64_t messages = 0, bytes = 0;
    while (file >> from >> to >> messages >> bytes) all[{from, to}] = {messages, bytes};
  }
  return all;
}

// Rank n is on host n modulo so many.
Sent simulated(Collective collective, std::string_view algorithm, int hosts) {
  const auto cluster = sim::parseCluster(
      fmt::format("nodes: [{{count: {}, machine: {{ports: 1, port_gbps: 10}}, cpu_ranks: {}}}]\n"
                  "placement: cyclic\n",
                  hosts, kRanks / hosts),
      {.source = "c.yaml"}, nullptr);
  const auto plan = sim::planVirtual(cluster.value());
  Sent all;
  for (const size_t count : kCounts) {
    const plan::CallShape shape{.collective = collective, .peer = Rank{kRoot}, .count = count};
    const auto traffic = sim::Traffic::make(cluster.value(), plan.value(),
                                            {.collective = collective,
                                             .bytes = plan::vectorBytes(shape, kRanks),
                                             .root = Rank{hasRoot(collective) ? kRoot : 0}},
                                            {.algorithm = std::string(algorithm)});
    EXPECT_TRUE(traffic.ok());
    for (const sim::Edge& edge : sim::edgesOf(traffic.value(), 0)) {
      if (cluster.value().nodeOf(edge.from) == cluster.value().nodeOf(edge.to)) continue;
      auto& [messages, bytes] = all[{index(edge.from), index(edge.to)}];
      messages += edge.messages;
      bytes += edge.bytes;
    }
  }
  std::erase_if(all, [](const auto& each) { return each.second.first == 0; });
  return all;
}

void compare(Collective collective, const schedule::Algorithm& algorithm, int hosts) {
  const std::string base = testing::TempDir() + "/flows." + std::to_string(::getpid());
  const auto codes = runProcesses(
      "CountedFlowsOfARank.DISABLED_Rank", kRanks, [&](int rank) -> std::vector<std::string> {
        return {"NCCL_HOSTID=host" + std::to_string(rank % hosts),
                "TUTTI_DEVICE=host",
                "NCCL_SOCKET_IFNAME=lo",
                "NCCL_ALGO=" + std::string(name(collective)) + ":" + std::string(algorithm.name),
                "TEST_COLLECTIVE=" + std::to_string(static_cast<int>(collective)),
                "TEST_FILE=" + base};
      });
  ASSERT_THAT(codes, testing::Each(0));
  // Ranks that outnumber CPUs send longer messages; clusters say nothing of CPUs.
  const bool isCrowded = kRanks / hosts > static_cast<int>(std::thread::hardware_concurrency());
  const auto shown = [&](Sent sent) {
    for (auto& [ends, sums] : sent) sums.first = isCrowded ? 0 : sums.first;
    return sent;
  };
  const Sent wanted = shown(simulated(collective, algorithm.name, hosts));
  EXPECT_EQ(shown(measured(base, true)), wanted);
  EXPECT_EQ(shown(measured(base, false)), wanted);
  for (int rank = 0; rank < kRanks; ++rank) {
    for (const bool isOutgoing : {true, false}) std::remove(fileOf(base, rank, isOutgoing).c_str());
  }
}

class CountedFlows : public testing::TestWithParam<int> {};

TEST_P(CountedFlows, EqualTheSimulatorsLinkByLink) {
  for (int which = 0; which < kCollectiveCount; ++which) {
    const auto collective = static_cast<Collective>(which);
    if (collective == Collective::kSend || collective == Collective::kRecv) continue;
    for (const schedule::Algorithm& algorithm : schedule::algorithms(collective)) {
      if (algorithm.reducesInNetwork()) continue;  // no such network here
      SCOPED_TRACE(std::string(name(collective)) + " by " + std::string(algorithm.name));
      compare(collective, algorithm, GetParam());
    }
  }
}

// A host a rank; and ranks dealt out in turn, so that neighbours in number are on other hosts.
INSTANTIATE_TEST_SUITE_P(Hosts, CountedFlows, testing::Values(8, 4, 2));

}  // namespace
}  // namespace tutti::conformance
