#include "schedule/schedule.h"

#include <gtest/gtest.h>

namespace tutti::schedule {
namespace {

TEST(Blocks, AreOneARankWhereRanksHoldDifferentData) {
  EXPECT_EQ(blockCount(Collective::kAllReduce, 5), 1);
  EXPECT_EQ(blockCount(Collective::kBroadcast, 5), 1);
  EXPECT_EQ(blockCount(Collective::kReduce, 5), 1);
  EXPECT_EQ(blockCount(Collective::kSend, 5), 1);
  EXPECT_EQ(blockCount(Collective::kAllGather, 5), 5);
  EXPECT_EQ(blockCount(Collective::kReduceScatter, 5), 5);
  EXPECT_EQ(blockCount(Collective::kAllToAll, 5), 5);
  EXPECT_EQ(blockCount(Collective::kGather, 5), 5);
  EXPECT_EQ(blockCount(Collective::kScatter, 5), 5);
}

TEST(Blocks, AreTheRanksOwnInTheBufferThatHoldsOne) {
  EXPECT_EQ(firstInputBlock(Collective::kAllGather, Rank{3}), 3);
  EXPECT_EQ(firstInputBlock(Collective::kGather, Rank{3}), 3);
  EXPECT_EQ(firstInputBlock(Collective::kReduceScatter, Rank{3}), 0);
  EXPECT_EQ(firstOutputBlock(Collective::kReduceScatter, Rank{3}), 3);
  EXPECT_EQ(firstOutputBlock(Collective::kScatter, Rank{3}), 3);
  EXPECT_EQ(firstOutputBlock(Collective::kAllGather, Rank{3}), 0);
  EXPECT_EQ(firstOutputBlock(Collective::kAllToAll, Rank{3}), 0);
}

TEST(Buffers, BelongToTheRootAloneWhereOthersHaveNone) {
  const Peers peers{.root = Rank{1}, .sender = Rank{2}};
  EXPECT_TRUE(hasInput(Collective::kBroadcast, peers, Rank{1}));
  EXPECT_FALSE(hasInput(Collective::kBroadcast, peers, Rank{2}));
  EXPECT_FALSE(hasInput(Collective::kScatter, peers, Rank{0}));
  EXPECT_TRUE(hasInput(Collective::kGather, peers, Rank{0}));
  EXPECT_FALSE(hasOutput(Collective::kReduce, peers, Rank{0}));
  EXPECT_TRUE(hasOutput(Collective::kReduce, peers, Rank{1}));
  EXPECT_FALSE(hasOutput(Collective::kGather, peers, Rank{2}));
  EXPECT_TRUE(hasInput(Collective::kSend, peers, Rank{2}));
  EXPECT_FALSE(hasInput(Collective::kSend, peers, Rank{1}));
  EXPECT_TRUE(hasOutput(Collective::kRecv, peers, Rank{1}));
  EXPECT_FALSE(hasOutput(Collective::kRecv, peers, Rank{2}));
}

TEST(ProgramBuilder, NumbersLinksInOrderOfFirstUseAndOncePerPeer) {
  ProgramBuilder builder;
  EXPECT_EQ(builder.to(Rank{7}).index, 0);
  EXPECT_EQ(builder.to(Rank{2}).index, 1);
  EXPECT_EQ(builder.to(Rank{7}).index, 0);
  EXPECT_EQ(builder.from(Rank{2}).index, 0);
  const Program program = std::move(builder).take();
  EXPECT_EQ(program.sendsTo, (std::vector<Rank>{Rank{7}, Rank{2}}));
  EXPECT_EQ(program.receivesFrom, std::vector<Rank>{Rank{2}});
}

TEST(ProgramBuilder, MakesAReductionOfSeveralSources) {
  ProgramBuilder builder;
  builder.add({.chunk = 1,
               .sources = {builder.from(Rank{3}), ProgramBuilder::input(1)},
               .destinations = {ProgramBuilder::output(1), builder.to(Rank{4})},
               .post = true});
  builder.add({.chunk = 0,
               .sources = {ProgramBuilder::input(0)},
               .destinations = {ProgramBuilder::output(0)}});
  const Program program = std::move(builder).take();
  ASSERT_EQ(program.steps.size(), 2u);
  EXPECT_EQ(program.steps[0].fold, Fold::kReduce);
  EXPECT_EQ(program.steps[1].fold, Fold::kCopy);
  EXPECT_EQ(program.steps[1].firstOperand, 4u);
  EXPECT_EQ(describe(program, program.steps[0]),
            "chunk 1: link<-3 + in[1] -> out[1], link->4 post");
  EXPECT_EQ(describe(program, program.steps[1]), "chunk 0: in[0] -> out[0]");
}

TEST(Describe, ShowsAStepThatIsOutOfRange) {
  Program program;
  program.operands = {{Place::kLink, 4}};
  const Step step{.chunk = 0, .firstOperand = 0, .sourceCount = 1, .destinationCount = 1};
  EXPECT_EQ(describe(program, step), "chunk 0: link<-?4 -> ?");
}

}  // namespace
}  // namespace tutti::schedule
