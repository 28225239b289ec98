#include "comm/reduction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace tutti::comm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ReductionOffer offerOf(std::string_view name, int32_t devices) {
  ReductionOffer offer{.isWanted = 1, .deviceCount = devices, .nodeThreshold = 2};
  offer.supported = plan::NetworkReduction::bitOf(DataType::kFloat32, ReduceOp::kSum);
  name.copy(offer.name.data(), offer.name.size() - 1);
  return offer;
}

// Ranks of these hosts, each with its offer.
plan::NetworkReduction agreed(const std::vector<int32_t>& hosts,
                              const std::vector<ReductionOffer>& offers,
                              const std::vector<Rank>& order = {}) {
  std::vector<ReductionRank> ranks;
  for (size_t i = 0; i < hosts.size(); ++i)
    ranks.push_back({Rank{static_cast<int32_t>(i)}, hosts[i], &offers[i]});
  return agreeOnReduction(ranks, order);
}

TEST(Reduction, HasAsManyHeadsAsTheSmallestHostAndTheLeastAdaptersAllow) {
  const ReductionOffer four = offerOf("Switch", 4);
  const auto network = agreed({0, 0, 0, 1, 1}, {5, four});
  EXPECT_EQ(network.headCount, 2);
  EXPECT_THAT(network.hostStarts, ElementsAre(0, 3));
  EXPECT_EQ(network.name, "Switch");
  EXPECT_TRUE(network.reduces(DataType::kFloat32, ReduceOp::kAvg)) << "an average is a sum";
  EXPECT_FALSE(network.reduces(DataType::kFloat32, ReduceOp::kMax));
  EXPECT_FALSE(network.reduces(DataType::kInt8, ReduceOp::kSum));
  std::vector<ReductionOffer> offers(5, four);
  offers[4].deviceCount = 1;
  EXPECT_EQ(agreed({0, 0, 0, 1, 1}, offers).headCount, 1);
}

TEST(Reduction, HeadsAreTheRanksInOneSeatOfAllHosts) {
  const std::vector<Rank> order{Rank{0}, Rank{2}, Rank{1}, Rank{3}};
  const auto network = agreed({0, 1, 0, 1}, {4, offerOf("Switch", 2)}, order);
  EXPECT_THAT(membersOf(network, order, 0), ElementsAre(Rank{0}, Rank{1}));
  EXPECT_THAT(membersOf(network, order, 1), ElementsAre(Rank{2}, Rank{3}));
  EXPECT_THAT(agreed({0, 1, 0, 1}, {4, offerOf("Switch", 2)}).obstacle,
              HasSubstr("not next to each other"));
}

TEST(Reduction, IsNoneWhereOneRankLacksIt) {
  std::vector<ReductionOffer> offers(3, offerOf("Switch", 1));
  offers[2] = comm::offerOf(Status(Code::kSystemError, "no such file"));
  EXPECT_EQ(agreed({0, 1, 2}, offers).obstacle, "rank 2 has none: no such file");
  offers[2] = {};
  EXPECT_EQ(agreed({0, 1, 2}, offers).obstacle, "NCCL_COLLNET_ENABLE is not set on rank 2");
  offers[2] = offerOf("Other", 1);
  EXPECT_EQ(agreed({0, 1, 2}, offers).obstacle, "rank 0 has Switch, rank 2 has Other");
  EXPECT_EQ(agreed({0, 1, 2}, offers).headCount, 0);
}

TEST(Reduction, GathersAndScattersWhereAllRanksHaveIt) {
  std::vector<ReductionOffer> offers(2, offerOf("Switch", 1));
  EXPECT_FALSE(agreed({0, 1}, offers).gathers);
  for (ReductionOffer& each : offers) each.gathers = each.scatters = 1;
  EXPECT_TRUE(agreed({0, 1}, offers).gathers);
  offers[1].scatters = 0;
  EXPECT_TRUE(agreed({0, 1}, offers).gathers);
  EXPECT_FALSE(agreed({0, 1}, offers).scatters);
}

TEST(Reduction, IsNotMissedWhereNobodyWantsIt) {
  EXPECT_EQ(agreed({0, 1}, {2, ReductionOffer{}}).obstacle, "");
}

TEST(Reduction, WantsAsManyHostsAsTheThresholdSays) {
  std::vector<ReductionOffer> offers(2, offerOf("Switch", 1));
  EXPECT_EQ(agreed({0, 1}, offers).headCount, 1);
  EXPECT_THAT(agreed({0, 0}, offers).obstacle, HasSubstr("1 host, and NCCL_COLLNET_NODE"));
  offers[1].nodeThreshold = 3;
  EXPECT_THAT(agreed({0, 1}, offers).obstacle, HasSubstr("2 hosts, and"));
}

}  // namespace
}  // namespace tutti::comm
