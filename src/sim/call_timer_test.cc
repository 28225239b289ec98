#include "sim/call_timer.h"

#include <gmock/gmock.h>

#include "sim/clusters_testing.h"

namespace tutti::sim {
namespace {

std::unique_ptr<CallTimer> timerOf(Cluster cluster) {
  auto timer = CallTimer::make(std::move(cluster), {.launch = Launch::kEager});
  EXPECT_TRUE(timer.ok()) << timer.status().message();
  return std::move(timer).value();
}

std::vector<Rank> everyNth(const Cluster& cluster, int32_t first, int32_t stride) {
  std::vector<Rank> ranks;
  for (int32_t rank = first; rank < cluster.rankCount(); rank += stride)
    ranks.push_back(Rank{rank});
  return ranks;
}

plan::CallShape allReduce(uint64_t count) {
  return {.collective = Collective::kAllReduce, .count = count};
}

TEST(CallTimer, TimesEveryCollectiveOfEveryRank) {
  const Cluster whole = exampleCluster("dgx_h100x64", 4);
  const std::unique_ptr<CallTimer> timer = timerOf(whole);
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    const plan::CallShape shape{.collective = collective, .peer = Rank{9}, .count = 100'000};
    for (const int32_t self : {0, 9, 31}) {
      auto cost = timer->costOf(shape, Rank{self});
      ASSERT_TRUE(cost.ok()) << cost.status().message();
      EXPECT_GT((*cost)->us, 0) << name(collective) << " of rank " << self;
    }
  }
}

// A node's NVLink is faster than the network that data-parallel groups of one GPU a node share.
TEST(CallTimer, KnowsWhereTheRanksOfAPartAre) {
  const Cluster whole = exampleCluster("dgx_h100x64", 8);
  const std::vector<Rank> node = {Rank{8},  Rank{9},  Rank{10}, Rank{11},
                                  Rank{12}, Rank{13}, Rank{14}, Rank{15}};
  const auto inside = timerOf(whole.part(node).value());
  const auto across = timerOf(whole.part(everyNth(whole, 3, 8)).value());
  ASSERT_EQ(inside->cluster().rankCount(), across->cluster().rankCount());
  const auto shape = allReduce(1 << 26);
  EXPECT_LT(2 * inside->costOf(shape, Rank{0}).value()->us,
            across->costOf(shape, Rank{0}).value()->us);
}

TEST(CallTimer, ASendIsItsReceive) {
  const auto timer = timerOf(exampleCluster("dgx_h100x64", 2));
  const plan::CallShape send{.collective = Collective::kSend, .peer = Rank{12}, .count = 5000};
  const plan::CallShape receive{.collective = Collective::kRecv, .peer = Rank{3}, .count = 5000};
  EXPECT_EQ(timer->costOf(send, Rank{3}).value(), timer->costOf(receive, Rank{12}).value());
}

TEST(CallTimer, NothingMovesWithinARankOrWithoutBytes) {
  const Cluster whole = exampleCluster("dgx_h100x64", 2);
  const auto alone = timerOf(whole.part(std::vector{Rank{5}}).value());
  EXPECT_EQ(alone->costOf(allReduce(1000), Rank{0}).value()->way, "");
  const auto two = timerOf(whole);
  EXPECT_EQ(two->costOf(allReduce(0), Rank{0}).value()->us, 0);
  const plan::CallShape own{.collective = Collective::kSend, .peer = Rank{4}, .count = 10};
  EXPECT_EQ(two->costOf(own, Rank{4}).value()->way, "");
}

TEST(CallTimer, CpuRanksToo) {
  const auto timer = timerOf(exampleCluster("cpu_cluster"));
  EXPECT_GT(timer->costOf(allReduce(1 << 20), Rank{1}).value()->us, 0);
}

}  // namespace
}  // namespace tutti::sim
