#include "plan/crossings.h"

#include <gtest/gtest.h>

namespace tutti::plan {
namespace {

Crossings of(Collective collective, std::string_view name, std::vector<int32_t> hostOf,
             schedule::ScheduleOptions options = {}, uint64_t bytes = 1 << 20) {
  options.rankCount = static_cast<int32_t>(hostOf.size());
  const schedule::Algorithm& algorithm = *schedule::findAlgorithm(collective, name);
  return crossingsOf(algorithm, options, hostOf,
                     schedule::chunksOf(algorithm, options.rankCount, bytes).filled);
}

const std::vector<int32_t> kTwoOfFour = {0, 0, 0, 0, 1, 1, 1, 1};

TEST(Crossings, AreNoneOnOneHost) {
  EXPECT_EQ(of(Collective::kAllReduce, "ring", {0, 0, 0}).hops, 0);
  const Crossings none = crossingsOf(*schedule::findAlgorithm(Collective::kAllReduce, "ring"),
                                     {.rankCount = 3}, {}, 3);
  EXPECT_EQ(none.hostMessages, 0);
}

TEST(Crossings, OfARingAreThoseOfItsBorders) {
  const Crossings ring = of(Collective::kAllReduce, "ring", kTwoOfFour);
  EXPECT_EQ(ring.hops, 4);
  EXPECT_EQ(ring.rankMessages, 14);  // the last rank of the host sends all of its messages out
  EXPECT_EQ(ring.hostMessages, 14);
  EXPECT_EQ(ring.hostRanks, 4);
}

TEST(Crossings, OfAllPairsAreEachToEachRankElsewhere) {
  const Crossings oneShot = of(Collective::kAllReduce, "oneshot", kTwoOfFour);
  EXPECT_EQ(oneShot.hops, 1);
  EXPECT_EQ(oneShot.rankMessages, 4);
  EXPECT_EQ(oneShot.hostMessages, 16);
  const Crossings doubling = of(Collective::kAllReduce, "doubling", kTwoOfFour);
  EXPECT_EQ(doubling.hops, 1);
  EXPECT_EQ(doubling.rankMessages, 1);
  EXPECT_EQ(doubling.hostMessages, 4);
}

TEST(Crossings, CountWhatIsFoldedAndLinks) {
  const std::vector<int32_t> kTwo = {0, 1};
  const Crossings oneShot = of(Collective::kAllReduce, "oneshot", kTwo);
  EXPECT_EQ(oneShot.hostPassages, 2);
  EXPECT_EQ(oneShot.hostFolds, 1);
  // Half of the vector is folded, the other half comes finished.
  const Crossings ring = of(Collective::kAllReduce, "ring", kTwo);
  EXPECT_EQ(ring.hostMessages, 2);
  EXPECT_EQ(ring.hostPassages, 4);
  EXPECT_EQ(ring.hostFolds, 1);
  EXPECT_EQ(ring.rankLinks, 2);
  const Crossings gather = of(Collective::kAllGather, "direct", {0, 1, 2, 3});
  EXPECT_EQ(gather.hostFolds, 0);
  EXPECT_EQ(gather.rankLinks, 6);
  EXPECT_EQ(of(Collective::kAllGather, "ring", {0, 1, 2, 3}).rankLinks, 2);
  // A root that only receives.
  const Crossings reduce = of(Collective::kReduce, "direct", {0, 1, 2});
  EXPECT_EQ(reduce.hostPassages, 2);
  EXPECT_EQ(reduce.hostFolds, 2);
  EXPECT_EQ(reduce.rankLinks, 2);
}

// 64 bytes are one chunk, whose owner gets it from all and sends it to all.
TEST(Crossings, OfAShortVectorAreThoseOfTheChunksThatItHas) {
  const Crossings one = of(Collective::kAllReduce, "twoshot", kTwoOfFour, {}, 64);
  EXPECT_EQ(one.rankMessages, 4);
  EXPECT_EQ(one.hostMessages, 4);
  EXPECT_EQ(of(Collective::kAllReduce, "twoshot", kTwoOfFour, {}, 512).hostMessages, 32);
  // Everybody's block is as long as the others', whatever its length.
  EXPECT_EQ(of(Collective::kAllGather, "ring", kTwoOfFour, {}, 64).hostMessages,
            of(Collective::kAllGather, "ring", kTwoOfFour).hostMessages);
}

TEST(Crossings, OfARootedCallAreThoseOfTheRootsHost) {
  const std::vector<int32_t> uneven = {0, 1, 1, 1};
  EXPECT_EQ(of(Collective::kBroadcast, "direct", uneven, {.root = Rank{0}}).hostMessages, 3);
  EXPECT_EQ(of(Collective::kBroadcast, "direct", uneven, {.root = Rank{2}}).hostMessages, 1);
}

TEST(Crossings, GoByTheRanksPlacesWhateverTheirNumbers) {
  const std::vector<Rank> order = {Rank{0}, Rank{2}, Rank{1}, Rank{3}};
  const std::vector<int32_t> hostOf = {0, 1, 0, 1};
  EXPECT_EQ(of(Collective::kAllGather, "ring", hostOf, {.order = order}).hostMessages, 3);
  EXPECT_EQ(of(Collective::kAllGather, "ring", hostOf).hostMessages, 6);
}

}  // namespace
}  // namespace tutti::plan
