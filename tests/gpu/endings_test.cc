// How GPU ranks' calls and communicators end, well and badly; and what they accept.
#include <algorithm>
#include <atomic>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/futex.h"
#include "tests/gpu/ranks.h"

namespace tutti::gputest {
namespace {

using testing::ContainsRegex;
using testing::Each;
using testing::HasSubstr;

class Endings : public GpuTest {};

// The error that the communicator comes to, or success when none came in time: well before kernels
// end by themselves (TUTTI_GPU_WAIT_MS of gpu_check.sh, 15 s), or nobody need watch them.
ncclResult_t awaitError(ncclComm_t comm) {
  constexpr auto kPatience = std::chrono::seconds(8);
  const Instant deadline = steadyClock().now() + kPatience;
  ncclResult_t result = ncclSuccess;
  while (result == ncclSuccess && steadyClock().now() < deadline) {
    sleepFor(std::chrono::milliseconds(5));
    if (ncclCommGetAsyncError(comm, &result) != ncclSuccess) return ncclInternalError;
  }
  return result;
}

// A new communicator among the same threads works.
void expectUsable(RankSide& side, const ncclUniqueId& id) {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRank(&comm, side.count, id, side.rank), ncclSuccess)
      << ncclGetLastError(nullptr);
  Array<int32_t> data(side.gpu, 5000, 3);
  side.meet();
  EXPECT_NCCL(ncclAllReduce(data.device(), data.device(), data.size(), ncclInt32, ncclSum, comm,
                            side.stream()));
  EXPECT_THAT(data.get(), Each(3 * side.count));
  EXPECT_NCCL(ncclCommDestroy(comm));
}

TEST_F(Endings, AbortEndsAKernelThatWaits) {
  const ncclUniqueId next = anotherId();
  runRanks(
      [&next](RankSide& side) {
        Array<int32_t> data(side.gpu, 100'000, 1);
        side.meet();
        if (side.rank == 0) {
          EXPECT_NCCL(ncclAllReduce(data.device(), data.device(), data.size(), ncclInt32, ncclSum,
                                    side.comm, side.stream()));
          sleepFor(std::chrono::milliseconds(50));
          const Instant start = steadyClock().now();
          EXPECT_NCCL(ncclCommAbort(side.comm));
          EXPECT_STATUS(side.gpu.synchronize());
          EXPECT_LT(steadyClock().now() - start, std::chrono::seconds(1));
        } else {
          EXPECT_NCCL(ncclCommAbort(side.comm));
        }
        expectUsable(side, next);
      },
      End::kLeave);
}

TEST_F(Endings, RanksThatCallDifferentThingsAreTold) {
  const ncclUniqueId next = anotherId();
  runRanks(
      [&next](RankSide& side) {
        Array<int32_t> data(side.gpu, 50'000, 1);
        side.meet();
        const size_t count = side.rank == 0 ? data.size() : data.size() / 2;
        EXPECT_NCCL(ncclAllReduce(data.device(), data.device(), count, ncclInt32, ncclSum,
                                  side.comm, side.stream()));
        EXPECT_EQ(awaitError(side.comm), ncclInvalidUsage);
        EXPECT_STATUS(side.gpu.synchronize());
        EXPECT_NE(ncclAllReduce(data.device(), data.device(), 1, ncclInt32, ncclSum, side.comm,
                                side.stream()),
                  ncclSuccess);
        EXPECT_THAT(std::string(ncclGetLastError(nullptr)), HasSubstr("50000"));
        EXPECT_NCCL(ncclCommAbort(side.comm));
        expectUsable(side, next);
      },
      End::kLeave);
}

// Whether their bytes would go by lines or by slots.
TEST_F(Endings, AReceiveOfAnotherSizeThanTheSendIsTold) {
  for (const auto& [sent, received] : {std::pair<size_t, size_t>{100, 99},
                                       {100, 1'000'000},
                                       {1'000'000, 100},
                                       {1'000'000, 999'999}}) {
    runRanks(
        [sent, received](RankSide& side) {
          Array<int32_t> data(side.gpu, 1'000'000, 1);
          side.meet();
          if (side.rank == 0) {
            EXPECT_NCCL(ncclSend(data.device(), sent, ncclInt32, 1, side.comm, side.stream()));
          } else if (side.rank == 1) {
            EXPECT_NCCL(ncclRecv(data.device(), received, ncclInt32, 0, side.comm, side.stream()));
            EXPECT_EQ(awaitError(side.comm), ncclInvalidUsage);
          }
          side.meet();
          EXPECT_NCCL(ncclCommAbort(side.comm));
          EXPECT_STATUS(side.gpu.synchronize());
        },
        End::kLeave);
  }
}

TEST_F(Endings, ADestroyedPeerIsNamed) {
  runRanks(
      [](RankSide& side) {
        Array<int32_t> data(side.gpu, 1000, 1);
        side.meet();
        if (side.rank != 0) {
          EXPECT_NCCL(ncclCommDestroy(side.comm));
          return;
        }
        EXPECT_NCCL(ncclAllReduce(data.device(), data.device(), data.size(), ncclInt32, ncclSum,
                                  side.comm, side.stream()));
        EXPECT_EQ(awaitError(side.comm), ncclRemoteError);
        EXPECT_STATUS(side.gpu.synchronize());
        EXPECT_NE(ncclAllReduce(data.device(), data.device(), 1, ncclInt32, ncclSum, side.comm,
                                side.stream()),
                  ncclSuccess);
        // Any of those that have left.
        EXPECT_THAT(std::string(ncclGetLastError(nullptr)), ContainsRegex("rank [1-9]"));
        EXPECT_NCCL(ncclCommAbort(side.comm));
      },
      End::kLeave);
}

TEST_F(Endings, FinalizeWaitsForWhatRuns) {
  runRanks([](RankSide& side) {
    Array<int32_t> data(side.gpu, 4'000'000, 1);
    side.meet();
    for (int i = 0; i < 10; ++i) {
      EXPECT_NCCL(ncclAllReduce(data.device(), data.device(), data.size(), ncclInt32, ncclMax,
                                side.comm, side.stream()));
    }
    EXPECT_NCCL(ncclCommFinalize(side.comm));
    EXPECT_EQ(ncclAllReduce(data.device(), data.device(), 1, ncclInt32, ncclMax, side.comm,
                            side.stream()),
              ncclInvalidUsage);
  });
}

TEST_F(Endings, SplitMakesCommunicatorsOfTheirOwn) {
  runRanks([](RankSide& side) {
    ncclComm_t half = nullptr;
    ASSERT_EQ(ncclCommSplit(side.comm, side.rank % 2, -side.rank, &half, nullptr), ncclSuccess)
        << ncclGetLastError(nullptr);
    int size = 0;
    EXPECT_NCCL(ncclCommCount(half, &size));
    EXPECT_EQ(size, side.rank % 2 == 0 ? (side.count + 1) / 2 : side.count / 2);
    Array<int32_t> data(side.gpu, 10'000, side.rank % 2 + 1);
    side.meet();
    EXPECT_NCCL(ncclAllReduce(data.device(), data.device(), data.size(), ncclInt32, ncclSum, half,
                              side.stream()));
    EXPECT_THAT(data.get(), Each(size * (side.rank % 2 + 1)));
    side.meet();
    EXPECT_NCCL(ncclCommDestroy(half));
  });
}

TEST_F(Endings, MemoryOfTheLibraryServesAsABuffer) {
  runRanks([](RankSide& side) {
    constexpr size_t kCount = 100'000;
    void* memory = nullptr;
    ASSERT_EQ(ncclMemAlloc(&memory, kCount * sizeof(float)), ncclSuccess);
    std::vector<float> host(kCount, 2.0f);
    EXPECT_STATUS(side.gpu.copy(memory, host.data(), kCount * sizeof(float)));
    void* handle = nullptr;
    EXPECT_NCCL(ncclCommRegister(side.comm, memory, kCount * sizeof(float), &handle));
    side.meet();
    EXPECT_NCCL(
        ncclAllReduce(memory, memory, kCount, ncclFloat32, ncclSum, side.comm, side.stream()));
    EXPECT_STATUS(side.gpu.copy(host.data(), memory, kCount * sizeof(float)));
    EXPECT_THAT(host, Each(2.0f * static_cast<float>(side.count)));
    EXPECT_NCCL(ncclCommDeregister(side.comm, handle));
    EXPECT_NCCL(ncclMemFree(memory));
  });
}

TEST_F(Endings, APreMultipliedSumReadsItsScalarFromTheDevice) {
  runRanks([](RankSide& side) {
    Array<float> scalar(side.gpu, 1, 0.5f);
    Array<float> data(side.gpu, 10'000, 4.0f);
    side.meet();
    ncclRedOp_t op = ncclSum;
    ASSERT_EQ(
        ncclRedOpCreatePreMulSum(&op, scalar.device(), ncclFloat32, ncclScalarDevice, side.comm),
        ncclSuccess);
    EXPECT_NCCL(ncclAllReduce(data.device(), data.device(), data.size(), ncclFloat32, op, side.comm,
                              side.stream()));
    EXPECT_THAT(data.get(), Each(2.0f * static_cast<float>(side.count)));
    EXPECT_NCCL(ncclRedOpDestroy(op, side.comm));
  });
}

TEST_F(Endings, HostMemoryIsRefusedWhereBuffersAreChecked) {
  const char* check = std::getenv("NCCL_CHECK_POINTERS");
  if (check == nullptr || std::string_view(check) != "1")
    GTEST_SKIP() << "runs with NCCL_CHECK_POINTERS=1";
  runRanks([](RankSide& side) {
    std::vector<float> host(100, 1.0f);
    EXPECT_EQ(ncclAllReduce(host.data(), host.data(), host.size(), ncclFloat32, ncclSum, side.comm,
                            side.stream()),
              ncclInvalidArgument);
    EXPECT_THAT(std::string(ncclGetLastError(nullptr)), HasSubstr("host memory"));
  });
}

}  // namespace
}  // namespace tutti::gputest
