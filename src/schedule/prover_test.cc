#include "schedule/prover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "schedule/catalog.h"

namespace tutti::schedule {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

using StepSpec = ProgramBuilder::StepSpec;

Operand in(int32_t chunk) { return ProgramBuilder::input(chunk); }
Operand out(int32_t chunk) { return ProgramBuilder::output(chunk); }

Schedule scheduleOf(Collective collective, const char* algorithm, int32_t rankCount) {
  return makeSchedule(*findAlgorithm(collective, algorithm), {.rankCount = rankCount});
}

// A schedule of one block and hand-made programs.
Schedule handMade(Collective collective, std::vector<ProgramBuilder> builders) {
  const auto n = static_cast<int32_t>(builders.size());
  const int32_t blocks = blockCount(collective, n);
  Schedule schedule{.algorithm = "test",
                    .collective = collective,
                    .rankCount = n,
                    .blockCount = blocks,
                    .chunkCount = blocks,
                    .programs = {}};
  for (ProgramBuilder& builder : builders) {
    schedule.programs.push_back(std::move(builder).take());
  }
  return schedule;
}

Step& stepOf(Schedule& schedule, size_t rank, size_t step) {
  return schedule.programs[rank].steps[step];
}
Operand& operandOf(Schedule& schedule, size_t rank, size_t step, size_t operand) {
  return schedule.programs[rank].operands[stepOf(schedule, rank, step).firstOperand + operand];
}
void eraseStep(Schedule& schedule, size_t rank, size_t step) {
  auto& steps = schedule.programs[rank].steps;
  steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(step));
}

std::string refusalOf(const Schedule& schedule, const ProofOptions& options = {}) {
  return prove(schedule, options).refusal;
}

// Two ranks that fold as told: both send their input, then fold into their output.
Schedule exchangeThenFold(const StepSpec& foldAt0, const StepSpec& foldAt1) {
  std::vector<ProgramBuilder> builders(2);
  for (int32_t rank = 0; rank < 2; ++rank) {
    ProgramBuilder& builder = builders[static_cast<size_t>(rank)];
    builder.add(
        {.chunk = 0, .sources = {in(0)}, .destinations = {out(0), builder.to(Rank{1 - rank})}});
    builder.from(Rank{1 - rank});
    builder.add(rank == 0 ? foldAt0 : foldAt1);
  }
  return handMade(Collective::kAllReduce, std::move(builders));
}

constexpr Operand kFromPeer{Place::kLink, 0};
StepSpec foldInto0(std::vector<Operand> sources, bool post = true) {
  return {.chunk = 0, .sources = std::move(sources), .destinations = {out(0)}, .post = post};
}

TEST(Prover, AcceptsAHandMadeExchange) {
  const Schedule schedule =
      exchangeThenFold(foldInto0({out(0), kFromPeer}), foldInto0({kFromPeer, out(0)}));
  const Proof proof = prove(schedule, {.slotCount = 1, .pieces = 3});
  EXPECT_EQ(proof.refusal, "");
  EXPECT_EQ(proof.report.steps, 2 * 2 * 3);
  EXPECT_EQ(proof.report.messages, 2 * 3);
  EXPECT_EQ(proof.report.hops, 1);
}

TEST(Prover, RefusesADroppedContribution) {
  // Rank 2 passes the partial on without its own input.
  Schedule schedule = scheduleOf(Collective::kReduce, "ring", 4);
  Program& middle = schedule.programs[2];
  middle.operands = {middle.operands[0], middle.operands[2]};
  middle.steps[0].sourceCount = 1;
  middle.steps[0].fold = Fold::kCopy;
  EXPECT_THAT(refusalOf(schedule),
              HasSubstr("applies the post-operation to 3 of 4 contributions to chunk 0"));
}

TEST(Prover, RefusesADoubledContribution) {
  const Schedule schedule =
      exchangeThenFold(foldInto0({in(0), out(0), kFromPeer}), foldInto0({kFromPeer, out(0)}));
  EXPECT_THAT(refusalOf(schedule),
              AllOf(StartsWith("rank 0 step 1 ("), HasSubstr("counts rank 0's chunk 0 twice")));
}

TEST(Prover, RefusesSwappedSends) {
  // The root of a scatter sends rank 1's block to rank 2 and the reverse.
  Schedule schedule = scheduleOf(Collective::kScatter, "direct", 4);
  std::swap(operandOf(schedule, 0, 0, 0), operandOf(schedule, 0, 1, 0));
  EXPECT_THAT(refusalOf(schedule), HasSubstr("holding rank 0's chunk 2, wants rank 0's chunk 1"));
}

TEST(Prover, RefusesSwappedMessagesOfDifferentLength) {
  Schedule schedule = scheduleOf(Collective::kAllReduce, "ring", 4);
  std::swap(stepOf(schedule, 1, 4), stepOf(schedule, 1, 5));
  EXPECT_THAT(refusalOf(schedule), HasSubstr("with the length of chunk"));
}

TEST(Prover, RefusesTooFewSlotsAndShowsWhoWaitsForWhom) {
  // Each rank sends two messages before it receives any.
  std::vector<ProgramBuilder> builders(2);
  for (int32_t rank = 0; rank < 2; ++rank) {
    ProgramBuilder& builder = builders[static_cast<size_t>(rank)];
    const Rank peer{1 - rank};
    for (int32_t i = 0; i < 2; ++i) {
      builder.add({.chunk = 0, .sources = {in(rank)}, .destinations = {builder.to(peer)}});
    }
    builder.add({.chunk = 0, .sources = {in(rank)}, .destinations = {out(rank)}});
    builder.add({.chunk = 0, .sources = {builder.from(peer)}, .destinations = {out(1 - rank)}});
    builder.add({.chunk = 0, .sources = {builder.from(peer)}, .destinations = {out(1 - rank)}});
  }
  // The second message overwrites the first; only the deadlock is of interest here.
  const Schedule schedule = handMade(Collective::kAllGather, std::move(builders));
  EXPECT_EQ(refusalOf(schedule, {.slotCount = 1}),
            "deadlock with 1 slots a link: rank 0 step 1 waits for a free slot on link 0->1; "
            "rank 1 step 1 waits for a free slot on link 1->0; cycle 0->1->0");
  EXPECT_THAT(refusalOf(schedule, {.slotCount = 2}), HasSubstr("overwrites output chunk"));
}

TEST(Prover, RefusesARingWithOneSlot) {
  const Schedule schedule = scheduleOf(Collective::kAllGather, "ring", 3);
  EXPECT_THAT(refusalOf(schedule, {.slotCount = 1}),
              AllOf(HasSubstr("waits for a free slot on link"), HasSubstr("cycle ")));
}

Schedule laggingSchedule() {
  return makeSchedule(*findAlgorithm(Collective::kAllReduce, "hierarchical"),
                      {.rankCount = 4, .hostCount = 2, .lagSlots = 4});
}

TEST(Prover, RunsAsManyPiecesAsStepsThatLagCanHoldUp) {
  const Schedule schedule = laggingSchedule();
  EXPECT_EQ(refusalOf(schedule, {.slotCount = 4, .pieces = 1}), "");
  const ProofReport one = prove(schedule, {.slotCount = 4, .pieces = 1}).report;
  EXPECT_EQ(one.steps, 28);
  EXPECT_EQ(one.messages, 24);
  EXPECT_EQ(one.hops, 4);
  EXPECT_THAT(refusalOf(schedule, {.slotCount = 3, .pieces = 1}),
              StartsWith("deadlock with 3 slots a link"));
}

TEST(Prover, RefusesARankThatDoesNotLagAsItsPeersDo) {
  Schedule schedule = laggingSchedule();
  for (Step& step : schedule.programs[1].steps) step.lag = 0;
  EXPECT_THAT(refusalOf(schedule, {.slotCount = 8}), HasSubstr(" of piece "));
}

TEST(Prover, RefusesALagThatFalls) {
  Schedule schedule = laggingSchedule();
  schedule.programs[2].steps.back().lag = 0;
  EXPECT_THAT(refusalOf(schedule), HasSubstr("is 0 pieces behind, the step before it 2"));
}

TEST(Prover, RefusesRanksThatReceiveBeforeTheySend) {
  std::vector<ProgramBuilder> builders(2);
  for (int32_t rank = 0; rank < 2; ++rank) {
    ProgramBuilder& builder = builders[static_cast<size_t>(rank)];
    const Rank peer{1 - rank};
    builder.add({.chunk = rank, .sources = {in(rank)}, .destinations = {out(rank)}});
    builder.add({.chunk = 0, .sources = {builder.from(peer)}, .destinations = {out(1 - rank)}});
    builder.add({.chunk = rank, .sources = {in(rank)}, .destinations = {builder.to(peer)}});
  }
  EXPECT_EQ(refusalOf(handMade(Collective::kAllGather, std::move(builders)), {.slotCount = 8}),
            "deadlock with 8 slots a link: rank 0 step 1 waits for a message from rank 1; "
            "rank 1 step 1 waits for a message from rank 0; cycle 0->1->0");
}

TEST(Prover, LeavesRanksThatOnlyWaitForTheCycleOutOfIt) {
  // Ranks 1 and 2 wait for each other, rank 0 for rank 1.
  std::vector<ProgramBuilder> builders(3);
  builders[0].add({.chunk = 0, .sources = {builders[0].from(Rank{1})}, .destinations = {out(0)}});
  for (int32_t rank = 1; rank < 3; ++rank) {
    ProgramBuilder& builder = builders[static_cast<size_t>(rank)];
    builder.add({.chunk = 0, .sources = {builder.from(Rank{3 - rank})}, .destinations = {out(0)}});
    builder.add({.chunk = 0, .sources = {out(0)}, .destinations = {builder.to(Rank{3 - rank})}});
  }
  builders[1].add({.chunk = 0, .sources = {out(0)}, .destinations = {builders[1].to(Rank{0})}});
  EXPECT_THAT(refusalOf(handMade(Collective::kBroadcast, std::move(builders))),
              AllOf(HasSubstr("cycle 1->2->1"), testing::Not(HasSubstr("rank 0 step"))));
}

TEST(Prover, RefusesAMissingReceive) {
  Schedule schedule = scheduleOf(Collective::kGather, "direct", 3);
  eraseStep(schedule, 0, 2);
  schedule.programs[0].receivesFrom.pop_back();
  EXPECT_EQ(refusalOf(schedule), "rank 2 sends 1 messages a piece to rank 0, which receives 0");
}

TEST(Prover, RefusesAMissingSend) {
  Schedule schedule = scheduleOf(Collective::kAllToAll, "pairwise", 3);
  eraseStep(schedule, 1, 0);
  EXPECT_THAT(refusalOf(schedule), HasSubstr("lists a link with rank 2 that no step uses"));
}

TEST(Prover, RefusesALinkThatOnlyOneEndKnows) {
  Schedule schedule = scheduleOf(Collective::kBroadcast, "ring", 4);
  schedule.programs[1].sendsTo[0] = Rank{3};
  EXPECT_EQ(refusalOf(schedule), "rank 1 sends 0 messages a piece to rank 2, which receives 1");
}

TEST(Prover, RefusesASelfLink) {
  Schedule schedule = scheduleOf(Collective::kBroadcast, "ring", 3);
  schedule.programs[1].sendsTo[0] = Rank{1};
  EXPECT_EQ(refusalOf(schedule), "rank 1 has a link to itself");
}

TEST(Prover, RefusesALinkToARankThatIsNotThere) {
  Schedule schedule = scheduleOf(Collective::kBroadcast, "ring", 3);
  schedule.programs[1].sendsTo[0] = Rank{3};
  EXPECT_EQ(refusalOf(schedule), "rank 1 has a link with rank 3, ranks are 0 to 2");
  schedule.programs[1].sendsTo[0] = Rank{-1};
  EXPECT_EQ(refusalOf(schedule), "rank 1 has a link with rank -1, ranks are 0 to 2");
}

TEST(Prover, RefusesTwoLinksToOnePeer) {
  Schedule schedule = scheduleOf(Collective::kScatter, "direct", 3);
  schedule.programs[0].sendsTo[1] = Rank{1};
  EXPECT_EQ(refusalOf(schedule), "rank 0 lists two links of one direction with rank 1");
}

TEST(Prover, RefusesThePostOperationNeverApplied) {
  const Schedule schedule =
      exchangeThenFold(foldInto0({out(0), kFromPeer}), foldInto0({kFromPeer, out(0)}, false));
  EXPECT_THAT(refusalOf(schedule),
              AllOf(HasSubstr("rank 1 ends with output chunk 0 holding"),
                    HasSubstr("of 2 of 2 ranks (0 1) without the post-operation")));
}

TEST(Prover, RefusesThePostOperationAppliedTwice) {
  Schedule schedule = scheduleOf(Collective::kAllReduce, "ring", 3);
  stepOf(schedule, 1, 3).post = true;
  EXPECT_THAT(refusalOf(schedule), HasSubstr("applies the post-operation twice"));
}

TEST(Prover, RefusesThePostOperationOnAPartialFold) {
  Schedule schedule = scheduleOf(Collective::kReduceScatter, "ring", 4);
  stepOf(schedule, 2, 1).post = true;
  EXPECT_THAT(refusalOf(schedule), HasSubstr("applies the post-operation to 2 of 4"));
}

TEST(Prover, RefusesThePostOperationWhereDataOnlyMoves) {
  Schedule schedule = scheduleOf(Collective::kBroadcast, "ring", 2);
  stepOf(schedule, 0, 0).post = true;
  EXPECT_THAT(refusalOf(schedule),
              HasSubstr("applies the post-operation in Broadcast, which only moves data"));
}

TEST(Prover, RefusesAReductionWhereDataOnlyMoves) {
  std::vector<ProgramBuilder> builders(1);
  builders[0].add({.chunk = 0, .sources = {in(0), in(0)}, .destinations = {out(0)}});
  EXPECT_THAT(refusalOf(handMade(Collective::kAllGather, std::move(builders))),
              HasSubstr("reduces in AllGather, which only moves data"));
}

TEST(Prover, RefusesAWrongRoot) {
  const Algorithm& ring = *findAlgorithm(Collective::kBroadcast, "ring");
  Schedule schedule = makeSchedule(ring, {.rankCount = 3, .root = Rank{1}});
  schedule.root = Rank{2};
  EXPECT_THAT(refusalOf(schedule), HasSubstr("rank 1 step 0 (chunk 0: in[0] -> out[0], link->2): "
                                             "names its input, but has none"));
  schedule.root = Rank{3};
  EXPECT_THAT(refusalOf(schedule), HasSubstr("names rank 3 as root or sender"));
}

TEST(Prover, RefusesAnotherFoldOrderOnAnotherRank) {
  const Schedule schedule =
      exchangeThenFold(foldInto0({out(0), kFromPeer}), foldInto0({out(0), kFromPeer}));
  EXPECT_THAT(refusalOf(schedule), HasSubstr("in another order than rank"));
}

TEST(Prover, RefusesAnInputFoldedUnroundedWhereOthersFoldItsCopy) {
  // A pre-multiplied sum would scale rank 0's input in place of its rounded copy.
  const Schedule schedule =
      exchangeThenFold(foldInto0({in(0), kFromPeer}), foldInto0({kFromPeer, out(0)}));
  EXPECT_THAT(refusalOf(schedule), HasSubstr("so that their bits may differ"));
}

TEST(Prover, RefusesAReadOfWhatWasOverwrittenOnlyInPlace) {
  // Receives before it sends: in place, the block to send is gone.
  Schedule schedule = scheduleOf(Collective::kAllToAll, "pairwise", 2);
  auto& steps = schedule.programs[0].steps;
  ASSERT_EQ(steps.size(), 3u);
  std::swap(steps[1], steps[2]);
  EXPECT_EQ(refusalOf(schedule), "");
  EXPECT_THAT(
      refusalOf(schedule, {.inPlace = true}),
      AllOf(StartsWith("rank 0 step 2"), HasSubstr("reads input chunk 1, which in place "
                                                   "was overwritten with rank 1's chunk 0")));
}

TEST(Prover, RefusesAReadOfOutputNeverWritten) {
  std::vector<ProgramBuilder> builders(1);
  builders[0].add({.chunk = 0, .sources = {out(0)}, .destinations = {out(0)}, .post = true});
  EXPECT_THAT(refusalOf(handMade(Collective::kAllReduce, std::move(builders))),
              HasSubstr("reads output chunk 0 before it is written"));
}

TEST(Prover, RefusesOutputNeverWritten) {
  Schedule schedule = scheduleOf(Collective::kGather, "direct", 2);
  eraseStep(schedule, 0, 0);
  EXPECT_EQ(refusalOf(schedule),
            "rank 0 ends with output chunk 0 never written, wants rank 0's chunk 0");
}

TEST(Prover, RefusesToOverwriteAFinishedChunk) {
  Schedule schedule = scheduleOf(Collective::kGather, "direct", 2);
  operandOf(schedule, 0, 1, 1) = out(0);
  EXPECT_THAT(refusalOf(schedule), HasSubstr("overwrites output chunk 0, which was finished, with "
                                             "rank 1's chunk 1"));
}

TEST(Prover, RefusesTheFoldOfDifferentChunks) {
  std::vector<ProgramBuilder> builders(2);
  for (int32_t rank = 0; rank < 2; ++rank) {
    ProgramBuilder& builder = builders[static_cast<size_t>(rank)];
    const Rank peer{1 - rank};
    builder.add({.chunk = 0, .sources = {in(0)}, .destinations = {builder.to(peer)}});
    builder.add({.chunk = 0,
                 .sources = {builder.from(peer), in(1)},
                 .destinations = {out(rank)},
                 .post = true});
  }
  EXPECT_THAT(refusalOf(handMade(Collective::kReduceScatter, std::move(builders))),
              HasSubstr("'s chunk 0 with rank "));
}

TEST(Prover, RefusesAChunkOutOfRange) {
  Schedule schedule = scheduleOf(Collective::kAllGather, "ring", 3);
  operandOf(schedule, 0, 1, 1) = out(3);
  EXPECT_THAT(refusalOf(schedule),
              HasSubstr("output chunk 3 is out of range, the buffer holds 0 to 2"));
  schedule = scheduleOf(Collective::kAllGather, "ring", 3);
  operandOf(schedule, 1, 0, 0) = in(2);
  EXPECT_THAT(refusalOf(schedule),
              HasSubstr("input chunk 2 is out of range, the buffer holds 1 to 1"));
  schedule = scheduleOf(Collective::kAllGather, "ring", 3);
  stepOf(schedule, 1, 0).chunk = -1;
  EXPECT_THAT(refusalOf(schedule), HasSubstr("chunk -1 is out of range, there are 3"));
}

TEST(Prover, RefusesOperandsOfDifferentLength) {
  Schedule schedule = scheduleOf(Collective::kAllReduce, "ring", 3);
  stepOf(schedule, 0, 0).chunk = 0;
  EXPECT_THAT(refusalOf(schedule), HasSubstr("input chunk 2 may differ in length from chunk 0"));
}

TEST(Prover, RefusesMalformedSteps) {
  const auto broken = [](auto change) {
    Schedule schedule = scheduleOf(Collective::kAllReduce, "ring", 3);
    change(schedule);
    return refusalOf(schedule);
  };
  EXPECT_THAT(broken([](Schedule& s) { stepOf(s, 0, 0).sourceCount = 0; }), HasSubstr("no source"));
  EXPECT_THAT(broken([](Schedule& s) { stepOf(s, 0, 0).destinationCount = 0; }),
              HasSubstr("no destination"));
  EXPECT_THAT(broken([](Schedule& s) { stepOf(s, 0, 1).fold = Fold::kCopy; }),
              HasSubstr("copies 2 sources"));
  EXPECT_THAT(broken([](Schedule& s) { stepOf(s, 0, 4).firstOperand = 0xffffffff; }),
              HasSubstr("its operands end at 4294967297"));
  EXPECT_THAT(broken([](Schedule& s) { operandOf(s, 0, 1, 0).index = 1; }),
              HasSubstr("names link 1, the program lists 1"));
  EXPECT_THAT(broken([](Schedule& s) { operandOf(s, 0, 4, 1) = in(1); }),
              HasSubstr("writes its input"));
  EXPECT_THAT(broken([](Schedule& s) { operandOf(s, 0, 1, 1) = operandOf(s, 0, 1, 0); }),
              HasSubstr("names an operand twice"));
}

TEST(Prover, RefusesMalformedSchedules) {
  Schedule schedule = scheduleOf(Collective::kAllGather, "ring", 3);
  schedule.programs.pop_back();
  EXPECT_EQ(refusalOf(schedule), "the schedule has 2 programs for 3 ranks");
  schedule = scheduleOf(Collective::kAllGather, "ring", 3);
  schedule.chunkCount = 4;
  EXPECT_EQ(refusalOf(schedule), "the schedule has 4 chunks, wants a multiple of its 3 blocks");
  schedule.blockCount = 1;
  EXPECT_EQ(refusalOf(schedule), "the schedule has 1 blocks, AllGather among 3 ranks has 3");
  schedule.rankCount = 0;
  EXPECT_EQ(refusalOf(schedule), "the schedule has 0 ranks, wants at least one");
  EXPECT_THAT(refusalOf(scheduleOf(Collective::kAllGather, "ring", 3), {.slotCount = 0}),
              HasSubstr("cannot prove with 0 slots"));
}

}  // namespace
}  // namespace tutti::schedule
