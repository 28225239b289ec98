#include "plan/cost_model.h"

#include <gmock/gmock.h>

#include "base/rng.h"
#include "base/units.h"

namespace tutti::plan {
namespace {

using testing::HasSubstr;

constexpr CostTerms kPrices = {.3, .15, .06, 250, 45};

CostTerms countsOf(const char* algorithm, const CostedCall& call) {
  return countTerms(*schedule::findAlgorithm(Collective::kAllReduce, algorithm), call);
}

TEST(CostModel, CountsWhatAScheduleDoes) {
  const CostTerms ring = countsOf("ring", {.rankCount = 4, .cpuCount = 4, .bytes = 1'000'000});
  EXPECT_EQ(ring[static_cast<size_t>(CostTerm::kHop)], 6);
  EXPECT_EQ(ring[static_cast<size_t>(CostTerm::kMessage)], 12);
  EXPECT_NEAR(ring[static_cast<size_t>(CostTerm::kSlotMb)], 1.5, 1e-9);
  // Half of the CPUs: everything twice.
  const CostTerms crowded = countsOf("ring", {.rankCount = 4, .cpuCount = 2, .bytes = 1'000'000});
  for (size_t i = 0; i < kCostTermCount; ++i) EXPECT_NEAR(crowded[i], 2 * ring[i], 1e-9);
  const CostTerms threads =
      countsOf("twoshot", {.rankCount = 4, .cpuCount = 4, .bytes = 8_MiB, .readsPeers = true});
  EXPECT_EQ(threads[static_cast<size_t>(CostTerm::kSlotMb)], 0);
  EXPECT_GT(threads[static_cast<size_t>(CostTerm::kReferencedMb)], 0);
}

std::vector<CostSample> samplesWith(double noise) {
  SeededRng rng(17);
  std::vector<CostSample> samples;
  for (const schedule::Algorithm& algorithm : schedule::algorithms(Collective::kAllReduce)) {
    for (const int32_t ranks : {2, 4, 8, 16}) {
      for (uint64_t bytes = 8; bytes <= 16_MiB; bytes *= 8) {
        for (const bool readsPeers : {false, true}) {
          CostSample sample{
              .counts = countTerms(
                  algorithm,
                  {.rankCount = ranks, .cpuCount = 8, .bytes = bytes, .readsPeers = readsPeers})};
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
  const std::vector<CostSample> odd = {{.counts = {1, 1, 2, 0, 0}, .us = 10},
                                       {.counts = {1, 8, 16, 0, 0}, .us = 2},
                                       {.counts = {1, 8, 16, 0, 0}, .us = 0}};
  for (const double each : fitPrices(odd)) EXPECT_GE(each, 0);
}

Tuning tuningOf() {
  return {.machine = "a machine with spaces",
          .date = "2026-11-21",
          .how = "tutti tune",
          .cpuCount = 4,
          .prices = {{Collective::kAllReduce, false, kPrices},
                     {Collective::kAllReduce, true, {1, 2, 3, 4, 5}}}};
}

TEST(Tuning, IsReadAsItWasWritten) {
  const Result<Tuning> read = parseTuning(writeTuning(tuningOf()), "file");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_TRUE(read.value() == tuningOf());
  EXPECT_EQ(read.value().pricesOf(Collective::kBroadcast, false), nullptr);
}

std::string refusal(const std::string& text) {
  const Result<Tuning> read = parseTuning(text, "tuning.txt");
  EXPECT_FALSE(read.ok()) << text;
  return read.ok() ? "" : std::string(read.status().message());
}

TEST(Tuning, IsRefusedWhereItGoesWrong) {
  EXPECT_THAT(refusal("<xml/>"), HasSubstr("tuning.txt:1: wanted \"tutti tuning 1\""));
  EXPECT_THAT(refusal(""), HasSubstr("no prices"));
  const std::string head = "tutti tuning 1\n";
  EXPECT_THAT(refusal(head + "colour blue\n"), HasSubstr("tuning.txt:2: \"colour\""));
  EXPECT_THAT(refusal(head + "cpus 0\n"), HasSubstr("cpus: wanted 1 to"));
  EXPECT_THAT(refusal(head + "prices Sing threads\n"), HasSubstr("\"Sing\" is no collective"));
  EXPECT_THAT(refusal(head + "prices AllReduce cores\n"), HasSubstr("wanted threads or processes"));
  EXPECT_THAT(refusal(head + "prices AllReduce threads call -1"), HasSubstr("wanted call"));
  EXPECT_THAT(refusal(head + "prices AllReduce threads call nan"), HasSubstr("wanted call"));
  EXPECT_THAT(refusal(head + "prices AllReduce threads call 1 hop 2"), HasSubstr("wanted message"));
  std::string twice = writeTuning(tuningOf());
  twice += twice.substr(twice.find("prices A"));
  EXPECT_THAT(refusal(twice), HasSubstr("have prices already"));
}

}  // namespace
}  // namespace tutti::plan
