// Ranks that meet at several roots.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/patience_testing.h"
#include "bootstrap/split_job.h"

namespace tutti::bootstrap {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

void expectRemoteErrors(std::vector<RankResult>& results, const std::string& pattern) {
  for (RankResult& result : results) {
    EXPECT_EQ(result.status.code(), Code::kRemoteError) << result.status.message();
    EXPECT_THAT(std::string(result.status.message()), MatchesRegex(".*(" + pattern + ").*"));
  }
}

TEST(SeveralRoots, AllRanksMeetAndGather) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (int roots = 1; roots <= ranks; ++roots) {
      for (const int perProcess : {1, 3, ranks}) {
        SCOPED_TRACE(testing::Message()
                     << ranks << " ranks, " << roots << " roots, " << perProcess << " a process");
        SplitJob split(ranks, perProcess, roots);
        const auto results = split.job.runAll(gather, split.split());
        for (int rank = 0; rank < ranks; ++rank) {
          const Status& status = results[static_cast<size_t>(rank)].status;
          EXPECT_TRUE(status.ok()) << rank << ": " << status.message();
        }
      }
    }
  }
}

// Rank 5 comes when rank 3, of its process and of a group before, has met and learned of its own.
TEST(SeveralRoots, ARankMayComeLongAfterAnotherOfItsProcessHasMet) {
  SplitJob split(6, 3, 3);
  const auto results = split.job.runAll(gather, [&](int rank, Bootstrap::Options& options) {
    options.places = split.places;
    if (rank != 5) return;
    const auto others = split.job.directoryOf(2).findRoot(split.places[1].job);
    const auto mine = split.job.directoryOf(5).findRoot(split.places[2].job);
    while (others != nullptr && others->isGathering()) pauseFor(milliseconds(1));
    while (mine != nullptr && mine->presentCount() < 2) pauseFor(milliseconds(1));
    pauseFor(milliseconds(100));
  });
  for (const RankResult& result : results)
    EXPECT_TRUE(result.status.ok()) << result.status.message();
}

TEST(SeveralRoots, IdsAreUsedOnce) {
  SplitJob split(4, 2, 2);
  for (const RankResult& result : split.job.runAll(gather, split.split()))
    EXPECT_TRUE(result.status.ok()) << result.status.message();
  const auto start = steadyClock().now();
  for (const RankResult& result : split.job.runAll(gather, split.split())) {
    EXPECT_EQ(result.status.code(), Code::kInvalidUsage) << result.status.message();
    EXPECT_THAT(std::string(result.status.message()), HasSubstr("id already used"));
  }
  EXPECT_LT(steadyClock().now() - start, std::chrono::seconds(30));  // of 60
}

TEST(SeveralRoots, EachServesItsGroupAndAGuest) {
  SplitJob split(40, 2, 4);
  const auto results = split.job.runAll(
      [&](Bootstrap& bootstrap) -> Status {
        const int group = split.groups.groupOf(bootstrap.rank());
        if (index(bootstrap.rank()) != split.groups.firstOf(group)) return bootstrap.barrier();
        const auto root = split.job.directoryOf(index(bootstrap.rank()))
                              .findRoot(split.places[static_cast<size_t>(group)].job);
        EXPECT_EQ(root->presentCount(), 11u);
        return bootstrap.barrier();
      },
      split.split());
  for (const RankResult& result : results)
    EXPECT_TRUE(result.status.ok()) << result.status.message();
}

TEST(SeveralRoots, AMissingRankIsNamedToAll) {
  for (const int missing : {0, 3, 4, 6, 11}) {
    SCOPED_TRACE(missing);
    withPatience(milliseconds(1'500), [&](milliseconds timeout) {
      SplitJob split(12, 1, 3, timeout);
      const auto start = steadyClock().now();
      auto results = split.runAllBut(missing);
      EXPECT_LT(steadyClock().now() - start, timeout + std::chrono::seconds(10));
      expectRemoteErrors(results,
                         fmt::format("rank {} of 12 did not come|rank {} .*", missing, missing));
    });
  }
}

TEST(SeveralRoots, ADeadRootEndsTheJobOfAll) {
  withPatience(milliseconds(600), [&](milliseconds timeout) {
    SplitJob split(6, 1, 3, timeout);
    closeRoot(split.job.directoryOf(2), split.places[1]);
    const auto start = steadyClock().now();
    auto results = split.job.runAll(nullptr, split.split());
    EXPECT_LT(steadyClock().now() - start, timeout + std::chrono::seconds(10));
    // Where it was, or who should have met there.
    expectRemoteErrors(results, "reached nobody at|rank [2-4] ");
  });
}

// A process that has a root and no rank ends while ranks wait there.
TEST(SeveralRoots, ARootThatEndsWhileRanksWaitEndsTheJobOfAll) {
  SplitJob split(6, 1, 3);
  Directory other;
  Result<UniqueId> made = makeUniqueId(other, split.job.network(), systemRng());
  ASSERT_TRUE(made.ok());
  split.places[1] = *made;
  std::thread killer([&] {
    while (other.findRoot(made->job)->presentCount() < 2) pauseFor(milliseconds(5));
    closeRoot(other, *made);
  });
  const auto start = steadyClock().now();
  auto results = split.runAllBut(3);
  killer.join();
  EXPECT_LT(steadyClock().now() - start, std::chrono::seconds(30));  // of 60
  expectRemoteErrors(results, "the process of its root ended|rank [2-4] ");
}

// Rank 3 turns the list around, so it goes to the other group's root: before all of that group are
// there, or after. All the others hear of the lists, or miss it.
void meetWithListsThatDiffer(bool isLate, milliseconds timeout) {
  SplitJob split(4, 1, 2, timeout);
  const auto root = split.job.directoryOf(0).findRoot(split.places[0].job);
  auto results = split.job.runAll(nullptr, [&](int rank, Bootstrap::Options& options) {
    options.places = split.places;
    if (rank == 3) std::swap(options.places[0], options.places[1]);
    options.id = options.places[0];
    while (isLate && rank == 3 && root->isGathering()) pauseFor(milliseconds(1));
    while (!isLate && rank == 0 && root->presentCount() == 0) pauseFor(milliseconds(1));
  });
  EXPECT_EQ(results[3].status.code(), Code::kInvalidUsage);
  EXPECT_THAT(std::string(results[3].status.message()), HasSubstr("different lists of ids"));
  results.pop_back();
  for (const RankResult& result : results) {
    EXPECT_THAT(std::string(result.status.message()),
                MatchesRegex(".*(different lists of ids|rank 3 of 4 did not come).*"));
  }
}

TEST(SeveralRoots, ListsThatDifferAreAnErrorThatSaysSo) {
  for (const bool isLate : {false, true}) {
    SCOPED_TRACE(isLate);
    withPatience(milliseconds(2'000),
                 [&](milliseconds timeout) { meetWithListsThatDiffer(isLate, timeout); });
  }
}

// Rank 2 never comes, and rank 3 is aborted once it is a guest at the root that waits for that.
TEST(SeveralRoots, AbortEndsTheMeetingOfAll) {
  SplitJob split(6, 1, 2);
  const auto root = split.job.directoryOf(0).findRoot(split.places[0].job);
  std::atomic<bool> abort{false};
  std::thread aborter([&] {
    while (root->presentCount() < 3) pauseFor(milliseconds(1));
    abort = true;
  });
  std::vector<int> ranks = {0, 1, 3, 4, 5};
  const auto start = steadyClock().now();
  auto results = split.job.run(ranks, nullptr, [&](int rank, Bootstrap::Options& options) {
    options.places = split.places;
    if (rank == 3) options.abort = &abort;
  });
  aborter.join();
  EXPECT_LT(steadyClock().now() - start, std::chrono::seconds(30));  // of 60
  expectRemoteErrors(results, "rank 3 ");
}

}  // namespace
}  // namespace tutti::bootstrap
