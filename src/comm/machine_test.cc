#include "comm/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>

#include "bootstrap/directory.h"
#include "topology/topology.h"

namespace tutti::comm {
namespace {

using testing::HasSubstr;
using topology::Description;

// Ranks of one process, each on a thread, with a bootstrap but no communicator; those of `host`
// share the machine and give what they then know.
using Find = std::function<Result<Description>(Rank)>;
std::vector<std::optional<Description>> share(const std::vector<MachineParts::Member>& host,
                                              int32_t rankCount, const Find& find) {
  SeededRng rng(7);
  bootstrap::Directory directory(rng);
  const bootstrap::UniqueId id = bootstrap::makeLocalUniqueId(directory, systemRng());
  std::vector<std::optional<Description>> found(host.size());
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < rankCount; ++rank) {
    threads.emplace_back([&, rank] {
      bootstrap::Bootstrap::Options options;
      options.id = id;
      options.rank = Rank{rank};
      options.rankCount = rankCount;
      auto bootstrap = bootstrap::Bootstrap::connect(directory, options);
      ASSERT_TRUE(bootstrap.ok()) << bootstrap.status().message();
      for (size_t i = 0; i < host.size(); ++i) {
        if (host[i].rank != Rank{rank}) continue;
        Result<std::optional<Description>> machine =
            shareMachine({.bootstrap = **bootstrap,
                          .host = host,
                          .timeout = std::chrono::milliseconds(10'000),
                          .find = [&find, rank] { return find(Rank{rank}); }});
        EXPECT_TRUE(machine.ok()) << machine.status().message();
        if (machine.ok()) found[i] = std::move(machine).value();
      }
      EXPECT_TRUE((*bootstrap)->barrier().ok());  // nobody leaves early
    });
  }
  for (std::thread& thread : threads) thread.join();
  return found;
}

// A machine that shows these GPUs.
Description seeing(const std::vector<std::string>& gpus) {
  topology::CpuNode cpu{.hostHash = 5};
  for (const std::string& busId : gpus)
    cpu.devices.push_back({.busId = busId,
                           .deviceClass = 0x030200,
                           .linkSpeed = "16.0 GT/s PCIe",
                           .linkWidth = 16,
                           .gpu = topology::Gpu{.smVersion = 90}});
  return {.source = "a test", .cpus = {cpu}, .assumptions = {"the moon is round"}};
}

int32_t rankAt(const Description& machine, size_t device) {
  return machine.cpus.at(0).devices.at(device).gpu->rank;
}

TEST(Machine, IsFoundOutOnceAHostAndToldToItsRanks) {
  std::atomic<int> searches{0};
  const auto found = share({{Rank{1}, ""}, {Rank{2}, ""}, {Rank{4}, ""}}, 5, [&](Rank) {
    ++searches;
    return seeing({"0000:11:00.0"});
  });
  EXPECT_EQ(searches, 1);
  for (const std::optional<Description>& machine : found) {
    ASSERT_TRUE(machine);
    EXPECT_TRUE(*machine == seeing({"0000:11:00.0"}));
    EXPECT_THAT(machine->assumptions, testing::ElementsAre("the moon is round"));
  }
}

TEST(Machine, ShowsWhichRankIsOnWhichGpu) {
  const auto found = share({{Rank{0}, "0000:12:00.0"}, {Rank{2}, "0000:11:00.0"}}, 3, [](Rank) {
    return seeing({"0000:11:00.0", "0000:12:00.0"});
  });
  for (const std::optional<Description>& machine : found) {
    ASSERT_TRUE(machine);
    EXPECT_EQ(rankAt(*machine, 0), 2);
    EXPECT_EQ(rankAt(*machine, 1), 0);
  }
}

// Containers that each see their own GPU.
TEST(Machine, IsFusedOfPartsWhereTheFirstRankSeesNotAll) {
  const std::vector<std::string> gpus = {"0000:11:00.0", "0000:12:00.0", "0000:13:00.0"};
  std::atomic<int> searches{0};
  const auto found =
      share({{Rank{0}, gpus[0]}, {Rank{1}, gpus[1]}, {Rank{2}, gpus[2]}}, 3, [&](Rank rank) {
        ++searches;
        return seeing({gpus[static_cast<size_t>(index(rank))]});
      });
  EXPECT_EQ(searches, 3);
  for (const std::optional<Description>& machine : found) {
    ASSERT_TRUE(machine);
    ASSERT_EQ(machine->cpus[0].devices.size(), 3u);
    for (size_t i = 0; i < gpus.size(); ++i) EXPECT_EQ(rankAt(*machine, i), i);
    EXPECT_TRUE(topology::buildTopology(*machine).ok());
  }
}

TEST(Machine, ThatCannotBeFoundOutEndsNoStart) {
  const auto found = share({{Rank{0}, ""}, {Rank{1}, ""}}, 2, [](Rank) -> Result<Description> {
    return Status(Code::kSystemError, "NVML error 999");
  });
  EXPECT_FALSE(found[0]);
  EXPECT_FALSE(found[1]);
}

TEST(Machine, WhoseOtherPartsAreMissingIsStillShared) {
  const auto found = share({{Rank{0}, "0000:11:00.0"}, {Rank{1}, "0000:12:00.0"}}, 2,
                           [](Rank rank) -> Result<Description> {
                             if (rank == Rank{0}) return seeing({"0000:11:00.0"});
                             return Status(Code::kSystemError, "NVML error 999");
                           });
  ASSERT_TRUE(found[0] && found[1]);
  EXPECT_EQ(found[1]->cpus[0].devices.size(), 1u);
}

TEST(Machine, TooLargeForAMessageStaysWithTheFirstRank) {
  Description large = seeing({});
  for (int i = 0; i < 20'000; ++i)
    large.cpus[0].devices.push_back({.busId = fmt::format("{:04x}:00:00.0", i)});
  const auto found = share({{Rank{0}, ""}, {Rank{1}, ""}}, 2, [&](Rank) { return large; });
  EXPECT_TRUE(found[0]);
  EXPECT_FALSE(found[1]);
}

}  // namespace
}  // namespace tutti::comm
