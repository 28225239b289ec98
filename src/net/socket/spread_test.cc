#include "net/socket/spread.h"

#include <gtest/gtest.h>

namespace tutti::net::socket {
namespace {

struct Counts {
  size_t sockets;
  size_t threads;
  bool operator==(const Counts&) const = default;
};
Counts of(const SpreadRules& rules) {
  const Spread spread = chooseSpread(rules);
  return {spread.sockets, spread.threads};
}

TEST(Spread, IsOneSocketWhereTheLinkIsSlow) {
  EXPECT_EQ(of({.speedMbit = 1000, .cpuCount = 64}), (Counts{1, 1}));
  EXPECT_EQ(of({.speedMbit = 10'000, .cpuCount = 64}), (Counts{1, 1}));
}

TEST(Spread, GrowsWithTheLinksSpeed) {
  EXPECT_EQ(of({.speedMbit = 20'000}), (Counts{2, 1}));
  EXPECT_EQ(of({.speedMbit = 25'000}), (Counts{3, 1}));
  EXPECT_EQ(of({.speedMbit = 100'000}), (Counts{10, 1}));
  EXPECT_EQ(of({.speedMbit = 400'000}), (Counts{16, 1}));
  EXPECT_EQ(of({.threads = 3, .speedMbit = 100'000, .cpuCount = 64}), (Counts{12, 3}));
}

TEST(Spread, HasTwoThreadsWhereOneMayBeTooSlowAndThereAreCpus) {
  EXPECT_EQ(of({.speedMbit = 20'000, .cpuCount = 64}), (Counts{2, 1}));
  EXPECT_EQ(of({.speedMbit = 25'000, .cpuCount = 8}), (Counts{4, 2}));
  EXPECT_EQ(of({.speedMbit = 25'000, .cpuCount = 7}), (Counts{3, 1}));
  EXPECT_EQ(of({.speedMbit = 25'000, .cpuCount = 64, .ranksOnCpus = 8}), (Counts{4, 2}));
  EXPECT_EQ(of({.speedMbit = 25'000, .cpuCount = 64, .ranksOnCpus = 9}), (Counts{3, 1}));
  EXPECT_EQ(of({.speedMbit = 25'000, .cpuCount = 64, .ranksInProcess = 2}), (Counts{3, 1}));
  EXPECT_EQ(of({.cpuCount = 8}), (Counts{2, 2})) << "nothing says how fast it is";
  EXPECT_EQ(of({.cpuCount = 7}), (Counts{1, 1}));
}

TEST(Spread, KnowsWhetherTheThreadsHaveCpusOfTheirOwn) {
  const auto hasOwnCpus = [](size_t cpus) {
    return chooseSpread({.threads = 4, .socketsPerThread = 1, .cpuCount = cpus}).hasOwnCpus;
  };
  EXPECT_TRUE(hasOwnCpus(16));
  EXPECT_FALSE(hasOwnCpus(15));
  EXPECT_FALSE(chooseSpread({.threads = 4, .cpuCount = 16, .ranksOnCpus = 2}).hasOwnCpus);
}

TEST(Spread, IsWhatTheSettingsSay) {
  EXPECT_EQ(of({.threads = 2, .socketsPerThread = 8}), (Counts{16, 2}));
  EXPECT_EQ(of({.threads = 1, .socketsPerThread = 1, .speedMbit = 100'000, .cpuCount = 64}),
            (Counts{1, 1}));
  EXPECT_EQ(of({.socketsPerThread = 4}), (Counts{4, 1}));
  EXPECT_EQ(of({.threads = 16, .socketsPerThread = 16}), (Counts{64, 16}));
}

TEST(Spread, GivesEachInterfaceAsMany) {
  EXPECT_EQ(of({.interfaceCount = 4}), (Counts{4, 1}));
  EXPECT_EQ(of({.threads = 1, .socketsPerThread = 6, .interfaceCount = 4}), (Counts{8, 1}));
  EXPECT_EQ(of({.threads = 16, .socketsPerThread = 16, .interfaceCount = 3}), (Counts{63, 16}));
}

TEST(Spread, SaysWhy) {
  EXPECT_EQ(chooseSpread({.speedMbit = 25'000}).reason,
            "3 sockets a link over 1 interface, 1 thread: 25000 Mbit/s");
  EXPECT_EQ(chooseSpread({.threads = 1, .socketsPerThread = 2}).reason,
            "2 sockets a link over 1 interface, 1 thread: speed unknown, NCCL_SOCKET_NTHREADS or "
            "NCCL_NSOCKS_PERTHREAD is set");
  EXPECT_EQ(
      chooseSpread({.threads = 2, .socketsPerThread = 1, .cpuCount = 1}).reason,
      "2 sockets a link over 1 interface, 2 threads: speed unknown, NCCL_SOCKET_NTHREADS or "
      "NCCL_NSOCKS_PERTHREAD is set; 2 threads that send and as many that receive share 1 CPU");
}

TEST(LinkSpeed, IsUnknownOfLoopbackAndOfWhatIsNotThere) {
  EXPECT_EQ(linkSpeed("lo"), 0);
  EXPECT_EQ(linkSpeed("no such interface"), 0);
}

}  // namespace
}  // namespace tutti::net::socket
