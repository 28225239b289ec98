// Tests only: a job of several roots, and what its ranks do to find out whether all are there.
#pragma once

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "bootstrap/rank_groups.h"
#include "bootstrap/test_job.h"

namespace tutti::bootstrap {

// A job whose roots are in the processes of their groups' first ranks.
class SplitJob {
 public:
  SplitJob(int rankCount, int ranksPerProcess, int rootCount,
           std::chrono::milliseconds timeout = std::chrono::seconds(60))
      : groups{.rankCount = rankCount, .groupCount = rootCount},
        job(rankCount, ranksPerProcess, loopback(timeout)) {
    for (int group = 0; group < rootCount; ++group) {
      if (group == 0) {
        places.push_back(job.id());
        continue;
      }
      Result<UniqueId> made =
          makeUniqueId(job.directoryOf(groups.firstOf(group)), job.network(), systemRng());
      EXPECT_TRUE(made.ok());
      places.push_back(*made);
    }
  }
  TestJob::Change split() {
    return [this](int, Bootstrap::Options& options) { options.places = places; };
  }
  std::vector<RankResult> runAllBut(int missing, const TestJob::Body& body = nullptr) {
    std::vector<int> ranks;
    for (int rank = 0; rank < groups.rankCount; ++rank) {
      if (rank != missing) ranks.push_back(rank);
    }
    return job.run(ranks, body, split());
  }

  const RankGroups groups;
  TestJob job;
  std::vector<UniqueId> places;
};

inline Status gather(Bootstrap& bootstrap) {
  const auto count = static_cast<size_t>(bootstrap.rankCount());
  std::vector<int32_t> ranks(count, -1);
  ranks[static_cast<size_t>(index(bootstrap.rank()))] = index(bootstrap.rank());
  TUTTI_TRY(bootstrap.allGather(std::as_writable_bytes(std::span(ranks)), sizeof(int32_t)));
  std::vector<int32_t> wanted(count);
  std::iota(wanted.begin(), wanted.end(), 0);
  return ranks == wanted ? Status() : Status(Code::kInternalError, "gathered something else");
}

}  // namespace tutti::bootstrap
