#include "bootstrap/bootstrap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/time.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>

#include "base/few_descriptors_testing.h"
#include "base/patience_testing.h"
#include "base/process_counts_testing.h"
#include "bootstrap/socket.h"
#include "bootstrap/test_job.h"

namespace tutti::bootstrap {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

std::span<const std::byte> bytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}
std::string textOf(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void expectAllOk(const std::vector<RankResult>& results) {
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_TRUE(results[i].status.ok()) << i << ": " << results[i].status.message();
  }
}

// Every rank gathers what only its owner can know, in blocks of a size that is no power of two.
Status gatherAndCheck(Bootstrap& bootstrap, size_t blockBytes) {
  const auto count = static_cast<size_t>(bootstrap.rankCount());
  const auto self = static_cast<size_t>(index(bootstrap.rank()));
  std::vector<std::byte> all(count * blockBytes);
  const auto value = [](size_t rank, size_t at) {
    return static_cast<std::byte>((rank * 37 + at * 11 + 5) & 0xff);
  };
  for (size_t at = 0; at < blockBytes; ++at) all[self * blockBytes + at] = value(self, at);
  TUTTI_TRY(bootstrap.allGather(all, blockBytes));
  for (size_t rank = 0; rank < count; ++rank) {
    for (size_t at = 0; at < blockBytes; ++at) {
      if (all[rank * blockBytes + at] != value(rank, at)) {
        return internalError("rank {} has a wrong byte {} of rank {}", self, at, rank);
      }
    }
  }
  return {};
}

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

void expectAll(const std::vector<RankResult>& results, Code code, const std::string& text) {
  for (const RankResult& result : results) {
    EXPECT_EQ(result.status.code(), code);
    EXPECT_THAT(std::string(result.status.message()), HasSubstr(text));
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
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("made the id (made 1"));
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
    EXPECT_THAT(std::string(result.status().message()), HasSubstr("turned rank 1 away"));
  });
  expectAllOk(job.run(
      {0, 2, 1}, [&](Bootstrap& bootstrap) { return bootstrap.barrier(); },
      [&](int rank, Bootstrap::Options&) {
        if (rank == 1) stranger.join();
      }));
}

TEST(Bootstrap, AJobOfOneProcessNeedsNoSocket) {
  Directory directory;
  const size_t before = openDescriptors();
  const UniqueId id = makeLocalUniqueId(directory, systemRng());
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<Bootstrap>> bootstraps(8);
  for (int rank = 0; rank < 8; ++rank) {
    threads.emplace_back([&, rank] {
      Bootstrap::Options options;
      options.id = id;
      options.rank = Rank{rank};
      options.rankCount = 8;
      auto made = Bootstrap::connect(directory, options);
      ASSERT_TRUE(made.ok()) << made.status().message();
      bootstraps[static_cast<size_t>(rank)] = std::move(made).value();
      EXPECT_TRUE(gatherAndCheck(*bootstraps[static_cast<size_t>(rank)], 33).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(openDescriptors(), before);
  Directory elsewhere;
  Bootstrap::Options options;
  options.id = id;
  EXPECT_EQ(Bootstrap::connect(elsewhere, options).status().code(), Code::kInvalidUsage);
}

TEST(Bootstrap, ALocalJobOpensOnlyTheRootsSockets) {
  TestJob job(4, 4);
  const size_t before = openDescriptors();
  const auto results = job.runAll(nullptr);
  expectAllOk(results);
  EXPECT_EQ(openDescriptors(), before);
}

TEST(Bootstrap, LeavesNeitherDescriptorsNorThreads) {
  std::thread([] {}).join();  // a sanitizer adds a thread of its own beside the first one
  const size_t descriptors = openDescriptors();
  const size_t threads = runningThreads();
  for (int ranksPerProcess : {1, 2, 4}) {
    TestJob good(4, ranksPerProcess);
    expectAllOk(good.runAll([](Bootstrap& bootstrap) { return bootstrap.barrier(); }));
    TestJob failing(4, ranksPerProcess, loopback(milliseconds(100)));
    for (const RankResult& result : failing.run({0, 1, 3}, nullptr)) {
      EXPECT_FALSE(result.status.ok());
    }
  }
  EXPECT_EQ(openDescriptors(), descriptors);
  EXPECT_EQ(runningThreadsDownTo(threads), threads);
}

TEST(Bootstrap, TheLastRankOutEndsTheThreads) {
  TestJob job(4, 2);
  const size_t threads = runningThreads();
  std::vector<RankResult> results = job.runAll(nullptr);
  expectAllOk(results);
  EXPECT_GT(runningThreads(), threads);
  results.clear();
  // The root's thread has nothing left to do either.
  EXPECT_EQ(runningThreadsDownTo(threads - 1), threads - 1);
}

TEST(Bootstrap, SignalsDoNotDisturbIt) {
  struct sigaction quiet {};
  quiet.sa_handler = [](int) {};
  struct sigaction before {};
  ::sigaction(SIGALRM, &quiet, &before);
  const itimerval storm{{0, 1000}, {0, 1000}};
  const itimerval silence{};
  ::setitimer(ITIMER_REAL, &storm, nullptr);
  for (int round = 0; round < 5; ++round) {
    TestJob job(4);
    expectAllOk(job.runAll([](Bootstrap& bootstrap) { return gatherAndCheck(bootstrap, 1000); }));
  }
  ::setitimer(ITIMER_REAL, &silence, nullptr);
  ::sigaction(SIGALRM, &before, nullptr);
}

TEST(Bootstrap, WithoutDescriptorsItSaysHowManyAreAllowedAndLeaksNone) {
  Directory directory;
  // A sanitizer that meets a class for the first time needs descriptors to look at it.
  directory.findRoot(makeUniqueId(directory, loopback(), systemRng()).value().job)->leave();
  for (size_t spare = 0; spare < 9; ++spare) {
    const size_t before = openDescriptors();
    std::optional<FewDescriptors> few(spare);
    const auto id = makeUniqueId(directory, loopback(), systemRng());
    if (id.ok()) directory.findRoot(id.value().job)->leave();
    few.reset();  // a sanitizer's checks need descriptors, too
    if (!id.ok()) {
      EXPECT_THAT(std::string(id.status().message()), HasSubstr("ulimit -n"));
      EXPECT_EQ(id.status().code(), Code::kSystemError);
    }
    if (openDescriptors() > before) return;  // enough of them: the id was made
  }
  ADD_FAILURE() << "8 spare descriptors should be enough for a root";
}

}  // namespace
}  // namespace tutti::bootstrap
