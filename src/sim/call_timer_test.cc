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

// NCCL's all-to-all is a send to each peer, launched one by one; its all-reduce is one kernel.
TEST(CallTimer, NcclsHostLaunchesAnAllToAllPeerByPeer) {
  const auto leastUs = [](System system, Collective collective, int32_t ranks) {
    return launchCost(system, Launch::kEager, collective, ranks).leastUs;
  };
  const double one = leastUs(System::kNccl, Collective::kAllReduce, 4);
  EXPECT_EQ(leastUs(System::kNccl, Collective::kAllToAll, 2), one);
  const double three = leastUs(System::kNccl, Collective::kAllToAll, 4);
  EXPECT_GT(three, one);
  EXPECT_EQ(leastUs(System::kNccl, Collective::kScatter, 4), three);
  EXPECT_EQ(leastUs(System::kTutti, Collective::kAllToAll, 4),
            leastUs(System::kTutti, Collective::kAllReduce, 4));
  EXPECT_EQ(launchCost(System::kNccl, Launch::kGraph, Collective::kAllToAll, 4).leastUs, 0);
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

// The part's graphs are its own, its links are the cluster's, by name.
TEST(CallTimer, LinksOfAPartAreThoseOfTheWhole) {
  const Cluster whole = exampleCluster("dgx_h100x64", 4);
  const Cluster part = whole.part(everyNth(whole, 3, 8)).value();
  const std::vector<int32_t> numbers = part.linksIn(whole);
  ASSERT_EQ(numbers.size(), static_cast<size_t>(part.linkCount()));
  for (int32_t link = 0; link < part.linkCount(); ++link) {
    const int32_t number = numbers[static_cast<size_t>(link)];
    ASSERT_GE(number, 0) << part.nameOfLink(link);
    EXPECT_EQ(part.nameOfLink(link), whole.nameOfLink(number));
    EXPECT_DOUBLE_EQ(part.gbPerSecond(link), whole.gbPerSecond(number)) << part.nameOfLink(link);
  }
}

// What fair sharing is told of a call agrees with what the call alone takes: no link lets it be
// faster, and none slower.
TEST(CallTimer, UseOfLinksFitsTheTimeAlone) {
  const Cluster whole = exampleCluster("p5x8", 4);
  const std::unique_ptr<CallTimer> timer = timerOf(whole);
  for (int i = 0; i < kCollectiveCount; ++i) {
    const plan::CallShape shape{
        .collective = static_cast<Collective>(i), .peer = Rank{9}, .count = 50'000'000};
    const CallTimer::Cost cost = *timer->costWithUse(shape, Rank{0}).value();
    ASSERT_NE(cost.use, nullptr) << name(shape.collective);
    const double bytes = cost.use->flowBytes * wireFactor(cost.method->protocol) *
                         static_cast<double>(plan::vectorBytes(shape, whole.rankCount()));
    double most = 0;
    for (const LinkUse::Crossing& each : cost.use->crossings) {
      const double share = whole.isNetworkLink(each.link) ? kNetworkShare : 1;
      most = std::max(most, bytes * each.flows / (whole.gbPerSecond(each.link) * share * 1e3));
    }
    EXPECT_LE(most, cost.bytesUs * (1 + 1e-9)) << name(shape.collective);
    EXPECT_GT(most, cost.bytesUs / 20) << name(shape.collective);
  }
}

}  // namespace
}  // namespace tutti::sim
