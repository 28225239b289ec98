// What a job takes of its process and leaves there: descriptors, threads; and signals meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/time.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/few_descriptors_testing.h"
#include "base/process_counts_testing.h"
#include "bootstrap/bootstrap_testing.h"
#include "bootstrap/test_job.h"

namespace tutti::bootstrap {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

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
