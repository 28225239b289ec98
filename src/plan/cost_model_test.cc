#include "plan/cost_model.h"

#include <gmock/gmock.h>

#include "base/rng.h"
#include "base/units.h"
#include "plan/device_constants.h"

namespace tutti::plan {
namespace {

using testing::HasSubstr;

constexpr CostTerms kPrices = {.3, .15, .03, .06, 250, 100, 45};

CostTerms countsOf(const char* algorithm, const CostedCall& call) {
  return countTerms(*schedule::findAlgorithm(Collective::kAllReduce, algorithm), call);
}

TEST(CostModel, CountsWhatAScheduleDoes) {
  const CostTerms ring = countsOf("ring", {.rankCount = 4, .bytes = 1'000'000});
  EXPECT_EQ(ring[static_cast<size_t>(CostTerm::kHop)], 6);
  // Chunks of 250,000 bytes in eight pieces.
  EXPECT_EQ(ring[static_cast<size_t>(CostTerm::kMessage)], 12 * 8);
  EXPECT_EQ(ring[static_cast<size_t>(CostTerm::kLine)], 0);
  EXPECT_NEAR(ring[static_cast<size_t>(CostTerm::kSlotMb)], 1.5, 1e-9);
  // Half of the CPUs: everything twice, but for pieces, which are whole slots.
  const CostTerms crowded =
      countsOf("ring", {.rankCount = 4, .ranksPerCpu = 2, .bytes = 1'000'000});
  for (const CostTerm term : {CostTerm::kHop, CostTerm::kSlotMb})
    EXPECT_NEAR(crowded[static_cast<size_t>(term)], 2 * ring[static_cast<size_t>(term)], 1e-9);
  EXPECT_EQ(crowded[static_cast<size_t>(CostTerm::kMessage)], 2 * 12 * 4);
  const CostTerms shortest = countsOf("oneshot", {.rankCount = 4, .bytes = 40});
  EXPECT_EQ(shortest[static_cast<size_t>(CostTerm::kLine)], 6);
  EXPECT_EQ(shortest[static_cast<size_t>(CostTerm::kMessage)], 0);
  const CostTerms threads =
      countsOf("twoshot", {.rankCount = 4, .bytes = 8_MiB, .readsPeers = true});
  EXPECT_EQ(threads[static_cast<size_t>(CostTerm::kSlotMb)], 0);
  EXPECT_GT(threads[static_cast<size_t>(CostTerm::kReferencedMb)], 0);
}

TEST(CostModel, TakesARootsWorkForOneRanksOnly) {
  const schedule::Algorithm& direct = *schedule::findAlgorithm(Collective::kBroadcast, "direct");
  const auto countOf = [&](CostTerm term, const CostedCall& call) {
    return countTerms(direct, call)[static_cast<size_t>(term)];
  };
  // Seven messages are written and read. The root is busier than the ranks of any of two CPUs ...
  const CostedCall onTwo{.rankCount = 8, .ranksPerCpu = 4, .bytes = 64'000};
  EXPECT_EQ(countOf(CostTerm::kMessage, onTwo), 7);
  EXPECT_NEAR(countOf(CostTerm::kSlotMb, onTwo), 7 * .064, 1e-9);
  // ... and if there is one CPU, that does all.
  const CostedCall onOne{.rankCount = 8, .ranksPerCpu = 8, .bytes = 64'000};
  EXPECT_EQ(countOf(CostTerm::kMessage, onOne), 14);
  // References are read by the others: by each at once, or by half of them one after the other.
  CostedCall threads{.rankCount = 8, .bytes = 64'000, .readsPeers = true};
  EXPECT_NEAR(countOf(CostTerm::kReferencedMb, threads), .064, 1e-9);
  threads.ranksPerCpu = 4;
  EXPECT_NEAR(countOf(CostTerm::kReferencedMb, threads), 3.5 * .064, 1e-9);
}

TEST(CostModel, CountsMoreColdBytesWhereARankHasMoreLinks) {
  const auto coldOf = [](const char* algorithm, uint64_t bytes) {
    const CostTerms counts = countsOf(algorithm, {.rankCount = 8, .bytes = bytes});
    return counts[static_cast<size_t>(CostTerm::kColdMb)] /
           counts[static_cast<size_t>(CostTerm::kSlotMb)];
  };
  // Eight slots of a ring's link stay in a cache, those of seven links do not.
  EXPECT_LT(coldOf("ring", 1_MiB), .15);
  EXPECT_GT(coldOf("twoshot", 1_MiB), .4);
  EXPECT_LT(coldOf("twoshot", 4_KiB), .05);
}

// 64 bytes are one chunk, which its owner gets from seven others and sends to them.
TEST(CostModel, CountsTheMessagesThatAShortVectorHas) {
  const auto messagesOf = [](const char* algorithm, uint64_t bytes) {
    return countsOf(algorithm,
                    {.rankCount = 8, .bytes = bytes})[static_cast<size_t>(CostTerm::kMessage)];
  };
  EXPECT_EQ(messagesOf("twoshot", 64), 7);
  EXPECT_EQ(messagesOf("ring", 64), 3.5);
  EXPECT_EQ(messagesOf("twoshot", 512), 28);
  EXPECT_EQ(messagesOf("oneshot", 64), 14);
}

TEST(CostModel, LetsAChainWaitForItsFirstPiece) {
  const schedule::Algorithm& chain = *schedule::findAlgorithm(Collective::kBroadcast, "ring");
  const auto countOf = [&](uint64_t bytes, bool readsPeers) {
    const CostedCall call{.rankCount = 8, .bytes = bytes, .readsPeers = readsPeers};
    return countTerms(
        chain, call)[static_cast<size_t>(readsPeers ? CostTerm::kReferencedMb : CostTerm::kSlotMb)];
  };
  // A single piece is read seven times, one after the other; of eight pieces the first is.
  EXPECT_NEAR(countOf(32_KiB, true), 7 * 32_KiB / 1e6, 1e-9);
  EXPECT_NEAR(countOf(1_MiB, true), (7 + 7) / 8.0 * 1_MiB / 1e6, 1e-9);
  // What a process might read where it lies counts for three quarters.
  EXPECT_NEAR(countOf(32_KiB, false), .75 * 32_KiB / 1e6, 1e-9);
}

std::vector<CostSample> samplesWith(double noise) {
  SeededRng rng(17);
  std::vector<CostSample> samples;
  for (const schedule::Algorithm& algorithm : schedule::algorithms(Collective::kAllReduce)) {
    for (const int32_t ranks : {2, 4, 8, 16}) {
      for (uint64_t bytes = 8; bytes <= 16_MiB; bytes *= 8) {
        for (const bool readsPeers : {false, true}) {
          CostSample sample{
              .counts = countTerms(algorithm,
                                   {.rankCount = ranks, .bytes = bytes, .readsPeers = readsPeers})};
          const double factor = 1 + noise * (static_cast<double>(rng.below(2001)) / 1000 - 1);
          sample.us = predictUs({.us = kPrices}, sample.counts) * factor;
          samples.push_back(sample);
        }
      }
    }
  }
  return samples;
}

TEST(CostModel, FindsThePricesBehindMeasurements) {
  const CostTerms exact = fitPrices(samplesWith(0));
  const CostTerms noisy = fitPrices(samplesWith(.1));
  for (size_t i = 0; i < kCostTermCount; ++i) {
    EXPECT_NEAR(exact[i], kPrices[i], kPrices[i] * .01) << i;
    EXPECT_NEAR(noisy[i], kPrices[i], kPrices[i] * .25) << i;
  }
}

TEST(CostModel, GivesNoPriceBelowZeroAndBearsNothing) {
  EXPECT_EQ(fitPrices({}), CostTerms{});
  // Less for more messages, and a measurement of nothing: clock trouble.
  const std::vector<CostSample> odd = {{.counts = {1, 1, 0, 2, 0, 0}, .us = 10},
                                       {.counts = {1, 8, 0, 16, 0, 0}, .us = 2},
                                       {.counts = {1, 8, 0, 16, 0, 0}, .us = 0}};
  for (const double each : fitPrices(odd)) EXPECT_GE(each, 0);
}

TEST(CostModel, KeepsThePricesOfWhatItDidNotSeeNearTheUsualOnes) {
  const std::vector<CostSample> shortOnes = {{.counts = {1, 1, 2, 0, 0, 0}, .us = 2},
                                             {.counts = {1, 2, 4, 0, 0, 0}, .us = 3}};
  const CostTerms usual = {1, .2, .4, .5, 100, 70, 50};
  const CostTerms fitted = fitPrices(shortOnes, &usual);
  for (const CostTerm term : {CostTerm::kMessage, CostTerm::kSlotMb, CostTerm::kReferencedMb})
    EXPECT_NEAR(fitted[static_cast<size_t>(term)], usual[static_cast<size_t>(term)], 1e-6);
  for (const CostSample& each : shortOnes)
    EXPECT_NEAR(predictUs({.us = fitted}, each.counts), each.us, .05 * each.us);
}

}  // namespace
}  // namespace tutti::plan
