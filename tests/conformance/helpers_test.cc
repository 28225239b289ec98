// Long calls of ranks that have helper threads, in processes: every element, and what is left of
// the threads afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "processes.h"
#include "ranks.h"

namespace tutti::conformance {
namespace {

constexpr size_t kCount = 1'200'003;  // of a rank's block, 4.8 MB

int helpersAlive() {
  int count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    count += name == "tutti-helper" ? 1 : 0;
  }
  return count;
}

float inputOf(int rank, size_t i) { return static_cast<float>(valueOf(rank, i)); }

// A sum of so many small whole numbers is exact in any order.
float sumAt(int ranks, size_t i) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += inputOf(rank, i);
  return sum;
}

class LongCalls {
 public:
  explicit LongCalls(const ProcessRank& self) : self_(self) {
    EXPECT_EQ(ncclCommInitRank(&comm_, self.count, self.id, self.rank), ncclSuccess)
        << ncclGetLastError(nullptr);
  }
  ~LongCalls() { EXPECT_NCCL(ncclCommDestroy(comm_)); }

  // In place and not, from and to such buffers.
  void reduce(float* in, float* out) {
    fill(in, kCount);
    EXPECT_NCCL(ncclAllReduce(in, out, kCount, ncclFloat32, ncclSum, comm_, nullptr));
    expect(out, kCount, [this](size_t i) { return sumAt(self_.count, i); });
    fill(in, kCount);
    EXPECT_NCCL(ncclAllReduce(in, out, kCount, ncclFloat32, ncclAvg, comm_, nullptr));
    const auto ranks = static_cast<float>(self_.count);
    expect(out, kCount, [&](size_t i) { return sumAt(self_.count, i) / ranks; });
    float factor = 2;
    ncclRedOp_t op{};
    EXPECT_NCCL(
        ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, ncclScalarHostImmediate, comm_));
    fill(in, kCount);
    EXPECT_NCCL(ncclAllReduce(in, out, kCount, ncclFloat32, op, comm_, nullptr));
    expect(out, kCount, [this](size_t i) { return 2 * sumAt(self_.count, i); });
    EXPECT_NCCL(ncclRedOpDestroy(op, comm_));
  }

  void move(float* in, float* out) {
    fill(in, kCount);
    EXPECT_NCCL(ncclAllGather(in, out, kCount, ncclFloat32, comm_, nullptr));
    expect(out, whole(),
           [](size_t i) { return inputOf(static_cast<int>(i / kCount), i % kCount); });
    fill(in, whole());
    EXPECT_NCCL(ncclAlltoAll(in, out, kCount, ncclFloat32, comm_, nullptr));
    expect(out, whole(), [this](size_t i) {
      return inputOf(static_cast<int>(i / kCount), at(self_.rank) + i % kCount);
    });
    fill(in, whole());
    EXPECT_NCCL(ncclReduceScatter(in, out, kCount, ncclFloat32, ncclSum, comm_, nullptr));
    expect(out, kCount, [this](size_t i) { return sumAt(self_.count, at(self_.rank) + i); });
    fill(in, kCount);
    EXPECT_NCCL(ncclBroadcast(in, out, kCount, ncclFloat32, 1, comm_, nullptr));
    expect(out, kCount, [](size_t i) { return inputOf(1, i); });
  }

  size_t whole() const { return at(self_.count); }

 private:
  static size_t at(int block) { return static_cast<size_t>(block) * kCount; }
  void fill(float* in, size_t count) const {
    for (size_t i = 0; i < count; ++i) in[i] = inputOf(self_.rank, i);
  }
  template <typename Wanted>
  static void expect(const float* got, size_t count, Wanted wanted) {
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(got[i], wanted(i)) << "element " << i;
  }

  const ProcessRank self_;
  ncclComm_t comm_ = nullptr;
};

TEST(HelpedRanks, DISABLED_LongCalls) {
  {
    LongCalls calls(thisProcess());
    std::vector<float> in(calls.whole());
    std::vector<float> out(calls.whole());
    void* mapped = nullptr;
    ASSERT_EQ(ncclMemAlloc(&mapped, 2 * calls.whole() * sizeof(float)), ncclSuccess);
    auto* shared = static_cast<float*>(mapped);
    for (int times = 0; times < 3; ++times) {
      calls.reduce(in.data(), out.data());
      calls.reduce(out.data(), out.data());
      calls.move(in.data(), out.data());
      calls.reduce(shared, shared + calls.whole());
      calls.reduce(shared, shared);
      calls.move(shared, shared + calls.whole());
    }
    EXPECT_NCCL(ncclMemFree(mapped));
    EXPECT_EQ(helpersAlive(), std::thread::hardware_concurrency() > 1 ? 1 : 0);
  }
  EXPECT_EQ(helpersAlive(), 0);
}

void runHelped(int count, const std::string& setting) {
  const auto codes = runProcesses("HelpedRanks.DISABLED_LongCalls", count, [&](int) {
    return std::vector<std::string>{"TUTTI_HELPER_THREADS=1", setting};
  });
  EXPECT_EQ(codes, std::vector<int>(static_cast<size_t>(count), 0));
}

TEST(Helpers, DoLongCallsRight) { runHelped(2, "TUTTI_PROCESS_READ=auto"); }
TEST(Helpers, DoReadsOfOtherProcesses) { runHelped(3, "TUTTI_PROCESS_READ=1"); }
TEST(Helpers, DoCallsBetweenHosts) {
  const auto codes = runProcesses("HelpedRanks.DISABLED_LongCalls", 3, [](int rank) {
    return std::vector<std::string>{"TUTTI_HELPER_THREADS=1", "NCCL_SOCKET_IFNAME=lo",
                                    "NCCL_HOSTID=host" + std::to_string(rank % 2)};
  });
  EXPECT_EQ(codes, std::vector<int>(3, 0));
}

}  // namespace
}  // namespace tutti::conformance
