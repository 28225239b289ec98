#include "bootstrap/bootstrap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/patience_testing.h"
#include "bootstrap/bootstrap_testing.h"
#include "bootstrap/test_job.h"

namespace tutti::bootstrap {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

struct Shape {
  int rankCount;
  int ranksPerProcess;
};

class BootstrapShapes : public ::testing::TestWithParam<Shape> {};

TEST_P(BootstrapShapes, GathersFromAllRanks) {
  TestJob job(GetParam().rankCount, GetParam().ranksPerProcess);
  ASSERT_TRUE(job.madeId().ok());
  expectAllOk(job.runAll([](Bootstrap& bootstrap) -> Status {
    TUTTI_TRY(gatherAndCheck(bootstrap, 1));
    TUTTI_TRY(gatherAndCheck(bootstrap, 1003));
    TUTTI_TRY(bootstrap.barrier());
    return gatherAndCheck(bootstrap, 0);
  }));
}

INSTANTIATE_TEST_SUITE_P(Processes, BootstrapShapes,
                         ::testing::Values(Shape{1, 1}, Shape{2, 1}, Shape{3, 1}, Shape{4, 1},
                                           Shape{7, 1}, Shape{8, 1}, Shape{16, 1}, Shape{64, 1},
                                           Shape{2, 2}, Shape{3, 3}, Shape{7, 7}, Shape{64, 64},
                                           Shape{8, 4}, Shape{7, 3}, Shape{64, 8}),
                         [](const auto& shape) {
                           return fmt::format("{}RanksBy{}", shape.param.rankCount,
                                              shape.param.ranksPerProcess);
                         });

// The same body with both ranks in one process and in two.
class BootstrapPair : public ::testing::TestWithParam<int> {
 protected:
  TestJob job{2, GetParam()};
};
INSTANTIATE_TEST_SUITE_P(RanksPerProcess, BootstrapPair, ::testing::Values(1, 2));

TEST_P(BootstrapPair, KeepsUnexpectedMessagesUntilTheyAreAskedFor) {
  expectAllOk(job.runAll([](Bootstrap& bootstrap) -> Status {
    std::vector<std::byte> message;
    if (bootstrap.rank() == Rank{0}) {
      for (const auto& [tag, text] : {std::pair<uint64_t, std::string>{5, "first five"},
                                      {6, "six"},
                                      {5, "second five"},
                                      {7, ""}}) {
        TUTTI_TRY(bootstrap.send(Rank{1}, Tag{tag}, bytesOf(text)));
      }
      return bootstrap.barrier();
    }
    TUTTI_TRY(bootstrap.receive(Rank{0}, Tag{7}, message));
    EXPECT_TRUE(message.empty());
    TUTTI_TRY(bootstrap.receive(Rank{0}, Tag{6}, message));
    EXPECT_EQ(textOf(message), "six");
    for (const char* text : {"first five", "second five"}) {
      TUTTI_TRY_ASSIGN(const Progress progress, bootstrap.tryReceive(Rank{0}, Tag{5}, message));
      EXPECT_EQ(progress, Progress::kDone);
      EXPECT_EQ(textOf(message), text);
    }
    TUTTI_TRY_ASSIGN(const Progress nothing, bootstrap.tryReceive(Rank{0}, Tag{5}, message));
    EXPECT_EQ(nothing, Progress::kIdle);
    return bootstrap.barrier();
  }));
}

TEST_P(BootstrapPair, CarriesTheLargestMessageAndRefusesALargerOne) {
  expectAllOk(job.runAll([](Bootstrap& bootstrap) -> Status {
    const Rank other{1 - index(bootstrap.rank())};
    std::vector<std::byte> message(Bootstrap::kMaxMessageBytes + 1, std::byte{0x5a});
    EXPECT_EQ(bootstrap.send(other, Tag{1}, message).code(), Code::kInvalidArgument);
    message.pop_back();
    TUTTI_TRY(bootstrap.send(other, Tag{1}, message));
    std::vector<std::byte> got;
    TUTTI_TRY(bootstrap.receive(other, Tag{1}, got));
    EXPECT_EQ(got, message);
    return {};
  }));
}

TEST_P(BootstrapPair, GathersBlocksLargerThanAMessage) {
  expectAllOk(job.runAll([](Bootstrap& bootstrap) {
    return gatherAndCheck(bootstrap, 2 * Bootstrap::kMaxMessageBytes + 17);
  }));
}

TEST_P(BootstrapPair, SendsToItself) {
  expectAllOk(job.runAll([](Bootstrap& bootstrap) -> Status {
    TUTTI_TRY(bootstrap.send(bootstrap.rank(), Tag{3}, bytesOf("me")));
    std::vector<std::byte> message;
    TUTTI_TRY(bootstrap.receive(bootstrap.rank(), Tag{3}, message));
    EXPECT_EQ(textOf(message), "me");
    return {};
  }));
}

TEST_P(BootstrapPair, RefusesPeersOutOfRange) {
  expectAllOk(job.runAll([](Bootstrap& bootstrap) -> Status {
    std::vector<std::byte> message;
    for (Rank peer : {Rank{-1}, Rank{2}}) {
      EXPECT_EQ(bootstrap.send(peer, Tag{1}, {}).code(), Code::kInvalidArgument);
      EXPECT_EQ(bootstrap.receive(peer, Tag{1}, message).code(), Code::kInvalidArgument);
      EXPECT_EQ(bootstrap.tryReceive(peer, Tag{1}, message).status().code(),
                Code::kInvalidArgument);
    }
    return {};
  }));
}

TEST_P(BootstrapPair, ALeavingRanksLastMessagesStillArrive) {
  for (int round = 0; round < 20; ++round) {
    TestJob fresh(2, GetParam());
    std::vector<RankResult> results = fresh.runAll(nullptr);
    expectAllOk(results);
    ASSERT_TRUE(results[1].bootstrap->send(Rank{0}, Tag{9}, bytesOf("farewell")).ok());
    results[1].bootstrap.reset();
    std::vector<std::byte> message;
    const Status status = results[0].bootstrap->receive(Rank{1}, Tag{9}, message);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(textOf(message), "farewell");
  }
}

TEST_P(BootstrapPair, WaitingForARankThatLeftIsAnErrorThatNamesIt) {
  std::vector<RankResult> results = job.runAll(nullptr);
  expectAllOk(results);
  std::thread leaving([&] { results[1].bootstrap.reset(); });
  std::vector<std::byte> message;
  const Status status = results[0].bootstrap->receive(Rank{1}, Tag{1}, message);
  leaving.join();
  EXPECT_EQ(status.code(), Code::kRemoteError);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 (" + job.directoryOf(1).who()));
  EXPECT_THAT(std::string(status.message()), HasSubstr("receive with tag 1"));
  const Status late = results[0].bootstrap->send(Rank{1}, Tag{1}, {});
  EXPECT_EQ(late.code(), Code::kRemoteError);
}

TEST_P(BootstrapPair, WaitingForASilentRankEndsAtTheTimeLimit) {
  withPatience(milliseconds(300), [&](milliseconds timeout) {
    TestJob fresh(2, GetParam(), loopback(timeout));
    std::vector<RankResult> results = fresh.runAll(nullptr);
    expectAllOk(results);
    ASSERT_TRUE(results[0].bootstrap);
    std::vector<std::byte> message;
    const Status status = results[0].bootstrap->receive(Rank{1}, Tag{1}, message);
    EXPECT_EQ(status.code(), Code::kRemoteError);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(fmt::format("sent nothing to rank 0 within {} ms", timeout.count())));
  });
}

TEST_P(BootstrapPair, AbortEndsAWait) {
  std::atomic<bool> abort{false};
  std::vector<RankResult> results =
      job.runAll(nullptr, [&](int, Bootstrap::Options& options) { options.abort = &abort; });
  expectAllOk(results);
  std::thread aborting([&] {
    pauseFor(milliseconds(20));
    abort = true;
  });
  std::vector<std::byte> message;
  const Status status = results[0].bootstrap->receive(Rank{1}, Tag{1}, message);
  aborting.join();
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0 was aborted"));
}

TEST_P(BootstrapPair, BoundsWhatNobodyReceives) {
  std::vector<RankResult> results = job.runAll(nullptr);
  expectAllOk(results);
  const std::vector<std::byte> message(Bootstrap::kMaxMessageBytes);
  Status status;
  for (int sent = 0; sent < 200 && status.ok(); ++sent) {
    status = results[0].bootstrap->send(Rank{1}, Tag{1}, message);
  }
  EXPECT_EQ(status.code(), Code::kRemoteError);
  // Whether the sender or the receiver finds it, what came before the limit is still there.
  std::vector<std::byte> got;
  EXPECT_TRUE(results[1].bootstrap->receive(Rank{0}, Tag{1}, got).ok());
}

TEST_P(BootstrapPair, AMismatchOfBlockSizesIsAnErrorThatNamesBoth) {
  std::vector<RankResult> results = job.runAll([](Bootstrap& bootstrap) {
    const size_t blockBytes = bootstrap.rank() == Rank{0} ? 8 : 12;
    std::vector<std::byte> all(2 * blockBytes);
    return bootstrap.allGather(all, blockBytes);
  });
  EXPECT_EQ(results[0].status.code(), Code::kInvalidUsage);
  EXPECT_THAT(std::string(results[0].status.message()), HasSubstr("sent 12 bytes"));
  EXPECT_THAT(std::string(results[0].status.message()), HasSubstr("rank 0 wanted 8"));
}

}  // namespace
}  // namespace tutti::bootstrap
