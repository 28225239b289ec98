// The executor runs every algorithm of the catalogue right, in whatever order the ranks get to run.
#include "kernels/execution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "kernels/execution_testing.h"
#include "kernels/remote_memory_testing.h"
#include "schedule/references.h"

namespace tutti::kernels {
namespace {

TEST(Execution, RunsEveryAlgorithmInAnyInterleaving) {
  SeededRng rng(20261120);
  for (int c = 0; c < kCollectiveCount; ++c) {
    for (const Algorithm& algorithm : schedule::algorithms(static_cast<Collective>(c))) {
      for (const int32_t ranks : {1, 2, 3, 4, 5, 8, 13}) {
        for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{64}, size_t{201}}) {
          const auto root = static_cast<int32_t>(rng.below(static_cast<uint64_t>(ranks)));
          for (const uint32_t slots : {2u, 8u}) {
            if (static_cast<int32_t>(wire::capacity(slots)) < algorithm.minSlotCount) continue;
            SCOPED_TRACE(testing::Message()
                         << name(algorithm.collective) << " " << algorithm.name << " ranks "
                         << ranks << " count " << count << " root " << root << " slots " << slots);
            Cluster cluster({&algorithm, ranks, root, count, slots});
            // Twice over the same links: counters go on where they were.
            for (int times = 0; times < 2; ++times) {
              cluster.start({.streams = times == 1});
              ASSERT_TRUE(cluster.run(rng));
              cluster.check();
            }
          }
        }
      }
    }
  }
}

// Short slots and long ones, of which a piece takes either.
TEST(Execution, RunsOverLongSlots) {
  SeededRng rng(20261122);
  for (int c = 0; c < kCollectiveCount; ++c) {
    for (const Algorithm& algorithm : schedule::algorithms(static_cast<Collective>(c))) {
      for (const size_t count : {size_t{700}, size_t{9000}}) {
        SCOPED_TRACE(testing::Message()
                     << name(algorithm.collective) << " " << algorithm.name << " count " << count);
        Cluster cluster({.algorithm = &algorithm,
                         .rankCount = 4,
                         .root = 1,
                         .count = count,
                         .slotCount = 8,
                         .shortCount = 32},
                        3 * wire::kShortBytes);
        for (int times = 0; times < 3; ++times) {
          cluster.start({.streams = times == 2});
          ASSERT_TRUE(cluster.run(rng));
          cluster.check();
        }
      }
    }
  }
}

// A crew does what is long in each form of messages; two threads besides this one.
TEST(Execution, HelpersTakePartInLongSteps) {
  SeededRng rng(20261128);
  constexpr uint32_t kLongSlot = 128_KiB;
  constexpr size_t kLong = 60'001;  // several slots a rank
  const std::unique_ptr<Crew> crew = Crew::start(2, steadyClock()).value();
  for (int c = 0; c < kCollectiveCount; ++c) {
    for (const Algorithm& algorithm : schedule::algorithms(static_cast<Collective>(c))) {
      for (const bool refers : {false, true}) {
        if (refers && !(schedule::isReferable(algorithm) && readsThroughKernel())) continue;
        SCOPED_TRACE(testing::Message() << name(algorithm.collective) << " " << algorithm.name
                                        << (refers ? ", references" : ""));
        Cluster cluster({.algorithm = &algorithm,
                         .rankCount = 3,
                         .root = 1,
                         .count = kLong,
                         .slotCount = 8,
                         .mayRefer = refers},
                        kLongSlot);
        for (const bool isOther : {false, true}) {
          cluster.start(
              {.refers = refers, .streams = isOther, .isJoint = isOther, .crew = crew.get()});
          ASSERT_TRUE(cluster.run(rng));
          cluster.check();
        }
      }
    }
  }
  // Only who takes part gets its scratch.
  EXPECT_FALSE(crew->scratch(1).sources.empty() && crew->scratch(2).sources.empty());
}

// Steps that lag work on pieces before those of the others; programs that run once have none.
TEST(Execution, RunsStepsThatLag) {
  SeededRng rng(20261127);
  constexpr uint32_t kSlots = 8;
  int32_t lagging = 0;
  for (const auto collective :
       {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter}) {
    for (const Algorithm& algorithm : schedule::algorithms(collective)) {
      if (algorithm.reducesInNetwork()) continue;
      for (const auto& [ranks, hosts] :
           {std::pair{2, 2}, {4, 2}, {8, 2}, {3, 3}, {6, 3}, {4, 4}, {12, 4}, {6, 6}}) {
        for (const size_t count : {size_t{1}, size_t{8}, size_t{64}, size_t{201}, size_t{1003}}) {
          SCOPED_TRACE(testing::Message() << name(collective) << " " << algorithm.name << " ranks "
                                          << ranks << " hosts " << hosts << " count " << count);
          Cluster cluster({.algorithm = &algorithm,
                           .rankCount = ranks,
                           .root = 0,
                           .count = count,
                           .slotCount = kSlots,
                           .hostCount = hosts,
                           .lagSlots = static_cast<int32_t>(wire::capacity(kSlots))});
          lagging += cluster.rank(0).program.lag() > 0 ? 1 : 0;
          for (const bool inPlace : {false, collective == Collective::kAllReduce}) {
            cluster.start({.inPlace = inPlace});
            ASSERT_TRUE(cluster.run(rng));
            cluster.check();
          }
        }
      }
    }
  }
  EXPECT_GT(lagging, 50);
}

// What a step leaves in the output may go past the caches only where the rank does not go on with
// it.
TEST(Execution, KnowsWhichOutputsAreFinal) {
  const auto finals = [](std::string_view name) {
    for (const Algorithm& algorithm : schedule::algorithms(Collective::kAllReduce)) {
      if (algorithm.name != name) continue;
      Cluster cluster({&algorithm, 2, 0, 64, 8});
      std::vector<bool> result;
      for (const BoundStep& step : cluster.rank(0).bound.steps()) result.push_back(step.isFinal);
      return result;
    }
    return std::vector<bool>{};
  };
  EXPECT_THAT(finals("oneshot"), testing::ElementsAre(false, true));
  EXPECT_THAT(finals("twoshot"), testing::ElementsAre(true, true, true));
}

// A rank that opened a link which the other does not would wait for it for ever.
TEST(Execution, BothEndsAgreeWhetherALinkIsUsed) {
  using Pair = std::pair<int32_t, int32_t>;
  size_t unused = 0;
  for (int c = 0; c < kCollectiveCount; ++c) {
    for (const Algorithm& algorithm : schedule::algorithms(static_cast<Collective>(c))) {
      for (const int32_t ranks : {2, 3, 8, 13}) {
        for (const size_t count : {size_t{0}, size_t{1}, size_t{5}, size_t{201}}) {
          SCOPED_TRACE(testing::Message() << name(algorithm.collective) << " " << algorithm.name
                                          << " ranks " << ranks << " count " << count);
          Cluster cluster({&algorithm, ranks, 0, count, 8});
          std::set<Pair> sent;
          std::set<Pair> received;
          for (int32_t rank = 0; rank < ranks; ++rank) {
            const RankState& state = cluster.rank(rank);
            for (size_t i = 0; i < state.outgoing.size(); ++i) {
              const Pair link{rank, index(state.program.sendsTo[i])};
              if (state.outgoing[i] != nullptr) {
                sent.insert(link);
              } else {
                ++unused;
              }
            }
            for (size_t i = 0; i < state.incoming.size(); ++i) {
              if (state.incoming[i] != nullptr)
                received.emplace(index(state.program.receivesFrom[i]), rank);
            }
          }
          EXPECT_EQ(sent, received);
        }
      }
    }
  }
  EXPECT_GT(unused, 0u);
}

TEST(Execution, EachSenderRefersOrCopiesAsItLikes) {
  if (!readsThroughKernel()) GTEST_SKIP() << kNotThroughKernel;
  SeededRng rng(20261121);
  for (int c = 0; c < kCollectiveCount; ++c) {
    for (const Algorithm& algorithm : schedule::algorithms(static_cast<Collective>(c))) {
      if (!schedule::isReferable(algorithm)) continue;
      for (const int32_t ranks : {2, 3, 5}) {
        SCOPED_TRACE(testing::Message()
                     << name(algorithm.collective) << " " << algorithm.name << " ranks " << ranks);
        Cluster cluster({&algorithm, ranks, 0, 201, 2, true});
        for (int times = 0; times < 8; ++times) {
          cluster.startMixed(rng);
          ASSERT_TRUE(cluster.run(rng));
          cluster.check();
        }
      }
    }
  }
}

TEST(Execution, BothEndsCopyLongReferences) {
  if (!readsThroughKernel()) GTEST_SKIP() << kNotThroughKernel;
  SeededRng rng(20261123);
  for (int c = 0; c < kCollectiveCount; ++c) {
    for (const Algorithm& algorithm : schedule::algorithms(static_cast<Collective>(c))) {
      if (!schedule::isReferable(algorithm)) continue;
      for (const int32_t ranks : {2, 3}) {
        SCOPED_TRACE(testing::Message()
                     << name(algorithm.collective) << " " << algorithm.name << " ranks " << ranks);
        Cluster cluster({&algorithm, ranks, 0, 20'001, 2, true}, 64_KiB);
        for (int times = 0; times < 4; ++times) {
          cluster.startMixed(rng, true);
          ASSERT_TRUE(cluster.run(rng));
          cluster.check();
        }
      }
    }
  }
}

TEST(Execution, EveryRankLearnsWhetherAllAgree) {
  SeededRng rng(20261122);
  for (const Collective collective : {Collective::kAllReduce, Collective::kAllGather,
                                      Collective::kReduceScatter, Collective::kAllToAll}) {
    for (const Algorithm& algorithm : schedule::algorithms(collective)) {
      for (const int32_t ranks : {2, 3, 5, 8}) {
        Cluster cluster({&algorithm, ranks, 0, 201, 4});
        for (int32_t refusing = -1; refusing < ranks; ++refusing) {
          SCOPED_TRACE(testing::Message() << name(collective) << " " << algorithm.name << " ranks "
                                          << ranks << " refusing " << refusing);
          for (int32_t rank = 0; rank < ranks; ++rank)
            cluster.startRank(rank, 1, nullptr, {.agrees = rank != refusing});
          ASSERT_TRUE(cluster.run(rng));
          cluster.check();
          for (int32_t rank = 0; rank < ranks; ++rank)
            EXPECT_EQ(cluster.rank(rank).execution.isAgreed(), refusing < 0) << "rank " << rank;
        }
      }
    }
  }
}

TEST(Execution, SaysWhomItWaitsFor) {
  const Algorithm& broadcast = schedule::algorithms(Collective::kBroadcast)[0];
  Cluster cluster({&broadcast, 2, 0, 8, 2});
  cluster.start();
  Execution& receiver = cluster.rank(1).execution;
  EXPECT_EQ(receiver.poll().value(), Progress::kIdle);
  EXPECT_EQ(receiver.awaited().peer, 0);
  device::WaitSet waits;
  receiver.addWaits(waits);
  ASSERT_EQ(waits.count, 1u);
  EXPECT_EQ(waits.points[0].word, &cluster.rank(1).incoming[0]->view.message(0).mark);
  EXPECT_EQ(receiver.awaitedFault(), wire::LinkFault::kNone);
  cluster.rank(0).outgoing[0]->view.control->senderFault.store(1);
  EXPECT_EQ(receiver.awaitedFault(), wire::LinkFault::kAborted);
}

TEST(Execution, SaysWhetherItWaitsForOthersOnly) {
  const Algorithm* oneShot = nullptr;
  for (const Algorithm& each : schedule::algorithms(Collective::kAllReduce))
    if (each.name == "oneshot") oneShot = &each;
  Cluster cluster({oneShot, 4, 0, 8, 2});
  cluster.start();
  Execution& own = cluster.rank(1).execution;
  const std::vector<uint8_t> near{1, 1, 0, 0};
  EXPECT_FALSE(own.awaitsOthersOnly(near)) << "it has not been polled";
  EXPECT_EQ(own.poll().value(), Progress::kAdvanced);
  EXPECT_FALSE(own.awaitsOthersOnly(near)) << "rank 0 has sent nothing";
  EXPECT_EQ(cluster.rank(2).execution.poll().value(), Progress::kAdvanced);
  EXPECT_FALSE(own.awaitsOthersOnly(near));
  EXPECT_EQ(cluster.rank(0).execution.poll().value(), Progress::kAdvanced);
  EXPECT_EQ(own.poll().value(), Progress::kIdle);
  EXPECT_TRUE(own.awaitsOthersOnly(near)) << "rank 3 alone is missing";
  EXPECT_FALSE(own.awaitsOthersOnly({})) << "all are near";
  EXPECT_FALSE(own.awaitsOthersOnly(std::span(near).first(2))) << "who is not listed is near";
}

// Of a broadcast by references, begun on both ranks.
struct ReferringPair {
  ReferringPair(bool isOneProcess, bool isJoint) {
    sender.isReceiverHere = receiver.isSenderHere = isOneProcess;
    for (int32_t rank = 0; rank < 2; ++rank)
      cluster.startRank(rank, 1, nullptr, {.refers = true, .isJoint = isJoint});
  }

  Cluster cluster{{&schedule::algorithms(Collective::kBroadcast)[0], 2, 0, 20'000, 2, true},
                  256_KiB};
  wire::LinkPort& sender = *cluster.rank(0).outgoing[0];
  wire::LinkPort& receiver = *cluster.rank(1).incoming[0];
};

TEST(Execution, ReadsNothingThatAFailedSenderNames) {
  for (const bool isOneProcess : {true, false}) {
    for (const bool isJoint : {true, false}) {
      SCOPED_TRACE(testing::Message() << "one process " << isOneProcess << " joint " << isJoint);
      ReferringPair pair(isOneProcess, isJoint);
      auto& [cluster, sender, receiver] = pair;
      ASSERT_TRUE(cluster.rank(0).execution.poll().ok());
      ASSERT_EQ(receiver.view.message(0).kind, wire::MessageKind::kReference);
      const auto before = cluster.rank(1).output;
      sender.view.control->senderFault.store(1);
      for (int times = 0; times < 2; ++times) {
        EXPECT_EQ(cluster.rank(1).execution.poll().value(), Progress::kIdle);
        EXPECT_EQ(cluster.rank(1).execution.awaitedFault(), wire::LinkFault::kAborted);
        EXPECT_EQ(cluster.rank(1).execution.awaited().peer, 0);
      }
      EXPECT_EQ(cluster.rank(1).output, before);
      EXPECT_FALSE(wire::isBeingRead(sender));
    }
  }
}

// A sender that fails waits for who reads; a receiver that waits for the sender's part of a message
// that both copy may be the same thread's to go on with.
TEST(Execution, ReadsNothingWhileItWaitsForTheSendersPart) {
  ReferringPair pair(true, true);
  auto& [cluster, sender, receiver] = pair;
  ASSERT_TRUE(cluster.rank(0).execution.poll().ok());
  ASSERT_TRUE(wire::isJoint(receiver.view, receiver.view.message(0)));
  wire::jointOf(sender.view, 0).taken.fetch_add(1);  // a byte, which it does not write
  for (int times = 0; times < 2; ++times) {
    EXPECT_TRUE(cluster.rank(1).execution.poll().ok());
    EXPECT_FALSE(cluster.rank(1).isDone);
    EXPECT_NE(wire::jointOf(sender.view, 0).target.load(), 0u) << "it has come to the message";
    EXPECT_FALSE(wire::isBeingRead(sender));
  }
  sender.view.control->senderFault.store(1);
  EXPECT_EQ(cluster.rank(1).execution.poll().value(), Progress::kIdle);
  EXPECT_EQ(cluster.rank(1).execution.awaitedFault(), wire::LinkFault::kAborted);
  EXPECT_FALSE(wire::isBeingRead(sender));
}

// With others' buffers each time, beginning as calls that are run at once do: what does not end
// there goes on by polls.
TEST(Execution, RunsAgainWithOtherBuffers) {
  SeededRng rng(11);
  const auto runsAgain = [&rng](const Case& c, const Wishes& wishes) {
    SCOPED_TRACE(testing::Message() << c.algorithm->name << " of " << c.count);
    Cluster cluster(c);
    cluster.start(wishes);
    ASSERT_TRUE(cluster.run(rng));
    for (uint32_t signature = 2; signature < 6; ++signature) {
      for (int32_t rank = 0; rank < c.rankCount; ++rank) {
        RankState& state = cluster.rank(rank);
        state.output = std::vector<int64_t>(state.output.size(), -1);
        state.execution.restart({.input = reinterpret_cast<const std::byte*>(state.input.data()),
                                 .output = reinterpret_cast<std::byte*>(state.output.data()),
                                 .signature = signature});
        state.isDone = state.execution.runAtOnce(1 + signature % 3);
      }
      ASSERT_TRUE(cluster.run(rng));
      cluster.check();
    }
  };
  for (const size_t count : {3u, 8u, 50u}) {
    for (const Wishes& wishes : {Wishes{}, Wishes{.streams = true}}) {
      for (const Collective collective : {Collective::kAllReduce, Collective::kBroadcast}) {
        for (const Algorithm& algorithm : schedule::algorithms(collective))
          runsAgain({&algorithm, 4, 0, count, 8}, wishes);
      }
    }
    const Algorithm& broadcast = schedule::algorithms(Collective::kBroadcast)[0];
    if (readsThroughKernel()) runsAgain({&broadcast, 2, 0, count, 2, true}, {.refers = true});
  }
}

// A rank that agrees says so in its messages, although the run before had none to say it in.
TEST(Execution, ARankThatRunsAgainMayAgreeThen) {
  SeededRng rng(20261130);
  const Algorithm& direct = schedule::algorithms(Collective::kAllGather)[0];
  Cluster cluster({&direct, 2, 0, 50, 8});
  cluster.start();
  ASSERT_TRUE(cluster.run(rng));
  for (uint32_t agreeing = 0; agreeing < 8; ++agreeing) {
    SCOPED_TRACE(testing::Message() << "agreeing, a bit a rank: " << agreeing % 4);
    for (int32_t rank = 0; rank < 2; ++rank) {
      RankState& state = cluster.rank(rank);
      state.execution.binding().agrees = (agreeing >> rank & 1) != 0;
      state.execution.restart({.input = reinterpret_cast<const std::byte*>(state.input.data()),
                               .output = reinterpret_cast<std::byte*>(state.output.data()),
                               .signature = 2 + agreeing});
      state.isDone = state.execution.runAtOnce(1);
    }
    ASSERT_TRUE(cluster.run(rng));
    cluster.check();
    for (int32_t rank = 0; rank < 2; ++rank)
      EXPECT_EQ(cluster.rank(rank).execution.isAgreed(), agreeing % 4 == 3) << "rank " << rank;
  }
}

TEST(Execution, RefusesAMessageOfAnotherCall) {
  const Algorithm& broadcast = schedule::algorithms(Collective::kBroadcast)[0];
  Cluster cluster({&broadcast, 2, 0, 8, 2});
  cluster.startRank(0, 1);
  cluster.startRank(1, 2);
  ASSERT_TRUE(cluster.rank(0).execution.poll().ok());
  const Result<Progress> result = cluster.rank(1).execution.poll();
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::kInvalidUsage);
  EXPECT_THAT(std::string(result.status().message()),
              testing::HasSubstr("rank 0 belongs to another call"));
}

TEST(Execution, RefusesAMessageOfAnotherLength) {
  const Algorithm& broadcast = schedule::algorithms(Collective::kBroadcast)[0];
  Cluster cluster({&broadcast, 2, 0, 8, 2});
  cluster.start();
  ASSERT_TRUE(cluster.rank(0).execution.poll().ok());
  wire::LinkPort& port = *cluster.rank(1).incoming[0];
  for (const uint32_t bytes : {0u, 63u, 65u, 0xffffffffu}) {
    port.view.message(0).bytes = bytes;
    cluster.startRank(1, 1);
    EXPECT_EQ(cluster.rank(1).execution.poll().status().code(), Code::kInvalidUsage) << bytes;
  }
}

}  // namespace
}  // namespace tutti::kernels
