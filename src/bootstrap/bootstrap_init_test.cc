// How ranks come together, by an id or at a fixed address, and what they are told when they do not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/patience_testing.h"
#include "base/process_counts_testing.h"
#include "bootstrap/bootstrap_testing.h"
#include "bootstrap/socket.h"
#include "bootstrap/test_job.h"

namespace tutti::bootstrap {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

TEST(Bootstrap, WorksOverIpv6) {
  NetworkOptions network = loopback();
  network.family = AF_INET6;
  if (!listenOn(SocketAddress::parse("[::1]:0").value()).ok()) {
    GTEST_SKIP() << "no IPv6 loopback on this host";
  }
  TestJob job(4, 1, network);
  ASSERT_TRUE(job.madeId().ok());
  expectAllOk(job.runAll([](Bootstrap& bootstrap) { return gatherAndCheck(bootstrap, 100); }));
}

std::string freeLoopbackPort() {
  Result<UniqueFd> listener = listenOn(SocketAddress::parse("127.0.0.1:0").value());
  EXPECT_TRUE(listener.ok());
  return localAddress(listener->get()).text();
}

TEST(Bootstrap, MeetsAtAFixedAddressAgainAndAgain) {
  NetworkOptions network = loopback();
  network.commId = freeLoopbackPort();
  for (int ranksPerProcess : {1, 2, 4}) {
    TestJob job(4, ranksPerProcess, network);
    ASSERT_TRUE(job.madeId().ok());
    for (int round = 0; round < 3; ++round) {
      expectAllOk(job.runAll([](Bootstrap& bootstrap) { return gatherAndCheck(bootstrap, 10); }));
    }
  }
}

TEST(Bootstrap, TwoCommunicatorsOfOneFixedAddressDoNotMix) {
  NetworkOptions network = loopback();
  network.commId = freeLoopbackPort();
  TestJob job(3, 1, network);
  std::vector<RankResult> first = job.runAll(nullptr);
  std::vector<RankResult> second = job.runAll(nullptr);
  expectAllOk(first);
  expectAllOk(second);
  ASSERT_TRUE(first[0].bootstrap->send(Rank{1}, Tag{1}, bytesOf("first")).ok());
  ASSERT_TRUE(second[0].bootstrap->send(Rank{1}, Tag{1}, bytesOf("second")).ok());
  std::vector<std::byte> message;
  ASSERT_TRUE(second[1].bootstrap->receive(Rank{0}, Tag{1}, message).ok());
  EXPECT_EQ(textOf(message), "second");
  ASSERT_TRUE(first[1].bootstrap->receive(Rank{0}, Tag{1}, message).ok());
  EXPECT_EQ(textOf(message), "first");
}

TEST(Bootstrap, AFixedAddressOfAnotherHostIsAClearError) {
  NetworkOptions network = loopback(milliseconds(300));
  network.commId = "192.0.2.1:4242";
  TestJob job(2, 1, network);
  const std::vector<RankResult> results = job.run({0}, nullptr);
  EXPECT_EQ(results[0].status.code(), Code::kSystemError);
  EXPECT_THAT(std::string(results[0].status.message()), HasSubstr("no address of this host"));
}

TEST(Bootstrap, RefusesRanksOutOfRangeWithoutTouchingTheNetwork) {
  Directory directory;
  for (const auto& [rank, count] : {std::pair{0, 0}, {4, 4}, {-1, 4}, {0, -1}}) {
    Bootstrap::Options options;
    options.rank = Rank{rank};
    options.rankCount = count;
    const size_t before = openDescriptors();
    const auto result = Bootstrap::connect(directory, options);
    EXPECT_EQ(result.status().code(), Code::kInvalidArgument);
    EXPECT_EQ(openDescriptors(), before);
  }
}

TEST(Bootstrap, TwoProcessesWithOneRankAreBothTold) {
  TestJob job(4);
  const auto results = job.runAll(nullptr, [](int rank, Bootstrap::Options& options) {
    if (rank == 2) options.rank = Rank{1};
  });
  expectAll(results, Code::kInvalidUsage, "are rank 1 of 4: " + job.directoryOf(1).who());
}

TEST(Bootstrap, TwoThreadsWithOneRankAreBothTold) {
  TestJob job(3);
  expectAll(job.run({0, 1, 1}, nullptr), Code::kInvalidUsage, "are rank 1 of 3");
}

TEST(Bootstrap, DisagreementAboutTheRankCountNamesBothCounts) {
  TestJob job(3);
  const auto results = job.runAll(nullptr, [](int rank, Bootstrap::Options& options) {
    if (rank == 2) options.rankCount = 5;
  });
  for (const RankResult& result : results) {
    const std::string message(result.status.message());
    EXPECT_EQ(result.status.code(), Code::kInvalidUsage);
    EXPECT_THAT(message, HasSubstr("says 3"));
    EXPECT_THAT(message, HasSubstr("says 5"));
  }
}

TEST(Bootstrap, AMissingRankIsNamedToAllOthers) {
  for (int ranksPerProcess : {1, 2}) {
    withPatience(milliseconds(300), [&](milliseconds timeout) {
      TestJob job(8, ranksPerProcess, loopback(timeout));
      expectAll(job.run({0, 1, 2, 4, 6, 7}, nullptr), Code::kRemoteError,
                "ranks 3, 5 of 8 did not come within");
    });
  }
}

// It loads data, say, before it comes and before its first collective.
TEST(Bootstrap, ALivingRankIsWaitedForAsLongAsPatienceLasts) {
  withPatience(milliseconds(200), [&](milliseconds timeout) {
    NetworkOptions network = loopback(timeout);
    network.patience = std::chrono::seconds(60);
    const auto whenLate = [&](int rank) {
      if (rank == 2) pauseFor(timeout * 5 / 2);
    };
    TestJob job(3, 1, network);
    expectAllOk(job.runAll(
        [&](Bootstrap& bootstrap) {
          whenLate(index(bootstrap.rank()));
          return bootstrap.barrier();
        },
        [&](int rank, Bootstrap::Options&) { whenLate(rank); }));
  });
}

TEST(Bootstrap, PatienceWithALivingRankEnds) {
  withPatience(milliseconds(200), [&](milliseconds timeout) {
    NetworkOptions network = loopback(timeout);
    network.patience = 3 * timeout;
    TestJob job(2, 1, network);
    const Instant began = steadyClock().now();
    const auto results = job.runAll([&](Bootstrap& bootstrap) {
      if (index(bootstrap.rank()) == 1) {
        pauseFor(timeout * 5);
        return Status();
      }
      return bootstrap.barrier();
    });
    EXPECT_EQ(results[0].status.code(), Code::kRemoteError);
    EXPECT_THAT(std::string(results[0].status.message()), HasSubstr("TUTTI_INIT_TIMEOUT_MS"));
    EXPECT_GE(steadyClock().now() - began, Nanoseconds(3 * timeout));
  });
}

// Its root is there before anybody else has the id, or never again.
TEST(Bootstrap, PatienceIsNotForAnIdWhoseProcessHasEnded) {
  NetworkOptions network = loopback(milliseconds(200));
  network.patience = std::chrono::hours(1);
  TestJob job(2, 1, network);
  closeRoot(job.directoryOf(0), job.id());
  expectAll(job.run({1}, nullptr), Code::kRemoteError, "within 200 ms");
}

TEST(Bootstrap, ARankThatComesAfterTheFailureLearnsWhatHappened) {
  withPatience(milliseconds(500), [&](milliseconds timeout) {
    TestJob job(3, 1, loopback(timeout));
    expectAll(job.run({0, 1}, nullptr), Code::kRemoteError, "rank 2 of 3 did not come");
    expectAll(job.run({2}, nullptr), Code::kRemoteError, "rank 2 of 3 did not come");
  });
}

TEST(Bootstrap, AbortEndsInitAndTellsTheOthers) {
  for (int aborted : {0, 1}) {
    TestJob job(3);
    std::atomic<bool> abort{false};
    const std::shared_ptr<Root> root = job.directoryOf(0).findRoot(job.id().job);
    std::thread aborting([&] {
      while (root->presentCount() < 2) pauseFor(milliseconds(1));
      abort = true;
    });
    const auto before = steadyClock().now();
    const auto results = job.run({0, 1}, nullptr, [&](int rank, Bootstrap::Options& options) {
      if (rank == aborted) options.abort = &abort;
    });
    aborting.join();
    // The time limit is 60 s: whoever waits for it fails here.
    EXPECT_LT(steadyClock().now() - before, std::chrono::seconds(30));
    EXPECT_THAT(std::string(results[static_cast<size_t>(aborted)].status.message()),
                HasSubstr("aborted"));
    EXPECT_EQ(results[0].status.code(), Code::kRemoteError);
    EXPECT_EQ(results[1].status.code(), Code::kRemoteError);
  }
}

TEST(Bootstrap, AnIdCannotBeUsedTwice) {
  for (int ranksPerProcess : {1, 2}) {
    TestJob job(2, ranksPerProcess);
    std::vector<RankResult> first = job.runAll(nullptr);
    expectAllOk(first);
    expectAll(job.runAll(nullptr), Code::kInvalidUsage, "id already used");
    // A process that has never seen the id hears it from the root, which stays as long as its
    // communicator.
    Directory stranger;
    const auto result = Bootstrap::connect(stranger, job.optionsOf(1));
    EXPECT_THAT(std::string(result.status().message()), HasSubstr("id already used"));
    first.clear();
    expectAll(job.runAll(nullptr), Code::kInvalidUsage, "id already used");
  }
}

TEST(Bootstrap, AStaleIdNamesTheAddressAndTheLikelyCause) {
  Bootstrap::Options options;
  {
    TestJob job(2, 1, loopback(milliseconds(300)));
    options = job.optionsOf(1);
  }
  options.id.createdSeconds -= 100;
  Directory directory;
  const auto result = Bootstrap::connect(directory, options);
  EXPECT_EQ(result.status().code(), Code::kRemoteError);
  EXPECT_THAT(std::string(result.status().message()),
              HasSubstr(describe(directory.maker()) + ", which made the id (made 1"));
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("reached nobody at 127.0.0.1:"));
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("the id is stale"));
}

TEST(Bootstrap, ARankWithAnotherSecretIsTurnedAwayAndHarmsNobody) {
  TestJob job(3);
  Directory elsewhere;
  std::thread stranger([&, options = job.optionsOf(1)]() mutable {
    options.id.secret[0] ^= 1;
    const auto result = Bootstrap::connect(elsewhere, options);
    EXPECT_EQ(result.status().code(), Code::kRemoteError);
    EXPECT_THAT(std::string(result.status().message()),
                HasSubstr(describe(job.directoryOf(0).maker()) +
                          ", which made the id, turned rank 1 away"));
  });
  expectAllOk(job.run(
      {0, 2, 1}, [&](Bootstrap& bootstrap) { return bootstrap.barrier(); },
      [&](int rank, Bootstrap::Options&) {
        if (rank == 1) stranger.join();
      }));
}

}  // namespace
}  // namespace tutti::bootstrap
