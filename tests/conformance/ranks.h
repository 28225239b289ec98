// Ranks for tests: each a thread with a communicator of its own.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace tutti::conformance {

#define EXPECT_NCCL(call) EXPECT_EQ(call, ncclSuccess) << ncclGetLastError(nullptr)

// Runs body(rank, communicator) on `rankCount` threads and destroys the communicators.
inline void runRanks(int rankCount, const std::function<void(int, ncclComm_t)>& body) {
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
