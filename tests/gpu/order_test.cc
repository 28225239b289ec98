// Streams, groups and graphs: in which order GPU ranks' calls run.
#include <tuple>

#include "tests/gpu/ranks.h"

namespace tutti::gputest {
namespace {

using testing::Each;
using testing::HasSubstr;

class Order : public GpuTest {};

int sumOfRanks(int count) { return count * (count + 1) / 2; }

TEST_F(Order, AGroupOfManyCallsGivesEachItsResult) {
  runRanks([](RankSide& side) {
    constexpr size_t kCalls = 50;
    constexpr size_t kCount = 300;
    Array<int32_t> data(side.gpu, kCalls * kCount, side.rank + 1);
    side.meet();
    EXPECT_NCCL(ncclGroupStart());
    for (size_t i = 0; i < kCalls; ++i) {
      int32_t* part = data.device() + i * kCount;
      EXPECT_NCCL(
          ncclAllReduce(part, part, kCount - i, ncclInt32, ncclSum, side.comm, side.stream()));
    }
    EXPECT_NCCL(ncclGroupEnd());
    const auto& got = data.get();
    for (size_t i = 0; i < kCalls; ++i) {
      EXPECT_EQ(got[i * kCount], sumOfRanks(side.count)) << "call " << i;
      EXPECT_EQ(got[(i + 1) * kCount - i - 1], sumOfRanks(side.count)) << "call " << i;
      const int32_t last = i == 0 ? sumOfRanks(side.count) : side.rank + 1;
      EXPECT_EQ(got[(i + 1) * kCount - 1], last) << "the end of part " << i;
    }
  });
}

TEST_F(Order, CallsOnTwoStreamsKeepTheCommunicatorsOrder) {
  runRanks([](RankSide& side) {
    auto other = RankGpu::open(side.rank, 0);
    ASSERT_TRUE(other.ok());
    const auto second = static_cast<cudaStream_t>(other.value()->stream());
    Array<int64_t> data(side.gpu, 200'000, 1);
    side.meet();
    constexpr int kRounds = 8;
    int64_t expected = 1;
    for (int i = 0; i < kRounds; ++i, expected *= side.count) {
      EXPECT_NCCL(ncclAllReduce(data.device(), data.device(), data.size(), ncclInt64, ncclSum,
                                side.comm, i % 2 == 0 ? side.stream() : second));
    }
    EXPECT_STATUS(side.gpu.synchronize());
    EXPECT_STATUS(other.value()->synchronize());
    EXPECT_THAT(data.get(), Each(expected));
  });
}

TEST_F(Order, AGroupOnTwoStreamsIsOrderedWithBoth) {
  runRanks([](RankSide& side) {
    auto other = RankGpu::open(side.rank, 0);
    ASSERT_TRUE(other.ok());
    const auto second = static_cast<cudaStream_t>(other.value()->stream());
    Array<int32_t> first(side.gpu, 5000, 1);
    Array<int32_t> last(side.gpu, 7000, 1);
    side.meet();
    for (int i = 0; i < 2; ++i) {
      EXPECT_NCCL(ncclGroupStart());
      EXPECT_NCCL(ncclAllReduce(first.device(), first.device(), first.size(), ncclInt32, ncclSum,
                                side.comm, side.stream()));
      EXPECT_NCCL(ncclAllReduce(last.device(), last.device(), last.size(), ncclInt32, ncclSum,
                                side.comm, second));
      EXPECT_NCCL(ncclGroupEnd());
    }
    EXPECT_STATUS(other.value()->synchronize());
    EXPECT_THAT(last.get(), Each(side.count * side.count));
    EXPECT_THAT(first.get(), Each(side.count * side.count));
  });
}

TEST_F(Order, SendsAndReceivesOfAGroupCompleteInAnyOrder) {
  runRanks([](RankSide& side) {
    const auto n = static_cast<size_t>(side.count);
    constexpr size_t kCount = 100'001;
    Array<int32_t> out(side.gpu, n * kCount, side.rank);
    Array<int32_t> in(side.gpu, 2 * n * kCount, -1);
    side.meet();
    EXPECT_NCCL(ncclGroupStart());
    // Every peer twice, oneself too; even ranks call in rising order, odd ones in falling.
    for (size_t i = 0; i < n; ++i) {
      const size_t peer = side.rank % 2 == 0 ? i : n - 1 - i;
      for (size_t turn = 0; turn < 2; ++turn) {
        const size_t count = turn == 0 ? kCount : 3;
        EXPECT_NCCL(ncclRecv(in.device() + (2 * peer + turn) * kCount, count, ncclInt32,
                             static_cast<int>(peer), side.comm, side.stream()));
        EXPECT_NCCL(ncclSend(out.device() + peer * kCount, count, ncclInt32, static_cast<int>(peer),
                             side.comm, side.stream()));
      }
    }
    EXPECT_NCCL(ncclGroupEnd());
    const auto& got = in.get();
    for (size_t peer = 0; peer < n; ++peer) {
      const size_t start = 2 * peer * kCount;
      EXPECT_EQ(got[start], static_cast<int>(peer));
      EXPECT_EQ(got[start + kCount - 1], static_cast<int>(peer));
      EXPECT_EQ(got[start + kCount + 2], static_cast<int>(peer));
      EXPECT_EQ(got[start + kCount + 3], -1) << "beyond the second receive";
    }
  });
}

TEST_F(Order, AGraphReplaysAmongOrdinaryCallsOfOtherSizes) {
  runRanks([](RankSide& side) {
    Array<int64_t> small(side.gpu, 10, 1);
    Array<int64_t> large(side.gpu, 300'000, 1);
    Array<int64_t> gathered(side.gpu, 10 * static_cast<size_t>(side.count), 0);
    const auto reduce = [&](Array<int64_t>& data) {
      EXPECT_NCCL(ncclAllReduce(data.device(), data.device(), data.size(), ncclInt64, ncclMax,
                                side.comm, side.stream()));
    };
    EXPECT_STATUS(side.gpu.capture([&]() -> Status {
      reduce(small);
      reduce(large);
      EXPECT_NCCL(ncclAllGather(small.device(), gathered.device(), small.size(), ncclInt64,
                                side.comm, side.stream()));
      return {};
    }));
    side.meet();
    for (int round = 0; round < 20; ++round) {
      small.get().assign(small.size(), 100 * round + side.rank);
      small.put();
      large.get().assign(large.size(), 7 * round + side.rank);
      large.put();
      if (round % 3 == 0) reduce(large);
      EXPECT_STATUS(side.gpu.replay());
      EXPECT_THAT(gathered.get(), Each(100 * round + side.count - 1)) << "round " << round;
      EXPECT_THAT(large.get(), Each(7 * round + side.count - 1)) << "round " << round;
    }
  });
}

TEST_F(Order, AGraphOutlivesItsCommunicatorHarmlessly) {
  runRanks(
      [](RankSide& side) {
        Array<int32_t> data(side.gpu, 1000, 5);
        EXPECT_STATUS(side.gpu.capture([&]() -> Status {
          EXPECT_NCCL(ncclAllReduce(data.device(), data.device(), data.size(), ncclInt32, ncclSum,
                                    side.comm, side.stream()));
          return {};
        }));
        side.meet();
        EXPECT_STATUS(side.gpu.replay());
        EXPECT_THAT(data.get(), Each(5 * side.count));
        EXPECT_NCCL(ncclCommDestroy(side.comm));
        EXPECT_STATUS(side.gpu.replay());
        EXPECT_STATUS(side.gpu.synchronize());
      },
      End::kLeave);
}

TEST_F(Order, OneGraphHoldsCallsOfTwoCommunicators) {
  runRanks([](RankSide& side) {
    ncclComm_t twin = nullptr;
    ASSERT_EQ(ncclCommSplit(side.comm, 0, side.rank, &twin, nullptr), ncclSuccess)
        << ncclGetLastError(nullptr);
    Array<int32_t> data(side.gpu, 20'000, 1);
    side.meet();
    const auto reduce = [&](ncclComm_t comm) {
      EXPECT_NCCL(ncclAllReduce(data.device(), data.device(), data.size(), ncclInt32, ncclSum, comm,
                                side.stream()));
    };
    EXPECT_STATUS(side.gpu.capture([&]() -> Status {
      reduce(side.comm);
      reduce(twin);
      return {};
    }));
    side.meet();
    EXPECT_STATUS(side.gpu.replay());
    reduce(twin);
    EXPECT_THAT(data.get(), Each(side.count * side.count * side.count));
    side.meet();
    EXPECT_NCCL(ncclCommDestroy(twin));
  });
}

TEST_F(Order, CapturesThatCameToNothingLeaveTheCommunicatorUsable) {
  runRanks([](RankSide& side) {
    Array<int32_t> data(side.gpu, 20'000, 1);
    side.meet();
    const auto reduce = [&] {
      EXPECT_NCCL(ncclAllReduce(data.device(), data.device(), data.size(), ncclInt32, ncclSum,
                                side.comm, side.stream()));
    };
    EXPECT_STATUS(side.gpu.capture([&]() -> Status {  // never replayed
      reduce();
      return {};
    }));
    const Status broken = side.gpu.capture([&]() -> Status {
      reduce();
      std::ignore = side.gpu.synchronize();  // forbidden in a capture: it ends without a graph
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(ncclAllReduce(data.device(), data.device(), data.size(), ncclInt32, ncclSum,
                                side.comm, side.stream()),
                  ncclInvalidUsage);
      }
      EXPECT_THAT(std::string(ncclGetLastError(side.comm)), HasSubstr("capture of stream"));
      return {};
    });
    EXPECT_FALSE(broken.ok());
    side.meet();
    reduce();
    EXPECT_THAT(data.get(), Each(side.count));
  });
}

// Init, registration, questions and ends, by the thread that captures: they are part of no graph,
// and break none.
TEST_F(Order, WhatIsNoCallOnAStreamLeavesACaptureAlone) {
  const ncclUniqueId id = anotherId();
  runRanks([&id](RankSide& side) {
    const auto settle = [](ncclComm_t comm) {
      ncclResult_t state = ncclInProgress;
      while (state == ncclInProgress && ncclCommGetAsyncError(comm, &state) == ncclSuccess)
        std::this_thread::yield();
      EXPECT_EQ(state, ncclSuccess);
    };
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t twin = nullptr;
    ncclCommInitRankConfig(&twin, side.count, id, side.rank, &config);
    settle(twin);
    Array<int32_t> data(side.gpu, 20'000, 1);
    side.meet();
    ncclAllReduce(data.device(), data.device(), data.size(), ncclInt32, ncclSum, twin,
                  side.stream());
    EXPECT_STATUS(side.gpu.capture([&]() -> Status {
      EXPECT_NCCL(ncclAllReduce(data.device(), data.device(), data.size(), ncclInt32, ncclSum,
                                side.comm, side.stream()));
      void* memory = nullptr;
      void* handle = nullptr;
      EXPECT_NCCL(ncclMemAlloc(&memory, 1 << 20));
      EXPECT_NCCL(ncclCommRegister(side.comm, memory, 1 << 20, &handle));
      EXPECT_NCCL(ncclCommDeregister(side.comm, handle));
      EXPECT_NCCL(ncclMemFree(memory));
      ncclCommFinalize(twin);
      settle(twin);
      EXPECT_NCCL(ncclCommDestroy(twin));
      ncclComm_t child = nullptr;
      EXPECT_NCCL(ncclCommSplit(side.comm, 0, side.rank, &child, nullptr));
      EXPECT_NCCL(ncclCommDestroy(child));
      return {};
    }));
    EXPECT_THAT(data.get(), Each(side.count)) << "of the call before";
    side.meet();
    EXPECT_STATUS(side.gpu.replay());
    EXPECT_THAT(data.get(), Each(side.count * side.count));
  });
}

TEST_F(Order, AGroupIsInOneCaptureOrInNone) {
  runRanks([](RankSide& side) {
    auto other = RankGpu::open(side.rank, 0);
    ASSERT_TRUE(other.ok());
    const auto second = static_cast<cudaStream_t>(other.value()->stream());
    Array<int32_t> data(side.gpu, 20'000, 1);
    side.meet();
    const auto reduce = [&](cudaStream_t stream) {
      EXPECT_NCCL(ncclAllReduce(data.device(), data.device(), data.size(), ncclInt32, ncclSum,
                                side.comm, stream));
    };
    const auto reduceOnBoth = [&](cudaStream_t first, cudaStream_t last) {
      EXPECT_NCCL(ncclGroupStart());
      reduce(first);
      reduce(last);
      EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    };
    EXPECT_STATUS(side.gpu.capture([&]() -> Status {
      reduceOnBoth(side.stream(), second);
      reduceOnBoth(second, side.stream());
      reduce(side.stream());
      return {};
    }));
    side.meet();
    EXPECT_STATUS(side.gpu.replay());
    EXPECT_THAT(data.get(), Each(side.count));
    reduce(second);
    EXPECT_STATUS(other.value()->synchronize());
    EXPECT_THAT(data.get(), Each(side.count * side.count));
  });
}

TEST_F(Order, OneThreadDrivesAllRanks) {
  const int count = rankCount();
  std::vector<std::unique_ptr<RankGpu>> gpus;
  std::vector<int> numbers;
  for (int rank = 0; rank < count; ++rank) {
    auto gpu = RankGpu::open(rank, 0);
    ASSERT_TRUE(gpu.ok());
    numbers.push_back(gpu.value()->number());
    gpus.push_back(std::move(gpu).value());
  }
  std::vector<ncclComm_t> comms(static_cast<size_t>(count));
  ASSERT_EQ(ncclCommInitAll(comms.data(), count, numbers.data()), ncclSuccess)
      << ncclGetLastError(nullptr);
  std::vector<std::unique_ptr<Array<float>>> data;
  for (auto& gpu : gpus) {
    EXPECT_STATUS(gpu->makeCurrent());
    data.push_back(std::make_unique<Array<float>>(*gpu, 4000, 1.5f));
  }
  EXPECT_NCCL(ncclGroupStart());
  for (size_t i = 0; i < gpus.size(); ++i) {
    EXPECT_NCCL(ncclAllReduce(data[i]->device(), data[i]->device(), data[i]->size(), ncclFloat32,
                              ncclSum, comms[i], static_cast<cudaStream_t>(gpus[i]->stream())));
  }
  EXPECT_NCCL(ncclGroupEnd());
  for (size_t i = 0; i < gpus.size(); ++i) {
    EXPECT_STATUS(gpus[i]->makeCurrent());
    EXPECT_THAT(data[i]->get(), Each(1.5f * static_cast<float>(count)));
    int device = -1;
    EXPECT_NCCL(ncclCommCuDevice(comms[i], &device));
    EXPECT_EQ(device, numbers[i]);
  }
  for (size_t i = 0; i < gpus.size(); ++i) {
    EXPECT_NCCL(ncclCommDestroy(comms[i]));
    EXPECT_STATUS(gpus[i]->makeCurrent());
    data[i].reset();
  }
}

TEST_F(Order, TwoCommunicatorsOnTwoStreamsDoNotDisturbEachOther) {
  runRanks([](RankSide& side) {
    ncclComm_t twin = nullptr;
    ASSERT_EQ(ncclCommSplit(side.comm, 0, side.rank, &twin, nullptr), ncclSuccess)
        << ncclGetLastError(nullptr);
    auto other = RankGpu::open(side.rank, 0);
    ASSERT_TRUE(other.ok());
    const auto second = static_cast<cudaStream_t>(other.value()->stream());
    Array<int32_t> one(side.gpu, 1'000'000, 1);
    Array<int32_t> two(side.gpu, 1'000'000, 2);
    side.meet();
    for (int i = 0; i < 20; ++i) {
      EXPECT_NCCL(ncclAllReduce(one.device(), one.device(), one.size(), ncclInt32, ncclMax,
                                side.comm, side.stream()));
      EXPECT_NCCL(
          ncclAllReduce(two.device(), two.device(), two.size(), ncclInt32, ncclMax, twin, second));
    }
    EXPECT_STATUS(other.value()->synchronize());
    EXPECT_THAT(one.get(), Each(1));
    EXPECT_THAT(two.get(), Each(2));
    EXPECT_NCCL(ncclCommDestroy(twin));
  });
}

}  // namespace
}  // namespace tutti::gputest
