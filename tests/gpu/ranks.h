// GPU ranks for tests: each a thread with a communicator, a stream and device buffers of its own,
// or a process where hosts.h spreads them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/hosts.h"
#include "tools/perf_gpu.h"

namespace tutti::gputest {

#define EXPECT_NCCL(call) EXPECT_EQ(call, ncclSuccess) << ncclGetLastError(nullptr)
#define EXPECT_STATUS(call)                               \
  do {                                                    \
    if (auto status = (call); !status.ok()) {             \
      ADD_FAILURE() << #call << ": " << status.message(); \
    }                                                     \
  } while (false)

using tools::RankGpu;

// TUTTI_TEST_RANKS, else 2. Rank r is on GPU r modulo those there are.
inline int rankCount() {
  const char* text = std::getenv("TUTTI_TEST_RANKS");
  return text == nullptr ? 2 : std::atoi(text);
}

// Why there are no GPU ranks here; empty when there are.
inline std::string obstacle() {
  auto gpu = RankGpu::open(0, 0);
  if (!gpu.ok()) return std::string(gpu.status().message());
  void* probe = nullptr;
  if (ncclMemAlloc(&probe, 1) != ncclSuccess) return ncclGetLastError(nullptr);
  const bool isOnGpu = gpu.value()->isDeviceMemory(probe);
  ncclMemFree(probe);
  return isOnGpu ? "" : "the library runs CPU ranks here (TUTTI_DEVICE, or built without kernels)";
}

// Elements in device memory, seen from the host by copies.
template <typename T>
class Array {
 public:
  Array(RankGpu& gpu, size_t count, T fill) : gpu_(gpu), host_(count, fill) {
    auto memory = gpu.allocate(count * sizeof(T));
    EXPECT_TRUE(memory.ok());
    device_ = static_cast<T*>(*memory);
    put();
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { gpu_.free(device_); }
  T* device() { return device_; }
  size_t size() const { return host_.size(); }
  void put() { EXPECT_STATUS(gpu_.copy(device_, host_.data(), host_.size() * sizeof(T))); }
  std::vector<T>& get() {
    EXPECT_STATUS(gpu_.copy(host_.data(), device_, host_.size() * sizeof(T)));
    return host_;
  }

 private:
  RankGpu& gpu_;
  std::vector<T> host_;
  T* device_ = nullptr;
};

struct RankSide {
  int rank = 0;
  int count = 1;
  ncclComm_t comm = nullptr;
  RankGpu& gpu;
  Meeting& meeting;
  cudaStream_t stream() const { return static_cast<cudaStream_t>(gpu.stream()); }
  // All ranks, but those that have ended. Between allocating and calling: an allocation waits for
  // the kernels of its GPU, and where ranks share one, another rank's kernel waits for us.
  void meet() const { meeting.arriveAndWait(); }
};

enum class End : uint8_t { kDestroy, kLeave };  // kLeave: the body has ended the communicator

struct RankPlace {
  int rank = 0;
  int count = 1;
  Meeting& meeting;
};

inline void runRank(const RankPlace& place, const ncclUniqueId& id,
                    const std::function<void(RankSide&)>& body, End end) {
  auto gpu = RankGpu::open(place.rank, 0);
  ASSERT_TRUE(gpu.ok()) << gpu.status().message();
  RankSide side{.rank = place.rank,
                .count = place.count,
                .comm = nullptr,
                .gpu = *gpu.value(),
                .meeting = place.meeting};
  ASSERT_EQ(ncclCommInitRank(&side.comm, place.count, id, place.rank), ncclSuccess)
      << ncclGetLastError(nullptr);
  body(side);
  if (end == End::kLeave) return;
  EXPECT_NCCL(ncclCommDestroy(side.comm));
}

// Runs body on a thread a rank; or, where ranks are spread over hosts, in a process a rank.
inline void runRanks(const std::function<void(RankSide&)>& body, End end = End::kDestroy) {
  if (isOfHost()) {
    runHere([&](const conformance::ProcessRank& self, Meeting& meeting) {
      runRank({.rank = self.rank, .count = self.count, .meeting = meeting}, self.id, body, end);
    });
    return;
  }
  const int count = rankCount();
  if (hostCount() > 1) return spreadRanks(count);
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess) << ncclGetLastError(nullptr);
  std::vector<std::thread> threads;
  Meeting meeting(count);
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      runRank({.rank = rank, .count = count, .meeting = meeting}, id, body, end);
      meeting.arriveAndDrop();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    static const std::string reason = obstacle();
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
};

}  // namespace tutti::gputest
