#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "schedule/catalog.h"
#include "schedule/prover.h"
#include "schedule/test_algorithms.h"

namespace tutti::schedule {
namespace {

const Algorithm& chain() { return *findAlgorithm(Collective::kAllReduce, "CollnetChain"); }
const Algorithm& direct() { return *findAlgorithm(Collective::kAllReduce, "CollnetDirect"); }

const Algorithm& gather() { return *findAlgorithm(Collective::kAllGather, "CollnetDirect"); }
const Algorithm& scatter() { return *findAlgorithm(Collective::kReduceScatter, "CollnetDirect"); }

std::vector<std::string> linesOf(const Algorithm& algorithm, const ScheduleOptions& options,
                                 int32_t rank, size_t every) {
  return describeAll(buildProgram(algorithm, options, Rank{rank}), every);
}

void expectProved(const Algorithm& algorithm, const ScheduleOptions& options) {
  const Schedule schedule = makeSchedule(algorithm, options);
  for (const bool inPlace : {false, true}) {
    for (const int32_t pieces : {1, 3}) {
      const Proof proof = prove(
          schedule, {.slotCount = algorithm.minSlotCount, .pieces = pieces, .inPlace = inPlace});
      ASSERT_TRUE(proof.ok()) << algorithm.name << ", " << options.rankCount << " ranks, "
                              << options.headCount << " heads: " << proof.refusal;
    }
  }
}

TEST(InNetwork, IsProvedForEveryNumberOfHostsAndHeads) {
  for (int32_t n = 1; n <= 64; ++n) {
    for (int32_t hosts = 1; hosts <= n; ++hosts) {
      if (n % hosts != 0) continue;
      expectProved(chain(), {.rankCount = n, .hostCount = hosts});
      for (int32_t heads = 1; heads <= std::min(n / hosts, 8); ++heads)
        expectProved(direct(), {.rankCount = n, .hostCount = hosts, .headCount = heads});
    }
  }
}

TEST(InNetwork, BlocksAreProvedForEveryNumberOfHostsAndHeads) {
  for (int32_t n = 1; n <= 64; ++n) {
    for (int32_t hosts = 1; hosts <= n; ++hosts) {
      if (n % hosts != 0) continue;
      const int32_t mostHeads = n <= 24 ? 6 : 2;
      for (int32_t heads = 1; heads <= std::min(n / hosts, mostHeads); ++heads) {
        const ScheduleOptions options{.rankCount = n, .hostCount = hosts, .headCount = heads};
        expectProved(gather(), options);
        expectProved(scatter(), options);
      }
    }
  }
}

TEST(InNetwork, BlocksAreThoseOfTheRanksInAnyOrder) {
  const std::vector<Rank> order{Rank{3}, Rank{0}, Rank{5}, Rank{1}, Rank{4}, Rank{2}};
  for (const int32_t heads : {1, 2, 3}) {
    const ScheduleOptions options{
        .rankCount = 6, .order = order, .hostCount = 2, .headCount = heads};
    expectProved(gather(), options);
    expectProved(scatter(), options);
  }
}

TEST(InNetwork, IsProvedForHostsOfAllSizesAndRanksInAnyOrder) {
  const std::vector<std::vector<int32_t>> starts = {{0, 1}, {0, 3}, {0, 2, 3}, {0, 1, 5}};
  const std::vector<Rank> order{Rank{3}, Rank{6}, Rank{0}, Rank{1}, Rank{5}, Rank{2}, Rank{4}};
  for (const std::vector<int32_t>& each : starts) {
    expectProved(chain(), {.rankCount = 7, .order = order, .hostStarts = each});
    expectProved(direct(), {.rankCount = 7, .order = order, .hostStarts = each});
  }
  const std::vector<int32_t> pairs{0, 2, 5};
  expectProved(direct(), {.rankCount = 7, .order = order, .hostStarts = pairs, .headCount = 2});
}

TEST(InNetwork, NeedsTheSlotsThatTheCatalogueSays) {
  const Schedule schedule =
      makeSchedule(direct(), {.rankCount = 4, .hostCount = 2, .headCount = 2});
  EXPECT_NE(prove(schedule, {.slotCount = 3}).refusal.find("deadlock"), std::string::npos);
}

TEST(InNetwork, ChainGoesThroughTheHostToTheNetworkAndBack) {
  const ScheduleOptions options{.rankCount = 6, .hostCount = 2};
  EXPECT_EQ(linesOf(chain(), options, 0, 4),
            (std::vector<std::string>{"chunk 0: link<-1 + in[0] -> link->6",
                                      "chunk 0: link<-6 -> out[0], link->1 post"}));
  EXPECT_EQ(linesOf(chain(), options, 4, 4),
            (std::vector<std::string>{"chunk 0: link<-5 + in[0] -> link->3",
                                      "chunk 0: link<-3 -> out[0], link->5"}));
  EXPECT_EQ(linesOf(chain(), options, 6, 4),
            (std::vector<std::string>{"chunk 0: link<-0 + link<-3 -> link->0, link->3"}));
}

TEST(InNetwork, DirectHasAHeadForEachAdapter) {
  const ScheduleOptions options{.rankCount = 4, .hostCount = 2, .headCount = 2};
  EXPECT_EQ(linesOf(direct(), options, 1, 4),
            (std::vector<std::string>{
                "chunk 0: in[0] -> link->0", "chunk 1: link<-0 + in[1] -> link->5",
                "chunk 1: link<-5 -> out[1], link->0 post", "chunk 0: link<-0 -> out[0]"}));
  EXPECT_EQ(linesOf(direct(), options, 5, 4),
            (std::vector<std::string>{"chunk 1: link<-1 + link<-3 -> link->1, link->3"}));
}

TEST(InNetwork, AHeadHandsInASeatsChunkAndGetsTheOtherHosts) {
  const ScheduleOptions options{.rankCount = 4, .hostCount = 2};
  EXPECT_EQ(linesOf(gather(), options, 0, 1)[2], "chunk 0: out[0] -> link->4");
  EXPECT_THAT(linesOf(gather(), options, 0, 1),
              testing::Contains("chunk 8: link<-4 -> out[8], link->1"));
  EXPECT_THAT(linesOf(gather(), options, 1, 1), testing::Contains("chunk 8: link<-0 -> out[8]"));
  EXPECT_EQ(linesOf(gather(), options, 4, 1)[0], "chunk 0: link<-0 -> link->2");
  EXPECT_EQ(linesOf(gather(), options, 4, 1)[1], "chunk 8: link<-2 -> link->0");
}

TEST(InNetwork, AHeadHandsInAPartForEachHostAndGetsItsOwn) {
  const ScheduleOptions options{.rankCount = 4, .hostCount = 2};
  const std::vector<std::string> head = linesOf(scatter(), options, 0, 1);
  EXPECT_EQ(head[0], "chunk 0: in[0] + link<-1 -> link->4");
  EXPECT_EQ(head[1], "chunk 8: in[8] + link<-1 -> link->4");
  EXPECT_THAT(head, testing::Contains("chunk 0: link<-4 -> out[0] post"));
  EXPECT_THAT(head, testing::Contains("chunk 4: link<-4 -> link->1 post"));
  EXPECT_THAT(linesOf(scatter(), options, 1, 1), testing::Contains("chunk 4: link<-0 -> out[4]"));
  EXPECT_EQ(linesOf(scatter(), options, 4, 1)[1], "chunk 8: link<-0 + link<-2 -> link->2");
}

TEST(InNetwork, TheProverRefusesANetworkThatReturnsAHostsOwnPart) {
  Schedule schedule = makeSchedule(chain(), {.rankCount = 2, .hostCount = 2});
  ProgramBuilder network;
  for (int32_t chunk = 0; chunk < schedule.chunkCount; ++chunk) {
    for (const Rank head : {Rank{0}, Rank{1}})
      network.add(
          {.chunk = chunk, .sources = {network.from(head)}, .destinations = {network.to(head)}});
  }
  schedule.programs[2] = std::move(network).take();
  EXPECT_NE(prove(schedule, {.slotCount = 8}).refusal.find("to 1 of 2 contributions"),
            std::string::npos);
}

TEST(InNetwork, TheProverRefusesANetworkThatDividesOrIsMissing) {
  Schedule schedule = makeSchedule(chain(), {.rankCount = 2, .hostCount = 2});
  schedule.programs[2].steps[0].post = true;
  EXPECT_NE(prove(schedule, {}).refusal.find("which no network does"), std::string::npos);
  schedule.programs.pop_back();
  EXPECT_NE(prove(schedule, {}).refusal.find("2 programs for 2 ranks and 1 networks"),
            std::string::npos);
}

TEST(InNetwork, CostsWhatTheCatalogueSays) {
  for (int32_t hosts = 1; hosts <= 4; ++hosts) {
    for (int32_t each = 1; each <= 5; ++each) {
      for (int32_t heads = 1; heads <= each; ++heads) {
        const int32_t n = hosts * each;
        SCOPED_TRACE(testing::Message() << hosts << " x " << each << ", " << heads << " heads");
        const Schedule schedule =
            makeSchedule(direct(), {.rankCount = n, .hostCount = hosts, .headCount = heads});
        const Cost said = costOf(
            direct(), {.rankCount = n, .hostCount = hosts, .mostRanks = each, .headCount = heads});
        const ProofReport report = prove(schedule, {.slotCount = 8, .pieces = 1}).report;
        EXPECT_EQ(report.hops, said.hops);
        EXPECT_EQ(report.messages, said.messages);
        size_t steps = 0;
        for (int32_t rank = 0; rank < n; ++rank)
          steps = std::max(steps, schedule.programs[static_cast<size_t>(rank)].steps.size());
        EXPECT_EQ(static_cast<int32_t>(steps), said.steps);
      }
    }
  }
}

TEST(InNetwork, BlocksCostWhatTheCatalogueSays) {
  for (const Algorithm* algorithm : {&gather(), &scatter()}) {
    for (int32_t hosts = 1; hosts <= 5; ++hosts) {
      for (int32_t each = 1; each <= 6; ++each) {
        for (int32_t heads = 1; heads <= each; ++heads) {
          const int32_t n = hosts * each;
          SCOPED_TRACE(testing::Message() << name(algorithm->collective) << ", " << hosts << " x "
                                          << each << ", " << heads << " heads");
          const Schedule schedule =
              makeSchedule(*algorithm, {.rankCount = n, .hostCount = hosts, .headCount = heads});
          const Cost said =
              costOf(*algorithm,
                     {.rankCount = n, .hostCount = hosts, .mostRanks = each, .headCount = heads});
          const Cost seen = costSeen(schedule);
          EXPECT_EQ(seen.steps, said.steps);
          EXPECT_EQ(seen.sentMessages, said.sentMessages);
          EXPECT_EQ(seen.receivedMessages, said.receivedMessages);
          EXPECT_EQ(seen.messages, said.messages);
          EXPECT_EQ(seen.links, said.links);
          EXPECT_LE(prove(schedule, {.slotCount = 8, .pieces = 1}).report.hops, said.hops);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tutti::schedule
