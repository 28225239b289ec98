// As many ranks as a large job has, in one process: threads that meet over real sockets.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "bootstrap/test_job.h"

namespace tutti::bootstrap {
namespace {

constexpr int kRankCount = 1000;
constexpr int kRanksPerProcess = 8;  // as on hosts with eight GPUs

// Each rank keeps a socket to its partners of log2(n) rounds in both directions, and all of them
// are in this process.
bool hasDescriptors() {
  constexpr rlim_t kWanted = rlim_t{kRankCount} * 16;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max < kWanted) return false;
  limit.rlim_cur = std::max(limit.rlim_cur, kWanted);
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

TEST(BootstrapAtScale, AThousandRanksMeetAndGather) {
  if (!hasDescriptors()) GTEST_SKIP() << "fewer descriptors are allowed than a thousand ranks need";
  TestJob job(kRankCount, kRanksPerProcess, loopback(std::chrono::seconds(60)));
  ASSERT_TRUE(job.madeId().ok()) << job.madeId().message();
  const auto results = job.runAll([](Bootstrap& bootstrap) -> Status {
    std::vector<int32_t> ranks(kRankCount, -1);
    const auto own = static_cast<size_t>(index(bootstrap.rank()));
    ranks[own] = static_cast<int32_t>(own);
    TUTTI_TRY(bootstrap.allGather(std::as_writable_bytes(std::span(ranks)), sizeof(int32_t)));
    std::vector<int32_t> wanted(kRankCount);
    std::iota(wanted.begin(), wanted.end(), 0);
    return ranks == wanted ? Status() : Status(Code::kInternalError, "gathered something else");
  });
  for (int rank = 0; rank < kRankCount; ++rank) {
    const Status& status = results[static_cast<size_t>(rank)].status;
    ASSERT_TRUE(status.ok()) << "rank " << rank << ": " << status.message();
  }
}

}  // namespace
}  // namespace tutti::bootstrap
