#include "plan/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/units.h"
#include "plan/agreements_testing.h"
#include "plan/algorithm_filter.h"
#include "plan/plan.h"
#include "plan/tuning.h"
#include "schedule/catalog.h"

namespace tutti::plan {
namespace {

TEST(Choose, FewHopsForShortVectorsLittleTrafficForLongOnes) {
  const auto costOf = [](std::string_view algorithm) {
    return schedule::findAlgorithm(Collective::kAllReduce, algorithm)->cost(64);
  };
  const std::string_view shortOne = choose(allReduceOf(2), agreementOf(64))->algorithm;
  const std::string_view longOne = choose(allReduceOf(64_MiB), agreementOf(64))->algorithm;
  EXPECT_LE(costOf(shortOne).hops, 12) << shortOne;
  EXPECT_LE(costOf(shortOne).sentMessages, 12) << shortOne;
  EXPECT_LT(schedule::sentFactor(*schedule::findAlgorithm(Collective::kAllReduce, longOne), 64), 2)
      << longOne;
}

TEST(Choose, GoesByTheBytesOfAllBlocks) {
  const CallShape gather{.collective = Collective::kAllGather, .count = 128_KiB};
  EXPECT_EQ(vectorBytes(gather, 64), 32_MiB);
  EXPECT_EQ(vectorBytes(allReduceOf(128_KiB), 64), 512_KiB);
}

TEST(Choose, AnAllGatherWhoseSlotsNoCacheHoldsGoesRoundTheRingUnlessTheKernelReadsFast) {
  const auto chosen = [](uint64_t blockBytes, bool isReadFast) {
    Agreement agreement = agreementOf(8);
    agreement.ranksPerCpu = 4;
    agreement.readsByKernel = true;
    agreement.readsFastByKernel = isReadFast;
    return choose({.collective = Collective::kAllGather, .count = blockBytes / sizeof(float)},
                  agreement)
        ->algorithm;
  };
  EXPECT_EQ(chosen(512_KiB, false), "ring");
  EXPECT_EQ(chosen(128_KiB, false), "direct");
  EXPECT_EQ(chosen(512_KiB, true), "direct");
}

TEST(Choose, RanksThatShareCpusGoByTheirProcessorsPrices) {
  const auto chosen = [](ProcessorKind processor, double ranksPerCpu) {
    Agreement agreement = agreementOf(4);
    agreement.ranksPerCpu = ranksPerCpu;
    agreement.processor = processor;
    return choose(allReduceOf(16_KiB), agreement)->algorithm;  // 64 KiB
  };
  EXPECT_EQ(chosen(ProcessorKind::kAmdFrom26, 2), "twoshot");
  EXPECT_EQ(chosen(ProcessorKind::kOther, 2), "oneshot");
  EXPECT_EQ(chosen(ProcessorKind::kAmdFrom26, 1), chosen(ProcessorKind::kOther, 1));
}

// Long messages that a receiver might read are copies where it cannot, and still the fewest bytes.
TEST(Choose, TwoProcessesReduceALongVectorInHalvesWhetherOrNotTheKernelReads) {
  for (const bool readsByKernel : {true, false}) {
    Agreement agreement = agreementOf(2);
    agreement.readsByKernel = readsByKernel;
    EXPECT_EQ(choose(allReduceOf(256_KiB), agreement)->algorithm, "twoshot") << readsByKernel;
  }
}

TEST(Choose, SaysWhy) {
  const Choice choice = choose(allReduceOf(2), agreementOf(4)).value();
  EXPECT_THAT(choice.reason,
              testing::StartsWith(fmt::format("8 bytes on 4 ranks: {} ", choice.algorithm)));
  EXPECT_THAT(choice.reason, testing::HasSubstr(" by prices of 20"));
  EXPECT_EQ(choose(allReduceOf(2), agreementOf(4, "tree"))->reason,
            "the only one NCCL_ALGO allows");
}

TEST(Choose, TakesTheCheapestOfTheCosts) {
  for (uint64_t count = 1; count <= 16_MiB; count *= 16) {
    const std::vector<AlgorithmCost> costs = costsOf(allReduceOf(count), agreementOf(8));
    ASSERT_EQ(costs.size(), schedule::algorithms(Collective::kAllReduce).size() - 3)
        << "all but hierarchical and those that reduce in the network";
    const auto best = std::ranges::min_element(costs, {}, &AlgorithmCost::us);
    EXPECT_EQ(choose(allReduceOf(count), agreementOf(8))->algorithm, best->algorithm);
    EXPECT_GT(best->us, 0);
  }
}

TEST(Choose, GathersInTheNetworkWhereItCanAndHostsAreEven) {
  const CallShape gather{.collective = Collective::kAllGather, .count = 64};
  const CallShape scatter{.collective = Collective::kReduceScatter, .count = 64};
  const std::vector<int32_t> even{0, 0, 1, 1}, uneven{0, 0, 1};
  EXPECT_EQ(choose(gather, agreementOfHosts(even, "collnetdirect"))->algorithm, "collnetdirect");
  EXPECT_THAT(
      std::string(choose(gather, agreementOfHosts(uneven, "collnetdirect")).status().message()),
      testing::HasSubstr("no network reduces: hosts do not hold as many ranks each"));
  EXPECT_EQ(choose(gather, agreementOfHosts(uneven, "collnetdirect,ring"))->algorithm, "ring");
  EXPECT_THAT(
      std::string(choose(scatter, agreementOfHosts(even, "collnetdirect")).status().message()),
      testing::HasSubstr("Switch has no ReduceScatter on some rank"));
  Agreement all = agreementOfHosts(even, "collnetdirect");
  all.inNetwork.scatters = true;
  EXPECT_EQ(choose(scatter, all)->algorithm, "collnetdirect");
  CallShape doubles = scatter;
  doubles.type = DataType::kFloat64;
  EXPECT_THAT(std::string(choose(doubles, all).status().message()),
              testing::HasSubstr("Switch does not reduce double so"));
}

// Ranks of two hosts that all-reduce over a network of such prices.
std::string_view chosenAcross(const CostTerms& network, uint64_t count) {
  Agreement agreement = agreementOf(8);
  agreement.isOneHost = false;
  agreement.hostOf = {0, 0, 0, 0, 1, 1, 1, 1};
  agreement.tuning =
      std::make_shared<const Tuning>(Tuning{.sockets = SocketConstants{.us = network}});
  const Choice choice = choose(allReduceOf(count), agreement).value();
  Planner planner(agreement);
  EXPECT_EQ(planner.make(allReduceOf(count))->algorithm, choice.algorithm);
  EXPECT_EQ(planner.make(allReduceOf(count))->reason, choice.reason);
  return choice.algorithm;
}

TEST(Choose, GoesByTheNetworksPricesBetweenHosts) {
  const auto dear = [](CostTerm term, double us) {
    CostTerms prices{};
    prices[static_cast<size_t>(term)] = us;
    return prices;
  };
  // One hop between hosts, though doubling has two more inside.
  EXPECT_THAT(chosenAcross(dear(CostTerm::kNetHop, 1000), 16),
              testing::AnyOf("oneshot", "doubling"));
  // One chunk, which the hosts exchange once.
  EXPECT_THAT(chosenAcross(dear(CostTerm::kNetMessage, 1000), 16),
              testing::AnyOf("hierarchical", "pat"));
  // Each rank to and from one of the other host.
  EXPECT_THAT(chosenAcross(dear(CostTerm::kNetLink, 1000), 16),
              testing::AnyOf("hierarchical", "pat", "ring", "doubling"));
  // A whole vector crosses once a tree, and each tree has half of it.
  EXPECT_THAT(chosenAcross(dear(CostTerm::kNetMb, 1e6), 1_MiB),
              testing::AnyOf("ring", "tree", "hierarchical"));
  // Of what crosses only a part is folded, once.
  EXPECT_THAT(chosenAcross(dear(CostTerm::kNetFoldedMb, 1e6), 1_MiB),
              testing::AnyOf("ring", "pat", "twoshot", "hierarchical", "tree"));
}

TEST(Choose, GoesByTheMachinesPricesWhereThereAreSome) {
  Agreement agreement = agreementOf(4);
  // Hops are dear and bytes nearly free, then the other way round.
  const auto priced = [](CostTerms us) {
    CpuConstants cpu{.origin = {.date = "2031-01-02"}};
    for (const schedule::Algorithm& algorithm : schedule::algorithms(Collective::kAllReduce))
      cpu.prices.push_back({Collective::kAllReduce, {}, algorithm.name, us});
    return std::make_shared<const Tuning>(Tuning{.cpu = std::move(cpu)});
  };
  agreement.tuning = priced({0, 100, 0, 0, 1e-6, 0});
  EXPECT_EQ(choose(allReduceOf(4_MiB), agreement)->algorithm, "oneshot");
  EXPECT_THAT(choose(allReduceOf(4_MiB), agreement)->reason, testing::HasSubstr("prices of 2031"));
  agreement.tuning = priced({0, 1e-6, 1e-6, 1e-6, 100, 0});
  EXPECT_NE(choose(allReduceOf(4_MiB), agreement)->algorithm, "oneshot");
  agreement.algorithms = "oneshot,tree";
  EXPECT_EQ(choose(allReduceOf(4_MiB), agreement)->algorithm, "tree");
  // Another kind of ranks: the built-in ones.
  agreement.readsPeers = true;
  EXPECT_THAT(choose(allReduceOf(2), agreement)->reason, testing::HasSubstr("prices of 2026"));
}

TEST(Choose, SaysFromWhichSizesAnotherAlgorithmIsTaken) {
  const std::vector<Switch> switches = switchesOf(Collective::kAllReduce, agreementOf(8));
  ASSERT_GE(switches.size(), 2u);
  for (size_t i = 1; i < switches.size(); ++i) {
    EXPECT_LT(switches[i - 1].bytes, switches[i].bytes);
    EXPECT_NE(switches[i - 1].algorithm, switches[i].algorithm);
    const CallShape shape{
        .collective = Collective::kAllReduce, .type = DataType::kUint8, .count = switches[i].bytes};
    EXPECT_EQ(choose(shape, agreementOf(8))->algorithm, switches[i].algorithm);
  }
  EXPECT_EQ(switchesOf(Collective::kGather, agreementOf(8)).size(), 1u);
  EXPECT_TRUE(switchesOf(Collective::kAllReduce, agreementOf(8, "nvls")).empty());
}

// Wants one algorithm, whatever the costs.
class StubbornTuner final : public Tuner {
 public:
  explicit StubbornTuner(std::string_view wanted) : wanted_(wanted) {}
  Advice advise(const Question& question) override {
    EXPECT_FALSE(question.costs.empty());
    EXPECT_FALSE(question.chosen.empty());
    return {.algorithm = wanted_};
  }
  std::string_view name() const override { return "stubborn"; }

 private:
  std::string_view wanted_;
};

TEST(Choose, FollowsATunerThatHasAnOpinion) {
  Agreement agreement = agreementOf(4);
  const std::string_view own = choose(allReduceOf(2), agreement)->algorithm;
  const std::string_view other = own == "tree" ? "ring" : "tree";
  agreement.tuner = std::make_shared<StubbornTuner>(other);
  const Choice choice = choose(allReduceOf(2), agreement).value();
  EXPECT_EQ(choice.algorithm, other);
  EXPECT_THAT(choice.reason, testing::HasSubstr("tuner plug-in stubborn; else"));
  agreement.tuner = std::make_shared<StubbornTuner>("");
  EXPECT_EQ(choose(allReduceOf(2), agreement)->algorithm, own);
  // NCCL_ALGO comes first: nobody is asked where nothing is left to choose.
  agreement.algorithms = own;
  EXPECT_EQ(choose(allReduceOf(2), agreement)->algorithm, own);
}

TEST(Choose, LeavesOutWhatNeedsMoreSlotsThanThereAre) {
  Agreement agreement = agreementOf(4);
  agreement.geometry.slotCount = 1;
  for (const uint64_t count : {1u, 1000u, 1000000u}) {
    const std::string_view algorithm = choose(allReduceOf(count), agreement)->algorithm;
    EXPECT_EQ(schedule::findAlgorithm(Collective::kAllReduce, algorithm)->minSlotCount, 1);
  }
}

TEST(Choose, AllRanksChooseAlike) {
  for (const uint64_t count : {1u, 1000u, 5000u, 20000u, 1000000u}) {
    Agreement first = agreementOf(8);
    Agreement last = agreementOf(8);
    last.rank = Rank{7};
    EXPECT_EQ(choose(allReduceOf(count), first)->algorithm,
              choose(allReduceOf(count), last)->algorithm);
  }
}

TEST(Choose, FollowsNcclAlgo) {
  EXPECT_EQ(choose(allReduceOf(2), agreementOf(4, "Ring"))->algorithm, "ring");
  EXPECT_EQ(choose(allReduceOf(2), agreementOf(4, "Tree"))->algorithm, "tree");
  EXPECT_EQ(choose(allReduceOf(2), agreementOf(4, "PAT"))->algorithm, "pat");
  EXPECT_EQ(choose(allReduceOf(2), agreementOf(4, "allreduce:ring;oneshot"))->algorithm, "ring");
  EXPECT_EQ(choose(allReduceOf(2), agreementOf(4, "^NVLS"))->algorithm,
            choose(allReduceOf(2), agreementOf(4))->algorithm);
}

TEST(Choose, RefusesAnNcclAlgoThatLeavesNothing) {
  const Result<Choice> choice = choose(allReduceOf(2), agreementOf(4, "nvls"));
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.status().code(), Code::kInvalidUsage);
  EXPECT_THAT(std::string(choice.status().message()), testing::HasSubstr("NCCL_ALGO=nvls"));
}

TEST(Choose, NcclAlgoDoesNotTouchCollectivesWithoutAChoice) {
  const CallShape shape{.collective = Collective::kAllToAll, .count = 10};
  EXPECT_TRUE(choose(shape, agreementOf(4, "tree")).ok());
}

TEST(Choose, CrowdedBroadcastsGoRoundARingOnceAllCopiesOutgrowTheCaches) {
  const auto chosen = [](uint64_t bytes) {
    Agreement agreement = agreementOf(8);
    agreement.ranksPerCpu = 4;
    const CallShape shape{.collective = Collective::kBroadcast, .count = bytes / sizeof(float)};
    return choose(shape, agreement)->algorithm;
  };
  EXPECT_EQ(chosen(4_KiB), "direct");
  EXPECT_EQ(chosen(4_MiB), "direct");
  EXPECT_EQ(chosen(8_MiB), "ring");
  EXPECT_EQ(chosen(64_MiB), "ring");
}

TEST(Choose, CrowdedBroadcastsWithoutAnOutboxGoRoundARing) {
  Agreement agreement = agreementOf(8);
  agreement.ranksPerCpu = 4;
  const CallShape shape{.collective = Collective::kBroadcast, .count = 64_KiB};
  EXPECT_TRUE(agreement.hasOutbox());
  EXPECT_EQ(choose(shape, agreement)->algorithm, "direct");
  agreement.isOneHost = false;
  EXPECT_FALSE(agreement.hasOutbox());
  EXPECT_EQ(choose(shape, agreement)->algorithm, "ring");
  EXPECT_FALSE(agreementOf(65).hasOutbox());
}

TEST(AlgorithmFilter, TakesListsExclusionsAndRulesACollective) {
  EXPECT_TRUE(AlgorithmFilter("").allows(Collective::kAllReduce, "ring"));
  EXPECT_TRUE(AlgorithmFilter("tree, RING").allows(Collective::kAllReduce, "ring"));
  EXPECT_FALSE(AlgorithmFilter("^ring,tree").allows(Collective::kAllReduce, "ring"));
  EXPECT_FALSE(AlgorithmFilter("allreduce:oneshot").allows(Collective::kAllReduce, "ring"));
  EXPECT_TRUE(AlgorithmFilter("reduce:tree").allows(Collective::kAllReduce, "ring"));
  EXPECT_TRUE(AlgorithmFilter(";;").allows(Collective::kAllReduce, "ring"));
}

TEST(AlgorithmFilter, SpeaksOfAllToAllByNameOnly) {
  EXPECT_TRUE(AlgorithmFilter("ring").allows(Collective::kAllToAll, "direct"));
  EXPECT_TRUE(AlgorithmFilter("^direct").allows(Collective::kAllToAll, "direct"));
  EXPECT_FALSE(AlgorithmFilter("alltoall:pairwise").allows(Collective::kAllToAll, "direct"));
}

TEST(EvenHosts, AreCountedWhereEachHoldsAsManyRanksSideBySide) {
  Agreement agreement = agreementOf(4);
  EXPECT_EQ(agreement.evenHostCount(), 1) << "one host";
  agreement.hostOf = {0, 0, 1, 1};
  EXPECT_EQ(agreement.evenHostCount(), 2);
  agreement.hostOf = {0, 0, 0, 1};
  EXPECT_EQ(agreement.evenHostCount(), 1);
  agreement.hostOf = {0, 1, 2, 3};
  EXPECT_EQ(agreement.evenHostCount(), 4);
  agreement.hostOf = {0, 1, 0, 1};
  EXPECT_EQ(agreement.evenHostCount(), 1) << "ranks of a host are not neighbours";
  agreement.order = {Rank{0}, Rank{2}, Rank{1}, Rank{3}};
  EXPECT_EQ(agreement.evenHostCount(), 2) << "in the order they are";
}

TEST(Hierarchical, IsThereWhereHostsHoldSeveralRanksOrItIsAskedFor) {
  const CallShape shape{.count = 1 << 20};
  const auto has = [&](const Agreement& agreement) {
    return std::ranges::any_of(costsOf(shape, agreement), [](const AlgorithmCost& each) {
      return each.algorithm == "hierarchical" && each.us > 0;
    });
  };
  Agreement agreement = agreementOf(4);
  EXPECT_FALSE(has(agreement));
  agreement.isOneHost = false;
  agreement.hostOf = {0, 1, 2, 3};
  EXPECT_FALSE(has(agreement));
  agreement.hostOf = {0, 0, 1, 1};
  EXPECT_TRUE(has(agreement));
  agreement.hostOf = {0, 0, 0, 1};
  EXPECT_FALSE(has(agreement));
  agreement.algorithms = "hierarchical";
  EXPECT_EQ(choose(shape, agreement).value().algorithm, "hierarchical");
}

class RailChoice : public testing::Test {
 protected:
  RailChoice() {
    agreement_.isOneHost = false;
    agreement_.hostOf = {0, 0, 1, 1};
  }
  bool isOffered() const {
    return std::ranges::any_of(costsOf(shape_, agreement_), [](const AlgorithmCost& each) {
      return each.algorithm == "rail" && each.us > 0;
    });
  }
  CallShape shape_{.collective = Collective::kAllToAll, .count = 1024};
  Agreement agreement_ = agreementOf(4);
};

TEST_F(RailChoice, IsOfferedWhereHostsHoldSeveralRanksAlike) {
  EXPECT_TRUE(isOffered());
  agreement_.hostOf = {0, 0, 0, 1};
  EXPECT_FALSE(isOffered());
}

TEST_F(RailChoice, IsNotOfferedWhereNobodyMayRelay) {
  agreement_.relays = Relays::kNever;
  EXPECT_FALSE(isOffered());
  agreement_.algorithms = "alltoall:rail";
  EXPECT_THAT(std::string(choose(shape_, agreement_).status().message()),
              testing::HasSubstr("rail relays, which a rank's NCCL_PXN_DISABLE=1"));
}

TEST_F(RailChoice, IsTakenAtOnceWhereItIsToBeAlways) {
  agreement_.relays = Relays::kAlways;
  EXPECT_EQ(choose(shape_, agreement_).value().algorithm, "rail");
  EXPECT_EQ(choose(shape_, agreement_).value().reason, "NCCL_P2P_PXN_LEVEL=2");
  agreement_.hostOf = {0, 0, 0, 1};
  EXPECT_NE(choose(shape_, agreement_).value().algorithm, "rail");
}

}  // namespace
}  // namespace tutti::plan
