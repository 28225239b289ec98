// Ranks for tests: each a thread with a communicator of its own; or, where they are spread over two
// hosts, a process that runs the same test again up to the same place.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "network_ranks.h"

namespace tutti::conformance {

#define EXPECT_NCCL(call) EXPECT_EQ(call, ncclSuccess) << ncclGetLastError(nullptr)

// One rank's part, in a process that spreadRanks() started; of the runs of its test only this one.
inline void runOneRank(const std::function<void(int, ncclComm_t)>& body) {
  if (std::to_string(countRuns()) != textOf("TEST_RUN")) return;
  const ProcessRank self = thisProcess();
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRank(&comm, self.count, self.id, self.rank), ncclSuccess)
      << ncclGetLastError(nullptr);
  body(self.rank, comm);
  EXPECT_NCCL(ncclCommDestroy(comm));
}

inline void spreadRanks(int rankCount) {
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  Settings settings = spreadSettings();
  settings.push_back("TEST_RUN=" + std::to_string(countRuns()));
  const Outcome outcome = run(std::string(test.test_suite_name()) + "." + test.name(),
                              spreadLayout(rankCount), settings);
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  // Not every rank needs one.
  EXPECT_GE(outcome.count("links to other hosts over " + spreadNetwork()), 2u) << outcome.log;
}

// Runs body(rank, communicator) of `rankCount` ranks and destroys the communicators.
inline void runRanks(int rankCount, const std::function<void(int, ncclComm_t)>& body) {
  if (std::getenv("TEST_RUN") != nullptr) return runOneRank(body);
  if (isSpread()) return spreadRanks(rankCount);
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess) << ncclGetLastError(nullptr);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < rankCount; ++rank) {
    threads.emplace_back([&, rank] {
      ncclComm_t comm = nullptr;
      ASSERT_EQ(ncclCommInitRank(&comm, rankCount, id, rank), ncclSuccess)
          << ncclGetLastError(nullptr);
      body(rank, comm);
      EXPECT_NCCL(ncclCommDestroy(comm));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A buffer between guard bands: check() finds a write beyond either end.
template <typename T>
class Guarded {
 public:
  explicit Guarded(size_t count, T poison = T{77})
      : count_(count), all_(count + 2 * kBand, kGuard) {
    for (size_t i = 0; i < count; ++i) data()[i] = poison;
  }
  T* data() { return all_.data() + kBand; }
  T& operator[](size_t at) { return data()[at]; }
  size_t size() const { return count_; }
  void check() const {
    for (size_t i = 0; i < kBand; ++i) {
      ASSERT_EQ(all_[i], kGuard) << "written before the buffer";
      ASSERT_EQ(all_[kBand + count_ + i], kGuard) << "written after the buffer";
    }
  }

 private:
  static constexpr size_t kBand = 64;
  static constexpr T kGuard = T{113};
  size_t count_;
  std::vector<T> all_;
};

// The value that rank `rank` puts at place `i`: never zero, small, different everywhere.
inline int64_t valueOf(int rank, size_t i) {
  return static_cast<int64_t>((i * 7 + static_cast<size_t>(rank) * 13 + (i >> 8)) % 101) + 1;
}

}  // namespace tutti::conformance
