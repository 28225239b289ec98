// Communicators made of others: split by colour, shrunk after a fault, and the revoked parent that
// is left.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <utility>

#include "../../src/base/patience_testing.h"
#include "ranks.h"

namespace tutti::conformance {
namespace {

using testing::HasSubstr;

void expectSum(ncclComm_t comm, int64_t own, int64_t sum) {
  int64_t value = own;
  EXPECT_NCCL(ncclAllReduce(&value, &value, 1, ncclInt64, ncclSum, comm, nullptr));
  EXPECT_EQ(value, sum);
}

void expectPlace(ncclComm_t comm, int rank, int count) {
  int seenRank = -1;
  int seenCount = -1;
  EXPECT_NCCL(ncclCommUserRank(comm, &seenRank));
  EXPECT_NCCL(ncclCommCount(comm, &seenCount));
  EXPECT_EQ(seenRank, rank);
  EXPECT_EQ(seenCount, count);
}

// Asks until it is no longer in progress.
ncclResult_t settle(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
    std::this_thread::yield();
  }
  return state;
}

// One communicator of ranks that other threads drive.
std::vector<ncclComm_t> makeAll(int rankCount) {
  std::vector<ncclComm_t> comms(static_cast<size_t>(rankCount));
  EXPECT_EQ(ncclCommInitAll(comms.data(), rankCount, nullptr), ncclSuccess);
  return comms;
}

void onThreads(const std::vector<ncclComm_t>& comms,
               const std::function<void(int, ncclComm_t)>& body) {
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < comms.size(); ++rank)
    threads.emplace_back([&, rank] { body(static_cast<int>(rank), comms[rank]); });
  for (std::thread& thread : threads) thread.join();
}

TEST(Split, GroupsByColourAndOrdersByKeyThenRank) {
  runRanks(7, [](int rank, ncclComm_t comm) {
    // Colours 0: ranks 0 2 4 6; 1: ranks 1 3 5. Keys turn the order round; 0 and 6 share a key.
    const int key = rank == 6 ? 0 : -rank;
    ncclComm_t child = nullptr;
    ASSERT_EQ(ncclCommSplit(comm, rank % 2, key, &child, nullptr), ncclSuccess)
        << ncclGetLastError(comm);
    const std::vector<int> order =
        rank % 2 == 0 ? std::vector<int>{4, 2, 0, 6} : std::vector<int>{5, 3, 1};
    expectPlace(child, static_cast<int>(std::ranges::find(order, rank) - order.begin()),
                static_cast<int>(order.size()));
    expectSum(child, rank, rank % 2 == 0 ? 12 : 9);
    expectSum(comm, rank, 21);
    EXPECT_NCCL(ncclCommDestroy(child));
  });
}

TEST(Split, NoColourTakesPartAndGetsNothing) {
  runRanks(4, [](int rank, ncclComm_t comm) {
    ncclComm_t child = comm;
    EXPECT_NCCL(ncclCommSplit(comm, rank == 2 ? NCCL_SPLIT_NOCOLOR : 5, 0, &child, nullptr));
    if (rank == 2) {
      EXPECT_EQ(child, nullptr);
    } else {
      expectSum(child, 1, 3);
      EXPECT_NCCL(ncclCommDestroy(child));
    }
    expectSum(comm, rank, 6);
  });
}

TEST(Split, AParentMayBeDestroyedBeforeItsChildren) {
  constexpr int kRanks = 3;
  const std::vector<ncclComm_t> comms = makeAll(kRanks);
  std::vector<ncclComm_t> children(kRanks);
  onThreads(comms, [&](int rank, ncclComm_t comm) {
    EXPECT_NCCL(ncclCommSplit(comm, 0, 0, &children[static_cast<size_t>(rank)], nullptr));
    EXPECT_NCCL(ncclCommDestroy(comm));
  });
  onThreads(children, [](int rank, ncclComm_t child) {
    expectSum(child, rank, 3);
    ncclComm_t grandchild = nullptr;
    EXPECT_NCCL(ncclCommSplit(child, 0, -rank, &grandchild, nullptr));
    expectPlace(grandchild, kRanks - 1 - rank, kRanks);
    EXPECT_NCCL(ncclCommDestroy(child));
    expectSum(grandchild, rank, 3);
    EXPECT_NCCL(ncclCommDestroy(grandchild));
  });
}

TEST(Split, OneThreadSplitsSeveralRanksInAGroup) {
  constexpr int kRanks = 4;
  const std::vector<ncclComm_t> comms = makeAll(kRanks);
  std::vector<ncclComm_t> pairs(kRanks), all(kRanks);
  EXPECT_NCCL(ncclGroupStart());
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto at = static_cast<size_t>(rank);
    EXPECT_NCCL(ncclCommSplit(comms[at], rank / 2, rank, &pairs[at], nullptr));
    EXPECT_NCCL(ncclCommSplit(comms[at], 0, -rank, &all[at], nullptr));
  }
  EXPECT_NCCL(ncclGroupEnd());
  onThreads(pairs, [](int rank, ncclComm_t comm) {
    expectPlace(comm, rank % 2, 2);
    expectSum(comm, rank, rank < 2 ? 1 : 5);
  });
  onThreads(all, [](int rank, ncclComm_t comm) {
    expectPlace(comm, kRanks - 1 - rank, kRanks);
    expectSum(comm, rank, 6);
  });
  for (const std::vector<ncclComm_t>* list : {&comms, &std::as_const(pairs), &std::as_const(all)}) {
    for (ncclComm_t comm : *list) EXPECT_NCCL(ncclCommDestroy(comm));
  }
}

TEST(Split, NonBlockingSplitsArePolled) {
  constexpr int kRanks = 3;
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<ncclComm_t> comms(kRanks), children(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const auto at = static_cast<size_t>(rank);
    EXPECT_EQ(ncclCommInitRankConfig(&comms[at], kRanks, id, rank, &config), ncclInProgress);
  }
  for (ncclComm_t comm : comms) EXPECT_EQ(settle(comm), ncclSuccess);
  // One thread, rank after rank, without a group: a call that waited would never come back.
  for (int rank = 0; rank < kRanks; ++rank) {
    const int color = rank == 1 ? NCCL_SPLIT_NOCOLOR : 3;
    EXPECT_EQ(ncclCommSplit(comms[static_cast<size_t>(rank)], color, 0,
                            &children[static_cast<size_t>(rank)], nullptr),
              ncclInProgress);
  }
  for (ncclComm_t comm : comms) EXPECT_EQ(settle(comm), ncclSuccess);
  EXPECT_EQ(children[1], nullptr);
  for (const size_t at : {size_t{0}, size_t{2}}) {
    ASSERT_EQ(settle(children[at]), ncclSuccess);
    expectPlace(children[at], at == 0 ? 0 : 1, 2);
    EXPECT_NCCL(ncclCommDestroy(children[at]));
  }
  for (ncclComm_t comm : comms) EXPECT_NCCL(ncclCommDestroy(comm));
}

TEST(Split, AbortOfAChildThatWaitsForAPeerReturnsAtOnce) {
  inThreeTries([](int) {
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    std::vector<ncclComm_t> comms(2);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    for (int rank = 0; rank < 2; ++rank)
      EXPECT_EQ(ncclCommInitRankConfig(&comms[static_cast<size_t>(rank)], 2, id, rank, &config),
                ncclInProgress);
    for (ncclComm_t comm : comms) EXPECT_EQ(settle(comm), ncclSuccess);
    ncclComm_t child = nullptr;
    EXPECT_EQ(ncclCommSplit(comms[0], 0, 0, &child, nullptr), ncclInProgress);
    int count = 0;
    EXPECT_EQ(ncclCommCount(child, &count), ncclInvalidArgument);  // nobody knows yet
    const auto start = std::chrono::steady_clock::now();
    EXPECT_NCCL(ncclCommAbort(child));
    // A parent's end waits for no peer of a child either.
    EXPECT_EQ(ncclCommSplit(comms[0], 0, 0, &child, nullptr), ncclInProgress);
    EXPECT_NCCL(ncclCommAbort(comms[0]));
    EXPECT_NE(settle(child), ncclSuccess);
    EXPECT_NCCL(ncclCommAbort(child));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
    EXPECT_NCCL(ncclCommAbort(comms[1]));
  });
}

TEST(Split, RefusesBadColoursAndStates) {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess);
  ncclComm_t child = nullptr;
  EXPECT_EQ(ncclCommSplit(comm, -2, 0, &child, nullptr), ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(comm), HasSubstr("color is -2"));
  EXPECT_EQ(ncclCommSplit(comm, 0, 0, nullptr, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommSplit(nullptr, 0, 0, &child, nullptr), ncclInvalidArgument);
  EXPECT_NCCL(ncclCommFinalize(comm));
  EXPECT_EQ(ncclCommSplit(comm, 0, 0, &child, nullptr), ncclInvalidUsage);
  EXPECT_EQ(child, nullptr);
  EXPECT_NCCL(ncclCommDestroy(comm));
}

TEST(Split, APeerThatLeavesInsteadOfSplittingIsNamed) {
  const std::vector<ncclComm_t> comms = makeAll(2);
  onThreads(comms, [](int rank, ncclComm_t comm) {
    ncclComm_t child = nullptr;
    if (rank == 0) {
      EXPECT_EQ(ncclCommSplit(comm, -7, 0, &child, nullptr), ncclInvalidArgument);
      EXPECT_NCCL(ncclCommDestroy(comm));
    } else {
      EXPECT_EQ(ncclCommSplit(comm, 0, 0, &child, nullptr), ncclRemoteError);
      EXPECT_THAT(ncclGetLastError(comm), HasSubstr("rank 0"));
      EXPECT_NCCL(ncclCommDestroy(comm));
    }
  });
}

TEST(Shrink, LeavesOutTheListedRanksWithoutAskingThem) {
  constexpr int kRanks = 5;
  const std::vector<ncclComm_t> comms = makeAll(kRanks);
  onThreads(comms, [](int rank, ncclComm_t comm) {
    if (rank == 0 || rank == 3) return;
    int excluded[] = {3, 0};
    ncclComm_t child = nullptr;
    ASSERT_EQ(ncclCommShrink(comm, excluded, 2, &child, nullptr, NCCL_SHRINK_DEFAULT), ncclSuccess)
        << ncclGetLastError(comm);
    expectPlace(child, rank == 4 ? 2 : rank - 1, 3);
    expectSum(child, rank, 7);
    EXPECT_NCCL(ncclCommDestroy(child));
  });
  // The parent stays usable, for all its ranks.
  onThreads(comms, [](int rank, ncclComm_t comm) { expectSum(comm, rank, 10); });
  // And can be shrunk in another way, also by ranks that have counted fewer shrinks.
  onThreads(comms, [](int rank, ncclComm_t comm) {
    if (rank == 4) return;
    int excluded[] = {4};
    ncclComm_t child = nullptr;
    EXPECT_NCCL(ncclCommShrink(comm, excluded, 1, &child, nullptr, NCCL_SHRINK_DEFAULT));
    expectSum(child, rank, 6);
    EXPECT_NCCL(ncclCommDestroy(child));
  });
  for (ncclComm_t comm : comms) EXPECT_NCCL(ncclCommDestroy(comm));
}

TEST(Shrink, AbortEndsWhatTheParentIsDoing) {
  constexpr int kRanks = 4;
  const std::vector<ncclComm_t> comms = makeAll(kRanks);
  // Rank 3 never calls: the others hang in an all-reduce until they shrink.
  std::vector<std::thread> stuck;
  for (size_t rank = 0; rank < 3; ++rank) {
    stuck.emplace_back([comm = comms[rank]] {
      std::vector<float> values(100000, 1);
      EXPECT_NE(ncclAllReduce(values.data(), values.data(), values.size(), ncclFloat, ncclSum, comm,
                              nullptr),
                ncclSuccess);
    });
  }
  const std::vector<ncclComm_t> survivors(comms.begin(), comms.begin() + 3);
  onThreads(survivors, [](int rank, ncclComm_t comm) {
    int excluded[] = {3};
    ncclComm_t child = nullptr;
    ASSERT_EQ(ncclCommShrink(comm, excluded, 1, &child, nullptr, NCCL_SHRINK_ABORT), ncclSuccess)
        << ncclGetLastError(comm);
    expectPlace(child, rank, 3);
    expectSum(child, rank, 3);
    EXPECT_NCCL(ncclCommDestroy(child));
    float value = 1;
    EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comm, nullptr),
              ncclInvalidUsage);
  });
  for (std::thread& thread : stuck) thread.join();
  for (ncclComm_t comm : comms) EXPECT_NCCL(ncclCommAbort(comm));
}

TEST(Shrink, TheLastRankCanShrinkToItself) {
  const std::vector<ncclComm_t> comms = makeAll(3);
  int excluded[] = {0, 2};
  ncclComm_t child = nullptr;
  EXPECT_NCCL(ncclCommShrink(comms[1], excluded, 2, &child, nullptr, NCCL_SHRINK_ABORT));
  expectPlace(child, 0, 1);
  expectSum(child, 9, 9);
  EXPECT_NCCL(ncclCommDestroy(child));
  for (ncclComm_t comm : comms) EXPECT_NCCL(ncclCommAbort(comm));
}

TEST(Shrink, RefusesListsThatCannotBe) {
  const std::vector<ncclComm_t> comms = makeAll(3);
  ncclComm_t child = nullptr;
  const auto shrink = [&](std::vector<int> list, int flags) {
    return ncclCommShrink(comms[0], list.data(), static_cast<int>(list.size()), &child, nullptr,
                          flags);
  };
  EXPECT_EQ(shrink({3}, NCCL_SHRINK_DEFAULT), ncclInvalidArgument);
  EXPECT_EQ(shrink({-1}, NCCL_SHRINK_DEFAULT), ncclInvalidArgument);
  EXPECT_EQ(shrink({1, 2, 1}, NCCL_SHRINK_DEFAULT), ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("rank 1 twice"));
  EXPECT_EQ(shrink({1, 0}, NCCL_SHRINK_ABORT), ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("this rank itself"));
  EXPECT_EQ(shrink({1}, 2), ncclInvalidArgument);
  EXPECT_EQ(ncclCommShrink(comms[0], nullptr, 1, &child, nullptr, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommShrink(comms[0], nullptr, -1, &child, nullptr, 0), ncclInvalidArgument);
  EXPECT_EQ(child, nullptr);
  // Nothing was done, not even by the one that asked to abort.
  onThreads(comms, [](int rank, ncclComm_t comm) { expectSum(comm, rank, 3); });
  for (ncclComm_t comm : comms) EXPECT_NCCL(ncclCommDestroy(comm));
}

// By the rank that is left out, while the others make their new communicator.
TEST(Shrink, IsUnharmedByAnIdThatIsUsedAgainMeanwhile) {
  constexpr int kRanks = 3;
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<ncclComm_t> comms(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      ncclComm_t& comm = comms[static_cast<size_t>(rank)];
      ASSERT_EQ(ncclCommInitRank(&comm, kRanks, id, rank), ncclSuccess);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::atomic<bool> isRefused{false};
  onThreads(comms, [&](int rank, ncclComm_t comm) {
    if (rank == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // rank 0 is in its shrink
      ncclComm_t second = nullptr;
      EXPECT_EQ(ncclCommInitRank(&second, kRanks, id, rank), ncclInvalidUsage);
      EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("already used"));
      isRefused = true;
      return;
    }
    while (rank == 1 && !isRefused) std::this_thread::yield();
    int excluded[] = {2};
    ncclComm_t child = nullptr;
    ASSERT_EQ(ncclCommShrink(comm, excluded, 1, &child, nullptr, NCCL_SHRINK_DEFAULT), ncclSuccess)
        << ncclGetLastError(comm);
    expectPlace(child, rank, 2);
    expectSum(child, rank, 1);
    EXPECT_NCCL(ncclCommDestroy(child));
  });
  for (ncclComm_t comm : comms) EXPECT_NCCL(ncclCommDestroy(comm));
}

TEST(Revoke, EndsOperationsAndLeavesWhatIsNeededToGoOn) {
  constexpr int kRanks = 3;
  const std::vector<ncclComm_t> comms = makeAll(kRanks);
  std::thread stuck([comm = comms[0]] {
    float value = 1;
    EXPECT_NE(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comm, nullptr), ncclSuccess);
  });
  onThreads(comms, [](int rank, ncclComm_t comm) {
    EXPECT_NCCL(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
    EXPECT_NCCL(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
    float value = 1;
    EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comm, nullptr),
              ncclInvalidUsage);
    EXPECT_THAT(ncclGetLastError(comm), HasSubstr("revoked"));
    EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidUsage);
    ncclComm_t child = nullptr;
    EXPECT_NCCL(ncclCommSplit(comm, 0, 0, &child, nullptr));
    expectSum(child, rank, 3);
    EXPECT_NCCL(ncclCommDestroy(child));
    EXPECT_NCCL(ncclCommDestroy(comm));
  });
  stuck.join();
}

TEST(Revoke, RefusesUnknownFlagsAndTellsPeersThatWait) {
  const std::vector<ncclComm_t> comms = makeAll(2);
  onThreads(comms, [](int rank, ncclComm_t comm) { expectSum(comm, rank, 1); });
  EXPECT_EQ(ncclCommRevoke(comms[0], 4), ncclInvalidArgument);
  std::thread waiting([comm = comms[1]] {
    float value = 1;
    EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comm, nullptr), ncclRemoteError);
  });
  EXPECT_NCCL(ncclCommRevoke(comms[0], NCCL_REVOKE_DEFAULT));
  waiting.join();
  for (ncclComm_t comm : comms) EXPECT_NCCL(ncclCommDestroy(comm));
}

TEST(Registration, KeepsRangesByHandle) {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess);
  std::vector<float> buffer(1000, 2.0f);
  void *first = nullptr, *second = nullptr;
  EXPECT_NCCL(ncclCommRegister(comm, buffer.data(), 4000, &first));
  EXPECT_NCCL(ncclCommRegister(comm, buffer.data() + 10, 100, &second));
  EXPECT_NE(first, nullptr);
  EXPECT_NE(first, second);
  EXPECT_NCCL(ncclAllReduce(buffer.data(), buffer.data(), 1000, ncclFloat, ncclSum, comm, nullptr));
  EXPECT_EQ(buffer[999], 2.0f);
  EXPECT_NCCL(ncclCommDeregister(comm, first));
  EXPECT_EQ(ncclCommDeregister(comm, first), ncclInvalidArgument);
  EXPECT_EQ(ncclCommDeregister(comm, nullptr), ncclInvalidArgument);
  EXPECT_NCCL(ncclCommDeregister(comm, second));
  EXPECT_EQ(ncclCommRegister(comm, nullptr, 4, &first), ncclInvalidArgument);
  EXPECT_EQ(ncclCommRegister(comm, buffer.data(), 0, &first), ncclInvalidArgument);
  EXPECT_EQ(ncclCommRegister(comm, buffer.data(), SIZE_MAX, &first), ncclInvalidArgument);
  EXPECT_EQ(ncclCommRegister(comm, buffer.data(), 4, nullptr), ncclInvalidArgument);
  EXPECT_NCCL(ncclCommDestroy(comm));
}

}  // namespace
}  // namespace tutti::conformance
