// Communicators that end early, late, twice, in any order, and a thousand times.
#include <tutti/host.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <thread>

#include "../../src/base/patience_testing.h"
#include "../../src/base/process_counts_testing.h"
#include "ranks.h"

namespace tutti::conformance {
namespace {

using testing::HasSubstr;

void oneCycle() {
  std::vector<ncclComm_t> comms(2);
  ASSERT_EQ(ncclCommInitAll(comms.data(), 2, nullptr), ncclSuccess);
  int64_t values[] = {1, 2};
  EXPECT_NCCL(ncclGroupStart());
  for (size_t i = 0; i < 2; ++i)
    EXPECT_NCCL(ncclAllReduce(&values[i], &values[i], 1, ncclInt64, ncclSum, comms[i], nullptr));
  EXPECT_NCCL(ncclGroupEnd());
  EXPECT_EQ(values[0] + values[1], 6);
  for (ncclComm_t comm : comms) EXPECT_NCCL(ncclCommDestroy(comm));
}

TEST(Endings, AThousandLivesLeaveNothingBehind) {
  for (int i = 0; i < 100; ++i) oneCycle();
  const size_t descriptors = countEntries("/proc/self/fd");
  const size_t threads = countEntries("/proc/self/task");
  const size_t bytes = residentBytes();
  for (int i = 0; i < 1000; ++i) oneCycle();
  // Service threads close the last connections, and roots of earlier tests end, on their own time.
  for (int i = 0; i < 500 && countEntries("/proc/self/fd") > descriptors; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_LE(countEntries("/proc/self/fd"), descriptors);
  EXPECT_LE(countEntries("/proc/self/task"), threads);
  // Half a megabyte: allocators keep some; a leak of a communicator would be a hundred times more.
  // Sanitizers keep what was freed for a while.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(residentBytes(), bytes + (size_t{512} << 10));
#else
  EXPECT_GT(bytes, 0u);
#endif
}

TEST(Endings, AbortOfAnInitialisationThatAnotherThreadWaitsFor) {
  inThreeTries([](int) {
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    for (const int ranksHere : {1, 2}) {
      std::vector<ncclComm_t> comms(2);
      std::atomic<bool> hasStarted{false};
      std::thread waiting([&] {
        EXPECT_NCCL(ncclGroupStart());
        for (int rank = 0; rank < ranksHere; ++rank)
          EXPECT_NCCL(ncclCommInitRank(&comms[static_cast<size_t>(rank)], 3, id, rank));
        hasStarted = true;
        EXPECT_NE(ncclGroupEnd(), ncclSuccess);
      });
      while (!hasStarted) std::this_thread::yield();
      const auto start = std::chrono::steady_clock::now();
      for (int rank = 0; rank < ranksHere; ++rank)
        EXPECT_NCCL(ncclCommAbort(comms[static_cast<size_t>(rank)]));
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
      waiting.join();
      EXPECT_EQ(ncclCommAbort(comms[0]), ncclInvalidArgument);  // twice is an error, not a crash
      ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    }
  });
}

// The rank is not in a call, so no link of its own tells; and `parent` still knows the child.
TEST(Endings, ARankThatAbortsOrRevokesBetweenCallsIsNamedByThoseThatWait) {
  for (const bool revokes : {false, true}) {
    for (const bool hasLinks : {false, true}) {
      runRanks(3, [&](int rank, ncclComm_t parent) {
        ncclComm_t comm = nullptr;
        ASSERT_EQ(ncclCommSplit(parent, 0, 0, &comm, nullptr), ncclSuccess);
        int64_t value = 1;
        if (hasLinks) {
          EXPECT_NCCL(ncclAllReduce(&value, &value, 1, ncclInt64, ncclSum, comm, nullptr));
        }
        if (rank == 1) {
          if (revokes) {
            EXPECT_NCCL(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
          }
          EXPECT_NCCL(ncclCommAbort(comm));
        } else {
          EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclInt64, ncclSum, comm, nullptr),
                    ncclRemoteError);
          EXPECT_THAT(ncclGetLastError(comm), HasSubstr("rank 1"));
          EXPECT_NCCL(ncclCommAbort(comm));
        }
        // Nobody leaves the parent before all have heard.
        EXPECT_NCCL(ncclAllReduce(&value, &value, 1, ncclInt64, ncclSum, parent, nullptr));
      });
    }
  }
}

// Nothing flows, so nothing holds a rank back until its peers have made their ends of the links.
TEST(Endings, ARankMayLeaveAfterACallOfNoElements) {
  for (int late = 0; late < 3; ++late) {
    runRanks(3, [late](int rank, ncclComm_t comm) {
      std::vector<float> in(8), out(8);
      if (rank == late) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_NCCL(ncclAlltoAll(in.data(), out.data(), 0, ncclFloat, comm, nullptr));
      EXPECT_NCCL(ncclAllReduce(in.data(), out.data(), 0, ncclFloat, ncclSum, comm, nullptr));
      EXPECT_NCCL(ncclBroadcast(in.data(), out.data(), 0, ncclFloat, 1, comm, nullptr));
    });
  }
}

TEST(Endings, AChildLeavesNothingInItsParent) {
  runRanks(1, [](int, ncclComm_t parent) {
    const auto oneChild = [parent] {
      ncclComm_t child = nullptr;
      ASSERT_EQ(ncclCommSplit(parent, 0, 0, &child, nullptr), ncclSuccess);
      EXPECT_NCCL(ncclCommDestroy(child));
    };
    const size_t descriptors = countEntries("/proc/self/fd");
    oneChild();
    EXPECT_LE(countEntries("/proc/self/fd"), descriptors);
  });
}

TEST(Endings, RanksDestroyInAnyOrderWithoutWaitingForEachOther) {
  constexpr int kRanks = 4;
  for (int shift = 0; shift < kRanks; ++shift) {
    std::vector<ncclComm_t> comms(kRanks);
    ASSERT_EQ(ncclCommInitAll(comms.data(), kRanks, nullptr), ncclSuccess);
    std::vector<int64_t> values(kRanks, 1);
    EXPECT_NCCL(ncclGroupStart());
    for (size_t i = 0; i < kRanks; ++i)
      EXPECT_NCCL(ncclAllReduce(&values[i], &values[i], 1, ncclInt64, ncclSum, comms[i], nullptr));
    EXPECT_NCCL(ncclGroupEnd());
    for (int i = 0; i < kRanks; ++i)
      EXPECT_NCCL(ncclCommDestroy(comms[static_cast<size_t>((i * 3 + shift) % kRanks)]));
  }
}

TEST(Endings, InAGroupComeAfterItsCalls) {
  std::vector<ncclComm_t> comms(2);
  ASSERT_EQ(ncclCommInitAll(comms.data(), 2, nullptr), ncclSuccess);
  float values[] = {1, 2};
  EXPECT_NCCL(ncclGroupStart());
  EXPECT_NCCL(ncclAllReduce(&values[0], &values[0], 1, ncclFloat, ncclSum, comms[0], nullptr));
  EXPECT_NCCL(ncclAllReduce(&values[1], &values[1], 1, ncclFloat, ncclSum, comms[1], nullptr));
  EXPECT_NCCL(ncclCommFinalize(comms[0]));
  for (ncclComm_t comm : comms) EXPECT_NCCL(ncclCommDestroy(comm));
  EXPECT_NCCL(ncclGroupEnd());
  EXPECT_EQ(values[0], 3);
  EXPECT_EQ(values[1], 3);
  for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidArgument);
}

TEST(Endings, InAGroupWithAnErrorAreOnlyThoseThatFree) {
  std::vector<ncclComm_t> comms(2);
  ASSERT_EQ(ncclCommInitAll(comms.data(), 2, nullptr), ncclSuccess);
  float value = 1;
  EXPECT_NCCL(ncclGroupStart());
  EXPECT_NCCL(ncclCommFinalize(comms[0]));
  EXPECT_NCCL(ncclCommDestroy(comms[1]));
  EXPECT_EQ(ncclBroadcast(&value, &value, 1, ncclFloat, 7, comms[0], nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_NCCL(ncclCommFinalize(comms[0]));
  EXPECT_NCCL(ncclCommDestroy(comms[0]));
  EXPECT_EQ(ncclCommDestroy(comms[1]), ncclInvalidArgument);
}

TEST(Endings, DestroyBeforeTheGroupThatInitialisesEndsIt) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t comm = nullptr;
  EXPECT_NCCL(ncclGroupStart());
  EXPECT_NCCL(ncclCommInitRank(&comm, 2, id, 0));
  EXPECT_NCCL(ncclCommDestroy(comm));
  EXPECT_NE(ncclGroupEnd(), ncclSuccess);
}

// How a communicator is ended while a call on it is under way in another thread.
struct Ending {
  const char* name;
  ncclResult_t (*end)(ncclComm_t);
  ncclResult_t afterwards;  // of a call
};
constexpr Ending kEndings[] = {{"destroy", ncclCommDestroy, ncclInvalidArgument},
                               {"finalize", ncclCommFinalize, ncclInvalidUsage}};

ncclResult_t sum(ncclComm_t comm, int64_t& value, cudaStream_t stream = nullptr) {
  return ncclAllReduce(&value, &value, 1, ncclInt64, ncclSum, comm, stream);
}

// It waits for the call, which waits for its peer. `begin` leaves the call of rank 0 under way,
// `await` is through when that is.
void expectEndingToWait(const Ending& ending, const std::vector<ncclComm_t>& comms,
                        const std::function<void()>& begin, const std::function<void()>& await) {
  SCOPED_TRACE(ending.name);
  constexpr std::chrono::milliseconds kUnderWay{50};
  std::atomic<bool> hasEnded{false};
  begin();
  std::this_thread::sleep_for(kUnderWay);
  std::thread ender([&] {
    EXPECT_NCCL(ending.end(comms[0]));
    hasEnded = true;
  });
  std::this_thread::sleep_for(kUnderWay);
  EXPECT_FALSE(hasEnded);
  int64_t other = 2;
  EXPECT_NCCL(sum(comms[1], other));
  EXPECT_EQ(other, 3);
  await();
  ender.join();
  int64_t value = 0;
  EXPECT_EQ(sum(comms[0], value), ending.afterwards);
  EXPECT_NCCL(ncclCommDestroy(comms[1]));
  if (ending.afterwards == ncclInvalidUsage) {
    EXPECT_NCCL(ncclCommDestroy(comms[0]));
  }
}

std::vector<ncclComm_t> makeTwo() {
  std::vector<ncclComm_t> comms(2);
  EXPECT_EQ(ncclCommInitAll(comms.data(), 2, nullptr), ncclSuccess) << ncclGetLastError(nullptr);
  return comms;
}

TEST(Endings, WaitForACallOfAnotherThread) {
  for (const Ending& ending : kEndings) {
    const auto comms = makeTwo();
    int64_t value = 1;
    std::thread caller;
    expectEndingToWait(
        ending, comms, [&] { caller = std::thread([&] { EXPECT_NCCL(sum(comms[0], value)); }); },
        [&] { caller.join(); });
    EXPECT_EQ(value, 3);
  }
}

// That has begun, or is queued behind the user's own work.
TEST(Endings, WaitForACallOnAStream) {
  for (const Ending& ending : kEndings) {
    for (const bool isQueued : {false, true}) {
      const auto comms = makeTwo();
      int64_t value = 1;
      cudaStream_t stream = nullptr;
      ASSERT_EQ(ncclTuttiStreamCreate(&stream), ncclSuccess);
      std::atomic<bool> mayGoOn{!isQueued};
      const auto block = [](void* flag) {
        while (!static_cast<std::atomic<bool>*>(flag)->load())
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
      };
      std::thread opener;
      const auto begin = [&] {
        EXPECT_NCCL(ncclTuttiLaunchHostFunc(stream, block, &mayGoOn));
        EXPECT_NCCL(sum(comms[0], value, stream));
        opener = std::thread([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(150));
          mayGoOn = true;
        });
      };
      expectEndingToWait(ending, comms, begin,
                         [&] { EXPECT_NCCL(ncclTuttiStreamSynchronize(stream)); });
      opener.join();
      EXPECT_EQ(value, 3);
      EXPECT_NCCL(ncclTuttiStreamDestroy(stream));
    }
  }
}

// Calls until the communicator is gone, here or there.
ncclResult_t callUntilItEnds(ncclComm_t comm, cudaStream_t stream) {
  int64_t value = 1;
  ncclResult_t result = ncclSuccess;
  while (result == ncclSuccess) {
    result = sum(comm, value, stream);
    const ncclResult_t waited = ncclTuttiStreamSynchronize(stream);
    if (result == ncclSuccess) result = waited;
    if (result == ncclSuccess && stream != nullptr) {
      ncclResult_t state = ncclSuccess;  // of what ran on the stream
      result = ncclCommGetAsyncError(comm, &state);
      if (result == ncclSuccess) result = state;
    }
  }
  return result;
}

// At any moment, both ranks' or one's, in any order, twice at once.
TEST(Endings, AmidCallsAreAnErrorOfTheNextOnes) {
  std::minstd_rand random(20261128);
  for (int times = 0; times < 36; ++times) {
    SCOPED_TRACE(times);
    const auto comms = makeTwo();
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        cudaStream_t stream = nullptr;
        if (times % 3 == 2) {
          EXPECT_NCCL(ncclTuttiStreamCreate(&stream));
        }
        EXPECT_THAT(callUntilItEnds(comms[rank], stream),
                    testing::AnyOf(ncclInvalidArgument, ncclInvalidUsage, ncclRemoteError));
        if (stream != nullptr) {
          EXPECT_NCCL(ncclTuttiStreamDestroy(stream));
        }
      });
    }
    std::atomic<int> destroyed{0};
    for (int i = 0; i < 3; ++i) {  // one is destroyed by two threads
      const std::chrono::microseconds moment(random() % 1500);
      threads.emplace_back([&, i, moment] {
        std::this_thread::sleep_for(moment);
        if (i < 2 && times % 2 == 0) {
          const ncclResult_t result = ncclCommFinalize(comms[static_cast<size_t>(i)]);
          EXPECT_NE(result, ncclInternalError);
        }
        const ncclResult_t result = ncclCommDestroy(comms[static_cast<size_t>(i % 2)]);
        EXPECT_THAT(result, testing::AnyOf(ncclSuccess, ncclInvalidArgument));
        destroyed += result == ncclSuccess ? 1 : 0;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(destroyed, 2);
  }
}

TEST(Scalable, TakesSeveralMeetingPlaces) {
  constexpr int kRanks = 5;
  std::vector<ncclUniqueId> ids(3);
  for (ncclUniqueId& id : ids) ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      ncclComm_t comm = nullptr;
      ASSERT_EQ(ncclCommInitRankScalable(&comm, kRanks, rank, 3, ids.data(), nullptr), ncclSuccess)
          << ncclGetLastError(nullptr);
      int64_t value = rank;
      EXPECT_NCCL(ncclAllReduce(&value, &value, 1, ncclInt64, ncclSum, comm, nullptr));
      EXPECT_EQ(value, 10);
      EXPECT_NCCL(ncclCommDestroy(comm));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Scalable, RefusesListsThatDiffer) {
  std::vector<ncclUniqueId> ids(3);
  for (ncclUniqueId& id : ids) ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const std::vector<ncclUniqueId> mine = {ids[0], ids[static_cast<size_t>(rank + 1)]};
      ncclComm_t comm = nullptr;
      EXPECT_EQ(ncclCommInitRankScalable(&comm, 2, rank, 2, const_cast<ncclUniqueId*>(mine.data()),
                                         nullptr),
                ncclInvalidUsage);
      EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("different lists of ids"));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tutti::conformance
