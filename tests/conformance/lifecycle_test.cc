// Communicators through their life: every way to make one, groups, streams, abort, memory of the
// steady state.
#include <tutti/host.h>

#include <atomic>
#include <chrono>
#include <string>

#include "../../src/base/patience_testing.h"
#include "allocation_counter.h"
#include "ranks.h"

namespace tutti::conformance {
namespace {

using Clock = std::chrono::steady_clock;

void expectSum(ncclComm_t comm, int rankCount, cudaStream_t stream = nullptr) {
  int rank = -1;
  EXPECT_NCCL(ncclCommUserRank(comm, &rank));
  std::vector<int32_t> values(1000, rank + 1);
  EXPECT_NCCL(
      ncclAllReduce(values.data(), values.data(), values.size(), ncclInt32, ncclSum, comm, stream));
  EXPECT_NCCL(ncclTuttiStreamSynchronize(stream));
  for (const int32_t value : values) ASSERT_EQ(value, rankCount * (rankCount + 1) / 2);
}

TEST(Lifecycle, QueriesAnswer) {
  runRanks(3, [](int rank, ncclComm_t comm) {
    int count = 0, device = -1, user = -1;
    EXPECT_NCCL(ncclCommCount(comm, &count));
    EXPECT_NCCL(ncclCommCuDevice(comm, &device));
    EXPECT_NCCL(ncclCommUserRank(comm, &user));
    EXPECT_EQ(count, 3);
    EXPECT_EQ(device, 0);
    EXPECT_EQ(user, rank);
    ncclResult_t state = ncclInternalError;
    EXPECT_NCCL(ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclSuccess);
  });
}

TEST(Lifecycle, InitAllMakesRanksThatOneThreadDrivesInAGroup) {
  constexpr int kRanks = 5;
  std::vector<ncclComm_t> comms(kRanks);
  ASSERT_EQ(ncclCommInitAll(comms.data(), kRanks, nullptr), ncclSuccess)
      << ncclGetLastError(nullptr);
  for (const size_t count : {size_t{4}, size_t{200000}}) {
    std::vector<std::vector<int64_t>> buffers(kRanks, std::vector<int64_t>(count));
    for (int rank = 0; rank < kRanks; ++rank) {
      for (size_t i = 0; i < count; ++i) buffers[static_cast<size_t>(rank)][i] = valueOf(rank, i);
    }
    EXPECT_NCCL(ncclGroupStart());
    for (int rank = 0; rank < kRanks; ++rank) {
      auto* data = buffers[static_cast<size_t>(rank)].data();
      EXPECT_NCCL(ncclAllReduce(data, data, count, ncclInt64, ncclMax,
                                comms[static_cast<size_t>(rank)], nullptr));
    }
    EXPECT_NCCL(ncclGroupEnd());
    for (int rank = 1; rank < kRanks; ++rank)
      EXPECT_EQ(buffers[static_cast<size_t>(rank)], buffers[0]);
  }
  for (ncclComm_t comm : comms) EXPECT_NCCL(ncclCommDestroy(comm));
}

TEST(Lifecycle, OneThreadInitialisesSeveralRanksInAGroup) {
  constexpr int kRanks = 4;
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<ncclComm_t> comms(kRanks);
  EXPECT_NCCL(ncclGroupStart());
  for (int rank = 0; rank < kRanks; ++rank)
    EXPECT_NCCL(ncclCommInitRank(&comms[static_cast<size_t>(rank)], kRanks, id, rank));
  EXPECT_NCCL(ncclGroupEnd());
  std::vector<std::thread> threads;
  for (ncclComm_t comm : comms) threads.emplace_back([comm] { expectSum(comm, kRanks); });
  for (std::thread& thread : threads) thread.join();
  for (ncclComm_t comm : comms) EXPECT_NCCL(ncclCommDestroy(comm));
}

TEST(Lifecycle, NonBlockingCommunicatorsArePolled) {
  constexpr int kRanks = 3;
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<ncclComm_t> comms(kRanks);
  const auto poll = [](ncclComm_t comm) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
    return state;
  };
  for (int rank = 0; rank < kRanks; ++rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const ncclResult_t result =
        ncclCommInitRankConfig(&comms[static_cast<size_t>(rank)], kRanks, id, rank, &config);
    EXPECT_TRUE(result == ncclInProgress || result == ncclSuccess);
  }
  for (ncclComm_t comm : comms) EXPECT_EQ(poll(comm), ncclSuccess);
  std::vector<std::vector<float>> values(kRanks, std::vector<float>(50000, 1.5f));
  for (int rank = 0; rank < kRanks; ++rank) {
    auto* data = values[static_cast<size_t>(rank)].data();
    const ncclResult_t result = ncclAllReduce(data, data, 50000, ncclFloat, ncclSum,
                                              comms[static_cast<size_t>(rank)], nullptr);
    EXPECT_TRUE(result == ncclInProgress || result == ncclSuccess);
  }
  for (ncclComm_t comm : comms) EXPECT_EQ(poll(comm), ncclSuccess);
  for (const auto& vector : values) EXPECT_EQ(vector, std::vector<float>(50000, 4.5f));
  for (ncclComm_t comm : comms) EXPECT_NCCL(ncclCommDestroy(comm));
}

TEST(Lifecycle, HostStreamsRunInOrderAndWithoutTheCaller) {
  constexpr int kRanks = 2;
  std::vector<ncclComm_t> comms(kRanks);
  ASSERT_EQ(ncclCommInitAll(comms.data(), kRanks, nullptr), ncclSuccess);
  std::vector<cudaStream_t> streams(kRanks);
  std::vector<std::vector<int32_t>> values(kRanks, std::vector<int32_t>(20000, 1));
  for (cudaStream_t& stream : streams) EXPECT_NCCL(ncclTuttiStreamCreate(&stream));
  // One thread, one rank after the other, no group: only asynchronous streams make this possible.
  for (size_t rank = 0; rank < kRanks; ++rank) {
    for (int times = 0; times < 5; ++times) {
      EXPECT_NCCL(ncclAllReduce(values[rank].data(), values[rank].data(), values[rank].size(),
                                ncclInt32, ncclSum, comms[rank], streams[rank]));
    }
  }
  for (cudaStream_t stream : streams) EXPECT_NCCL(ncclTuttiStreamSynchronize(stream));
  for (const auto& vector : values) EXPECT_EQ(vector, std::vector<int32_t>(20000, 32));
  for (size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_NCCL(ncclCommDestroy(comms[rank]));
    EXPECT_NCCL(ncclTuttiStreamDestroy(streams[rank]));
  }
}

TEST(Lifecycle, CallsOfOneGroupOnSeveralStreamsAreJoined) {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess);
  cudaStream_t a = nullptr, b = nullptr;
  EXPECT_NCCL(ncclTuttiStreamCreate(&a));
  EXPECT_NCCL(ncclTuttiStreamCreate(&b));
  int32_t in = 7, middle = 0, out = 0;
  EXPECT_NCCL(ncclGroupStart());
  EXPECT_NCCL(ncclSend(&in, 1, ncclInt32, 0, comm, a));
  EXPECT_NCCL(ncclRecv(&middle, 1, ncclInt32, 0, comm, b));
  EXPECT_NCCL(ncclGroupEnd());
  EXPECT_NCCL(ncclBroadcast(&middle, &out, 1, ncclInt32, 0, comm, b));
  EXPECT_NCCL(ncclTuttiStreamSynchronize(b));
  EXPECT_EQ(out, 7);
  EXPECT_NCCL(ncclCommDestroy(comm));
  EXPECT_NCCL(ncclTuttiStreamDestroy(a));
  EXPECT_NCCL(ncclTuttiStreamDestroy(b));
}

TEST(Groups, AnyOrderOfSendsAndReceivesCompletes) {
  constexpr int kRanks = 4;
  constexpr size_t kCount = 150000;  // more than a link holds
  runRanks(kRanks, [&](int rank, ncclComm_t comm) {
    std::vector<std::vector<int64_t>> out(kRanks, std::vector<int64_t>(kCount));
    std::vector<std::vector<int64_t>> in(kRanks, std::vector<int64_t>(kCount));
    for (size_t peer = 0; peer < kRanks; ++peer) {
      for (size_t i = 0; i < kCount; ++i)
        out[peer][i] = valueOf(rank * kRanks + static_cast<int>(peer), i);
    }
    for (int order = 0; order < 2; ++order) {
      EXPECT_NCCL(ncclGroupStart());
      for (int i = 0; i < kRanks; ++i) {
        const int peer = (i * 3 + rank) % kRanks;
        const auto at = static_cast<size_t>(peer);
        const bool sendFirst = (rank + order) % 2 == 0;
        if (sendFirst) {
          EXPECT_NCCL(ncclSend(out[at].data(), kCount, ncclInt64, peer, comm, nullptr));
        }
        EXPECT_NCCL(ncclRecv(in[at].data(), kCount, ncclInt64, peer, comm, nullptr));
        if (!sendFirst) {
          EXPECT_NCCL(ncclSend(out[at].data(), kCount, ncclInt64, peer, comm, nullptr));
        }
      }
      EXPECT_NCCL(ncclGroupEnd());
      for (int peer = 0; peer < kRanks; ++peer) {
        for (size_t i = 0; i < kCount; i += 97)
          ASSERT_EQ(in[static_cast<size_t>(peer)][i], valueOf(peer * kRanks + rank, i));
      }
    }
  });
}

TEST(Groups, ManyCallsOfDifferentKindsRunAsOne) {
  runRanks(3, [](int rank, ncclComm_t comm) {
    std::vector<std::vector<int64_t>> values(50, std::vector<int64_t>(17));
    int64_t passed = -1;
    int64_t own = rank;
    EXPECT_NCCL(ncclGroupStart());
    EXPECT_NCCL(ncclRecv(&passed, 1, ncclInt64, (rank + 2) % 3, comm, nullptr));
    for (size_t k = 0; k < values.size(); ++k) {
      for (size_t i = 0; i < 17; ++i) values[k][i] = valueOf(rank, i + k);
      EXPECT_NCCL(ncclGroupStart());
      EXPECT_NCCL(
          ncclAllReduce(values[k].data(), values[k].data(), 17, ncclInt64, ncclSum, comm, nullptr));
      EXPECT_NCCL(ncclGroupEnd());
    }
    EXPECT_NCCL(ncclSend(&own, 1, ncclInt64, (rank + 1) % 3, comm, nullptr));
    EXPECT_NCCL(ncclGroupEnd());
    EXPECT_EQ(passed, (rank + 2) % 3);
    for (size_t k = 0; k < values.size(); ++k) {
      for (size_t i = 0; i < 17; ++i) {
        ASSERT_EQ(values[k][i], valueOf(0, i + k) + valueOf(1, i + k) + valueOf(2, i + k));
      }
    }
  });
}

TEST(Groups, AnUnpairedSendToOneselfIsRefused) {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess);
  float value = 1;
  EXPECT_EQ(ncclSend(&value, 1, ncclFloat, 0, comm, nullptr), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(comm), testing::HasSubstr("no matching receive"));
  EXPECT_NCCL(ncclCommDestroy(comm));
}

TEST(Groups, SeveralCommunicatorsOfTheSameRanksInOneGroup) {
  constexpr int kRanks = 2;
  std::vector<ncclComm_t> first(kRanks), second(kRanks);
  ASSERT_EQ(ncclCommInitAll(first.data(), kRanks, nullptr), ncclSuccess);
  ASSERT_EQ(ncclCommInitAll(second.data(), kRanks, nullptr), ncclSuccess);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      int64_t a = 1, b = 2;
      // The ranks name the communicators in opposite order: the group makes that harmless.
      EXPECT_NCCL(ncclGroupStart());
      EXPECT_NCCL(ncclAllReduce(rank == 0 ? &a : &b, rank == 0 ? &a : &b, 1, ncclInt64, ncclSum,
                                rank == 0 ? first[0] : second[1], nullptr));
      EXPECT_NCCL(ncclAllReduce(rank == 0 ? &b : &a, rank == 0 ? &b : &a, 1, ncclInt64, ncclSum,
                                rank == 0 ? second[0] : first[1], nullptr));
      EXPECT_NCCL(ncclGroupEnd());
      EXPECT_EQ(a, 2);
      EXPECT_EQ(b, 4);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_NCCL(ncclCommDestroy(first[rank]));
    EXPECT_NCCL(ncclCommDestroy(second[rank]));
  }
}

TEST(Abort, EndsACallThatWaitsForAPeer) {
  inThreeTries([](int) {
    std::vector<ncclComm_t> comms(2);
    ASSERT_EQ(ncclCommInitAll(comms.data(), 2, nullptr), ncclSuccess);
    std::atomic<ncclResult_t> result{ncclSuccess};
    std::thread waiting([&] {
      float value = 1;
      result = ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comms[0], nullptr);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const auto start = Clock::now();
    EXPECT_NCCL(ncclCommAbort(comms[0]));
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(1));
    waiting.join();
    EXPECT_NE(result, ncclSuccess);
    EXPECT_NCCL(ncclCommAbort(comms[1]));
  });
}

TEST(Abort, APeerThatWaitsIsToldWhoAborted) {
  std::vector<ncclComm_t> comms(2);
  ASSERT_EQ(ncclCommInitAll(comms.data(), 2, nullptr), ncclSuccess);
  std::vector<std::thread> warmUp;
  for (ncclComm_t comm : comms) warmUp.emplace_back([comm] { expectSum(comm, 2); });
  for (std::thread& thread : warmUp) thread.join();
  std::thread waiting([&] {
    float value = 1;
    EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comms[0], nullptr),
              ncclRemoteError);
    EXPECT_THAT(ncclGetLastError(comms[0]), testing::HasSubstr("rank 1"));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_NCCL(ncclCommAbort(comms[1]));
  waiting.join();
  ncclResult_t state = ncclSuccess;
  EXPECT_NCCL(ncclCommGetAsyncError(comms[0], &state));
  EXPECT_EQ(state, ncclRemoteError);
  EXPECT_NCCL(ncclCommAbort(comms[0]));
}

TEST(Abort, EndsAnInitialisationThatWaitsForItsPeers) {
  inThreeTries([](int) {
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const auto start = Clock::now();
    EXPECT_NCCL(ncclCommAbort(comm));
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(1));
  });
}

TEST(SteadyState, ACachedCallAllocatesNothing) {
  if (!canCount()) GTEST_SKIP() << "a sanitizer keeps operator new for itself";
  runRanks(2, [](int rank, ncclComm_t comm) {
    std::vector<float> values(1000, static_cast<float>(rank));
    std::vector<float> result(2000);
    const auto calls = [&] {
      EXPECT_NCCL(
          ncclAllReduce(values.data(), values.data(), 1000, ncclFloat, ncclMax, comm, nullptr));
      EXPECT_NCCL(ncclAllGather(values.data(), result.data(), 1000, ncclFloat, comm, nullptr));
      EXPECT_NCCL(ncclGroupStart());
      EXPECT_NCCL(ncclSend(values.data(), 1000, ncclFloat, 1 - rank, comm, nullptr));
      EXPECT_NCCL(ncclRecv(result.data(), 1000, ncclFloat, 1 - rank, comm, nullptr));
      EXPECT_NCCL(ncclGroupEnd());
    };
    calls();
    calls();
    // Who waits for 100 ms, as on a busy machine, looks what holds it up, and may allocate for
    // that.
    constexpr std::chrono::milliseconds kLong{100};
    int shortRounds = 0;
    for (int i = 0; i < 100; ++i) {
      const auto start = Clock::now();
      startCounting();
      calls();
      const size_t allocations = stopCounting();
      if (Clock::now() - start >= kLong) continue;
      ++shortRounds;
      EXPECT_EQ(allocations, 0u) << "round " << i;
    }
    EXPECT_GT(shortRounds, 0);
    calls();  // the other rank may leave amid its last ones, and a network says so in words
  });
}

TEST(Library, SaysItsVersionAndErrors) {
  int version = 0;
  EXPECT_NCCL(ncclGetVersion(&version));
  EXPECT_EQ(version, NCCL_VERSION_CODE);
  EXPECT_EQ(ncclGetVersion(nullptr), ncclInvalidArgument);
  EXPECT_STREQ(ncclGetErrorString(ncclSuccess), "no error");
  EXPECT_STREQ(ncclGetErrorString(ncclRemoteError),
               "remote process exited or there was a network error");
  EXPECT_STREQ(ncclGetErrorString(ncclInProgress), "NCCL operation in progress");
  for (int code = -1; code < 20; ++code)
    EXPECT_NE(ncclGetErrorString(static_cast<ncclResult_t>(code)), nullptr);
}

TEST(Library, MemoryIsFreedByItsOwnCallOnly) {
  void* memory = nullptr;
  EXPECT_NCCL(ncclMemAlloc(&memory, 100000));
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 4096, 0u);
  int local = 0;
  EXPECT_EQ(ncclMemFree(&local), ncclInvalidArgument);
  EXPECT_NCCL(ncclMemFree(memory));
  EXPECT_EQ(ncclMemFree(memory), ncclInvalidArgument);
  EXPECT_NCCL(ncclMemFree(nullptr));
  EXPECT_EQ(ncclMemAlloc(nullptr, 10), ncclInvalidArgument);
}

}  // namespace
}  // namespace tutti::conformance
