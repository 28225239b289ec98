#include "schedule/catalog.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "schedule/prover.h"
#include "schedule/test_algorithms.h"

namespace tutti::schedule {
namespace {

constexpr int32_t kMostRanks = 64;

class EveryAlgorithm : public testing::TestWithParam<Algorithm> {
 protected:
  const Algorithm& algorithm() const { return GetParam(); }
  // The ranks that a proof should try as root.
  int32_t rootCount(int32_t rankCount) const {
    return hasRoot(algorithm().collective) || isPointToPoint(algorithm().collective) ? rankCount
                                                                                     : 1;
  }
  ScheduleOptions optionsFor(int32_t rankCount, int32_t root) const {
    return {.rankCount = rankCount, .root = Rank{root}, .sender = Rank{rankCount / 2}};
  }
};

INSTANTIATE_TEST_SUITE_P(Catalog, EveryAlgorithm, testing::ValuesIn(allAlgorithms()),
                         algorithmTestName);

TEST_P(EveryAlgorithm, IsProvedForUpTo64RanksEveryRootInPlaceAndNot) {
  for (int32_t n = 1; n <= kMostRanks; ++n) {
    for (int32_t root = 0; root < rootCount(n); ++root) {
      const Schedule schedule = makeSchedule(algorithm(), optionsFor(n, root));
      // Slots decide who waits, never what is read: in place, one number of them is enough. So is
      // one piece (prover.cc); for some roots more are run all the same.
      std::vector<ProofOptions> proofs{
          {.slotCount = algorithm().minSlotCount, .pieces = 1},
          {.slotCount = algorithm().minSlotCount, .pieces = 1, .inPlace = true}};
      if (root == 0 || root == n - 1) {
        proofs.push_back({.slotCount = algorithm().minSlotCount, .pieces = 3});
        proofs.push_back({.slotCount = 2, .pieces = 3, .inPlace = true});
        proofs.push_back({.slotCount = 8, .pieces = 3});
      }
      for (const ProofOptions& options : proofs) {
        const Proof proof = prove(schedule, options);
        ASSERT_TRUE(proof.ok()) << n << " ranks, root " << root << ", " << options.slotCount
                                << " slots, in place " << options.inPlace << ": " << proof.refusal;
      }
    }
  }
}

TEST_P(EveryAlgorithm, IsProvedForMoreRanksThanAMachineWordHasBits) {
  for (const int32_t n : {65, 100, 129}) {
    const Schedule schedule = makeSchedule(algorithm(), optionsFor(n, n - 1));
    EXPECT_EQ(prove(schedule, {}).refusal, "") << n;
  }
}

// Whoever follows the hosts, with every number of hosts that hold as many ranks each.
TEST(Hierarchical, IsProvedForEveryNumberOfHosts) {
  const Algorithm& algorithm = *findAlgorithm(Collective::kAllReduce, "hierarchical");
  for (int32_t n = 1; n <= kMostRanks; ++n) {
    for (int32_t hosts = 1; hosts <= n; ++hosts) {
      if (n % hosts != 0) continue;
      const Schedule schedule = makeSchedule(algorithm, {.rankCount = n, .hostCount = hosts});
      for (const bool inPlace : {false, true}) {
        const Proof proof =
            prove(schedule, {.slotCount = algorithm.minSlotCount, .inPlace = inPlace});
        ASSERT_TRUE(proof.ok()) << n << " ranks on " << hosts << " hosts: " << proof.refusal;
      }
    }
  }
}

// Proves what lags with so many slots a link, and with fewer what then does not. How many lag.
int32_t proveLags(const Algorithm& algorithm, int32_t ranks, int32_t hosts, int32_t slots) {
  const Schedule schedule =
      makeSchedule(algorithm, {.rankCount = ranks, .hostCount = hosts, .lagSlots = slots});
  for (const bool inPlace : {false, true}) {
    const Proof proof = prove(schedule, {.slotCount = slots, .inPlace = inPlace});
    EXPECT_TRUE(proof.ok()) << algorithm.name << ", " << ranks << " ranks on " << hosts
                            << " hosts, " << slots << " slots: " << proof.refusal;
  }
  return schedule.programs[0].lag() > 0 ? 1 : 0;
}

TEST(Lags, AreProvedForEveryNumberOfHosts) {
  int32_t lagging = 0;
  for (const auto& [collective, name] : {std::pair{Collective::kAllReduce, "hierarchical"},
                                         {Collective::kAllReduce, "oneshot"},
                                         {Collective::kAllReduce, "ring"},
                                         {Collective::kAllGather, "ring"},
                                         {Collective::kReduceScatter, "ring"}}) {
    const Algorithm& algorithm = *findAlgorithm(collective, name);
    for (int32_t ranks = 2; ranks <= 16; ++ranks) {
      for (int32_t hosts = 2; hosts <= ranks; ++hosts) {
        if (ranks % hosts != 0) continue;
        for (const int32_t slots : {algorithm.minSlotCount, 5, 9})
          lagging += proveLags(algorithm, ranks, hosts, slots);
      }
    }
    // With what sockets' links have. The proof runs as many pieces as messages lag.
    for (int32_t ranks = 17; ranks <= kMostRanks; ++ranks)
      lagging += ranks % 2 == 0 ? proveLags(algorithm, ranks, 2, 5) : 0;
  }
  EXPECT_GT(lagging, 300);
}

TEST(Lags, GrowByOneForEachLinkBetweenHosts) {
  const ScheduleOptions options{.rankCount = 4, .hostCount = 2, .lagSlots = 5};
  EXPECT_EQ(describeAll(ringAllGather(options, Rank{0})),
            (std::vector<std::string>{
                "chunk 0: in[0] -> out[0], link->1",
                "chunk 3: link<-3 -> out[3], link->1, 1 behind",
                "chunk 2: link<-3 -> out[2], link->1, 1 behind",
                "chunk 1: link<-3 -> out[1], 2 behind",
            }));
  EXPECT_EQ(describeAll(hierarchicalAllReduce(options, Rank{1})),
            (std::vector<std::string>{
                "chunk 2: in[2] -> link->0",
                "chunk 3: link<-0 + in[3] -> link->3",
                "chunk 0: in[0] -> link->0, 1 behind",
                "chunk 1: link<-0 + in[1] + link<-3 -> out[1], link->3, link->0 post, 1 behind",
                "chunk 0: link<-0 -> out[0], 1 behind",
                "chunk 3: link<-3 -> out[3], link->0, 2 behind",
                "chunk 2: link<-0 -> out[2], 2 behind",
            }));
}

TEST(Rail, IsProvedForEveryNumberOfHosts) {
  const Algorithm& algorithm = *findAlgorithm(Collective::kAllToAll, "rail");
  for (int32_t n = 1; n <= kMostRanks; ++n) {
    for (int32_t hosts = 1; hosts <= n; ++hosts) {
      if (n % hosts != 0) continue;
      const Schedule schedule = makeSchedule(algorithm, {.rankCount = n, .hostCount = hosts});
      for (const bool inPlace : {false, true}) {
        const Proof proof =
            prove(schedule, {.slotCount = algorithm.minSlotCount, .pieces = 2, .inPlace = inPlace});
        ASSERT_TRUE(proof.ok()) << n << " ranks on " << hosts << " hosts: " << proof.refusal;
      }
    }
  }
}

TEST(Rail, LinksBetweenHostsJoinRanksOfOneSeat) {
  for (const int32_t hosts : {2, 3, 4}) {
    const int32_t seats = 4, n = hosts * seats;
    for (int32_t rank = 0; rank < n; ++rank) {
      const Program program = railAllToAll({.rankCount = n, .hostCount = hosts}, Rank{rank});
      int32_t across = 0;
      for (const Rank peer : program.sendsTo) {
        if (index(peer) / seats == rank / seats) continue;
        EXPECT_EQ(index(peer) % seats, rank % seats);
        ++across;
      }
      EXPECT_EQ(across, hosts - 1);
    }
  }
}

TEST(Rail, PassesOnWhatItsHostHasForItsSeat) {
  const Program program = railAllToAll({.rankCount = 4, .hostCount = 2}, Rank{1});
  EXPECT_EQ(describeAll(program), (std::vector<std::string>{
                                      "chunk 0: in[0] -> link->0",
                                      "chunk 1: in[1] -> out[1]",
                                      "chunk 0: link<-0 -> out[0]",
                                      "chunk 2: in[2] -> link->0",
                                      "chunk 3: in[3] -> link->3",
                                      "chunk 3: link<-0 -> link->3",
                                      "chunk 3: link<-3 -> out[3]",
                                      "chunk 2: link<-3 -> out[2]",
                                  }));
}

TEST(Hierarchical, IsTwoShotOnOneHostAndWithARankAHost) {
  for (int32_t n = 1; n <= 8; ++n) {
    for (const int32_t hosts : {1, n}) {
      for (int32_t rank = 0; rank < n; ++rank) {
        const ScheduleOptions options{.rankCount = n, .hostCount = hosts};
        const Program own = hierarchicalAllReduce(options, Rank{rank});
        const Program other = twoShotAllReduce(options, Rank{rank});
        ASSERT_EQ(own.steps.size(), other.steps.size());
        for (size_t i = 0; i < own.steps.size(); ++i)
          EXPECT_EQ(describe(own, own.steps[i]), describe(other, other.steps[i])) << hosts;
      }
    }
  }
}

TEST(Hierarchical, FoldsInsideAHostAndSendsEachOtherHostOneMessageAChunk) {
  const Program program = hierarchicalAllReduce({.rankCount = 4, .hostCount = 2}, Rank{1});
  EXPECT_EQ(describeAll(program),
            (std::vector<std::string>{
                "chunk 2: in[2] -> link->0",
                "chunk 3: link<-0 + in[3] -> link->3",
                "chunk 0: in[0] -> link->0",
                "chunk 1: link<-0 + in[1] + link<-3 -> out[1], link->3, link->0 post",
                "chunk 0: link<-0 -> out[0]",
                "chunk 3: link<-3 -> out[3], link->0",
                "chunk 2: link<-0 -> out[2]",
            }));
}

void expectCost(const Schedule& schedule, const Cost& said) {
  const Cost seen = costSeen(schedule);
  EXPECT_EQ(seen.steps, said.steps);
  EXPECT_EQ(seen.sentMessages, said.sentMessages);
  EXPECT_EQ(seen.receivedMessages, said.receivedMessages);
  EXPECT_EQ(prove(schedule, {.slotCount = 8}).report.hops, said.hops);
  EXPECT_EQ(seen.messages, said.messages);
  const int64_t links = said.links == 0 ? said.messages : said.links;
  EXPECT_LE(seen.links, links);
  if (schedule.algorithm != "tree" && schedule.algorithm != "pat") {
    EXPECT_EQ(seen.links, links);
  }
}

TEST_P(EveryAlgorithm, CostsWhatTheCatalogueSays) {
  for (int32_t n = 1; n <= kMostRanks; ++n) {
    SCOPED_TRACE(n);
    expectCost(makeSchedule(algorithm(), optionsFor(n, 0)), algorithm().cost(n));
  }
}

TEST(Hierarchical, CostsWhatTheCatalogueSaysOnAnyNumberOfHosts) {
  const Algorithm& algorithm = *findAlgorithm(Collective::kAllReduce, "hierarchical");
  for (int32_t n = 2; n <= 32; ++n) {
    for (int32_t hosts = 1; hosts <= n; ++hosts) {
      if (n % hosts != 0) continue;
      SCOPED_TRACE(testing::Message() << n << " ranks on " << hosts << " hosts");
      expectCost(makeSchedule(algorithm, {.rankCount = n, .hostCount = hosts}),
                 costOf(algorithm, evenSpread(n, hosts)));
    }
  }
}

TEST(Rail, CostsWhatTheCatalogueSaysOnAnyNumberOfHosts) {
  const Algorithm& algorithm = *findAlgorithm(Collective::kAllToAll, "rail");
  for (int32_t n = 2; n <= 32; ++n) {
    for (int32_t hosts = 1; hosts <= n; ++hosts) {
      if (n % hosts != 0) continue;
      SCOPED_TRACE(testing::Message() << n << " ranks on " << hosts << " hosts");
      const Schedule schedule = makeSchedule(algorithm, {.rankCount = n, .hostCount = hosts});
      Cost said = costOf(algorithm, evenSpread(n, hosts));
      const int32_t hops = prove(schedule, {.slotCount = 8}).report.hops;
      EXPECT_LE(hops, said.hops);
      if (n / hosts > 4) said.hops = hops;
      expectCost(schedule, said);
    }
  }
}

// Messages between hosts on the longest path of one piece: each rank does its steps in order, and
// what it sends waits for all that it has read.
class HostHops {
 public:
  HostHops(const Schedule& schedule, int32_t hostCount)
      : schedule_(schedule), ranksEach_(schedule.rankCount / hostCount) {}

  int32_t longest() {
    std::vector<size_t> next(schedule_.programs.size(), 0);
    std::vector<int32_t> reached(schedule_.programs.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < next.size(); ++rank) {
        const Program& program = schedule_.programs[rank];
        while (next[rank] < program.steps.size() &&
               tryStep(static_cast<int32_t>(rank), program.steps[next[rank]], reached[rank])) {
          ++next[rank];
          moved = true;
        }
      }
    }
    return *std::ranges::max_element(reached);
  }

 private:
  bool tryStep(int32_t rank, const Step& step, int32_t& reached) {
    const Program& program = schedule_.programs[static_cast<size_t>(rank)];
    const auto operands = program.allOperands(step);
    const auto linkOf = [&](size_t i) -> std::vector<int32_t>& {
      const auto position = static_cast<size_t>(operands[i].index);
      return i < step.sourceCount ? links_[{index(program.receivesFrom[position]), rank}]
                                  : links_[{rank, index(program.sendsTo[position])}];
    };
    for (size_t i = 0; i < step.sourceCount; ++i) {
      if (operands[i].place == Place::kLink && linkOf(i).empty()) return false;
    }
    for (size_t i = 0; i < size_t{step.sourceCount} + step.destinationCount; ++i) {
      if (operands[i].place != Place::kLink) continue;
      if (i < step.sourceCount) {
        reached = std::max(reached, linkOf(i).front());
        linkOf(i).erase(linkOf(i).begin());
      } else {
        const int32_t peer = index(program.sendsTo[static_cast<size_t>(operands[i].index)]);
        linkOf(i).push_back(reached + (rank / ranksEach_ != peer / ranksEach_ ? 1 : 0));
      }
    }
    return true;
  }

  const Schedule& schedule_;
  int32_t ranksEach_;
  std::map<std::pair<int32_t, int32_t>, std::vector<int32_t>> links_;
};

// Of a vector that ends after so many chunks a block.
Schedule cutAfter(Schedule schedule, int32_t chunks) {
  const int32_t chunksPerBlock = schedule.chunkCount / schedule.blockCount;
  for (Program& program : schedule.programs) {
    std::erase_if(program.steps,
                  [&](const Step& step) { return step.chunk % chunksPerBlock >= chunks; });
  }
  return schedule;
}

void expectShortCosts(const Algorithm& algorithm, const ScheduleOptions& options) {
  const Schedule schedule = makeSchedule(algorithm, options);
  for (int32_t chunks = 1; chunks < schedule.chunkCount / schedule.blockCount; ++chunks) {
    SCOPED_TRACE(testing::Message() << options.rankCount << " ranks on " << options.hostCount
                                    << " hosts, " << chunks << " chunks");
    const Cost said =
        costOf(algorithm,
               {.rankCount = options.rankCount, .hostCount = options.hostCount, .chunks = chunks});
    const Schedule cut = cutAfter(schedule, chunks);
    const Cost seen = costSeen(cut);
    EXPECT_EQ(seen.sentMessages, said.sentMessages);
    EXPECT_EQ(seen.receivedMessages, said.receivedMessages);
    EXPECT_EQ(seen.messages, said.messages);
    const int32_t hops = HostHops(cut, options.rankCount).longest();
    EXPECT_LE(hops, said.hops);
    if (algorithm.name != "pat" && algorithm.name != "hierarchical") {
      EXPECT_EQ(hops, said.hops);
    }
  }
}

TEST_P(EveryAlgorithm, CostsLessWhereChunksAreEmpty) {
  if (algorithm().reducesInNetwork()) return;  // counted whole
  for (int32_t n = 1; n <= 24; ++n) expectShortCosts(algorithm(), optionsFor(n, 0));
}

TEST(Hierarchical, CostsLessWhereChunksAreEmpty) {
  const Algorithm& algorithm = *findAlgorithm(Collective::kAllReduce, "hierarchical");
  for (int32_t n = 2; n <= 24; ++n) {
    for (int32_t hosts = 1; hosts <= n; ++hosts) {
      if (n % hosts == 0) expectShortCosts(algorithm, {.rankCount = n, .hostCount = hosts});
    }
  }
}

TEST_P(EveryAlgorithm, HopsBetweenHostsAsTheCatalogueSays) {
  if (isPointToPoint(algorithm().collective)) return;
  const auto isExact = [&](int32_t n, int32_t hosts) {
    if (algorithm().name == "pairwise" || algorithm().name == "pat") return false;
    if (algorithm().name == "rail") return n / hosts <= 4;
    const bool wantsPower = algorithm().name == "tree" || algorithm().name == "doubling";
    return !wantsPower || std::has_single_bit(static_cast<uint32_t>(n));
  };
  for (int32_t n = 2; n <= 32; ++n) {
    const Schedule schedule = makeSchedule(algorithm(), optionsFor(n, 0));
    for (int32_t hosts = 2; hosts <= n; ++hosts) {
      if (n % hosts != 0) continue;
      ScheduleOptions options = optionsFor(n, 0);
      options.hostCount = hosts;
      const Schedule followed = makeSchedule(algorithm(), options);
      const int32_t seen =
          HostHops(algorithm().followsHosts() ? followed : schedule, hosts).longest();
      const int32_t said = algorithm().hostHops(n, hosts);
      EXPECT_LE(seen, said) << n << " ranks on " << hosts << " hosts";
      if (isExact(n, hosts)) {
        EXPECT_EQ(seen, said) << n << " ranks on " << hosts << " hosts";
      }
    }
  }
}

TEST_P(EveryAlgorithm, CopiesLocallyWhenThereIsOneRank) {
  const Program program = algorithm().build({.rankCount = 1}, Rank{0});
  ASSERT_EQ(program.steps.size(), 1u);
  EXPECT_EQ(describe(program, program.steps[0]), isReduction(algorithm().collective)
                                                     ? "chunk 0: in[0] -> out[0] post"
                                                     : "chunk 0: in[0] -> out[0]");
}

TEST(Catalog, HasAnAlgorithmForEveryCollective) {
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    ASSERT_FALSE(algorithms(collective).empty()) << name(collective);
    for (const Algorithm& algorithm : algorithms(collective)) {
      EXPECT_EQ(algorithm.collective, collective);
    }
  }
}

TEST(Catalog, AsksForNoMoreSlotsThanItNeeds) {
  for (const Algorithm& algorithm : allAlgorithms()) {
    const int32_t tooFew = algorithm.minSlotCount - 1;
    if (tooFew == 0) continue;
    // On one host nobody relays, and there is no network.
    const bool isOfHosts = algorithm.relays || algorithm.reducesInNetwork();
    const Schedule schedule = makeSchedule(
        algorithm,
        {.rankCount = isOfHosts ? 12 : 4, .hostCount = isOfHosts ? 3 : 1, .headCount = 2});
    const Proof proof = prove(schedule, {.slotCount = tooFew});
    EXPECT_NE(proof.refusal.find("deadlock"), std::string::npos) << name(algorithm.collective);
  }
}

TEST(Catalog, FindsByNameInUpperAndLowerCase) {
  const Algorithm* ring = findAlgorithm(Collective::kAllReduce, "Ring");
  ASSERT_NE(ring, nullptr);
  EXPECT_EQ(ring->name, "ring");
  EXPECT_EQ(findAlgorithm(Collective::kAllReduce, "ONESHOT")->name, "oneshot");
  EXPECT_EQ(findAlgorithm(Collective::kAllReduce, "rin"), nullptr);
  EXPECT_EQ(findAlgorithm(Collective::kAllReduce, "rings"), nullptr);
  EXPECT_EQ(findAlgorithm(Collective::kBroadcast, "oneshot"), nullptr);
  EXPECT_EQ(findAlgorithm(Collective::kAllGather, "PAT")->build, patAllGather);
  EXPECT_EQ(findAlgorithm(Collective::kAllReduce, "Tree")->build, treeAllReduce);
}

TEST(Catalog, TellsTrafficAsMultiplesOfTheWholeVector) {
  EXPECT_DOUBLE_EQ(sentFactor(*findAlgorithm(Collective::kAllReduce, "ring"), 4), 1.5);
  EXPECT_DOUBLE_EQ(sentFactor(*findAlgorithm(Collective::kAllReduce, "oneshot"), 4), 3.0);
  EXPECT_DOUBLE_EQ(sentFactor(*findAlgorithm(Collective::kAllReduce, "twoshot"), 4), 1.5);
  EXPECT_DOUBLE_EQ(sentFactor(*findAlgorithm(Collective::kAllReduce, "tree"), 8), 2.0);
  EXPECT_DOUBLE_EQ(sentFactor(*findAlgorithm(Collective::kAllReduce, "doubling"), 8), 3.0);
  EXPECT_DOUBLE_EQ(sentFactor(*findAlgorithm(Collective::kBroadcast, "tree"), 64), 1.0);
  EXPECT_DOUBLE_EQ(sentFactor(*findAlgorithm(Collective::kBroadcast, "twoshot"), 7), 1.0);
  EXPECT_DOUBLE_EQ(receivedFactor(*findAlgorithm(Collective::kReduce, "twoshot"), 7), 1.0);
  EXPECT_DOUBLE_EQ(receivedFactor(*findAlgorithm(Collective::kGather, "direct"), 4), 0.75);
  EXPECT_DOUBLE_EQ(sentFactor(*findAlgorithm(Collective::kGather, "direct"), 4), 0.25);
}

TEST_P(EveryAlgorithm, IsProvedWithRanksInAnyOrder) {
  SeededRng rng(20261121);
  for (int32_t n = 1; n <= 17; ++n) {
    std::vector<Rank> order;
    for (int32_t rank = 0; rank < n; ++rank) order.push_back(Rank{rank});
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
    const Rank root{static_cast<int32_t>(rng.below(static_cast<uint64_t>(n)))};
    const Schedule schedule = makeSchedule(
        algorithm(), {.rankCount = n, .root = root, .sender = order.front(), .order = order});
    for (const bool inPlace : {false, true}) {
      const Proof proof =
          prove(schedule, {.slotCount = algorithm().minSlotCount, .inPlace = inPlace});
      ASSERT_TRUE(proof.ok()) << n << " ranks, root " << index(root) << ": " << proof.refusal;
    }
  }
}

}  // namespace
}  // namespace tutti::schedule
