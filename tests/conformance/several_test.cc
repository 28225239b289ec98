// Several communicators of the same ranks, and ranks that abort amid calls, wherever the ranks are.
#include <chrono>

#include "ranks.h"

namespace tutti::conformance {
namespace {

using Clock = std::chrono::steady_clock;

// Far less than a call may wait for a peer, and more than a busy machine takes a CPU away.
constexpr std::chrono::seconds kAtOnce{5};

class Several : public testing::TestWithParam<int> {
 protected:
  int ranks() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, Several, testing::Values(2, 4), testing::PrintToStringParamName());

// The ranks name the communicators in opposite order: the group makes that harmless.
TEST_P(Several, CommunicatorsOfTheSameRanksInOneGroup) {
  runRanks(ranks(), [&](int rank, ncclComm_t comm) {
    ncclComm_t second = nullptr;
    ASSERT_EQ(ncclCommSplit(comm, 0, -rank, &second, nullptr), ncclSuccess);
    for (const size_t count : {size_t{1}, size_t{40'001}}) {
      std::vector<int64_t> a(count, rank + 1);
      std::vector<int64_t> b(count, 10 * (rank + 1));
      const auto sum = [](std::vector<int64_t>& values, ncclComm_t over) {
        EXPECT_NCCL(ncclAllReduce(values.data(), values.data(), values.size(), ncclInt64, ncclSum,
                                  over, nullptr));
      };
      EXPECT_NCCL(ncclGroupStart());
      sum(rank % 2 == 0 ? a : b, rank % 2 == 0 ? comm : second);
      sum(rank % 2 == 0 ? b : a, rank % 2 == 0 ? second : comm);
      EXPECT_NCCL(ncclGroupEnd());
      const int64_t wanted = ranks() * (ranks() + 1) / 2;
      EXPECT_EQ(a, std::vector<int64_t>(count, wanted));
      EXPECT_EQ(b, std::vector<int64_t>(count, 10 * wanted));
    }
    EXPECT_NCCL(ncclCommDestroy(second));
  });
}

// Half of the ranks each, whose links are their own, while the parent's stay.
TEST_P(Several, ChildrenWorkAtOnceAndTheParentAfterThem) {
  runRanks(ranks(), [&](int rank, ncclComm_t comm) {
    int64_t value = rank;
    EXPECT_NCCL(ncclAllReduce(&value, &value, 1, ncclInt64, ncclSum, comm, nullptr));
    ncclComm_t child = nullptr;
    ASSERT_EQ(ncclCommSplit(comm, rank % 2, rank, &child, nullptr), ncclSuccess);
    std::vector<int64_t> values(20'003, rank);
    for (int round = 0; round < 3; ++round) {
      std::fill(values.begin(), values.end(), rank);
      EXPECT_NCCL(ncclAllReduce(values.data(), values.data(), values.size(), ncclInt64, ncclMax,
                                child, nullptr));
      const int64_t highest = ranks() - 2 + rank % 2;
      EXPECT_EQ(values, std::vector<int64_t>(values.size(), highest));
    }
    EXPECT_NCCL(ncclCommDestroy(child));
    value = rank;
    EXPECT_NCCL(ncclAllReduce(&value, &value, 1, ncclInt64, ncclSum, comm, nullptr));
    EXPECT_EQ(value, ranks() * (ranks() - 1) / 2);
  });
}

// The last rank aborts what it waits for in vain; the others, which call later, are told of it.
TEST_P(Several, AnAbortAmidACallEndsItEverywhere) {
  runRanks(ranks(), [&](int rank, ncclComm_t comm) {
    ncclComm_t child = nullptr;
    ASSERT_EQ(ncclCommSplit(comm, 0, rank, &child, nullptr), ncclSuccess);
    std::vector<float> values(100'000, 1);
    const auto call = [&] {
      return ncclAllReduce(values.data(), values.data(), values.size(), ncclFloat, ncclSum, child,
                           nullptr);
    };
    EXPECT_EQ(call(), ncclSuccess);  // its links are there
    const int last = ranks() - 1;
    if (rank == last) {
      ncclResult_t result = ncclSuccess;
      std::thread waiting([&] { result = call(); });
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      const auto start = Clock::now();
      EXPECT_NCCL(ncclCommAbort(child));
      EXPECT_LT(Clock::now() - start, kAtOnce);
      waiting.join();
      EXPECT_NE(result, ncclSuccess);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      EXPECT_EQ(call(), ncclRemoteError);
      EXPECT_THAT(ncclGetLastError(child), testing::HasSubstr("rank " + std::to_string(last)));
      EXPECT_NCCL(ncclCommAbort(child));
    }
    int64_t value = rank;
    EXPECT_NCCL(ncclAllReduce(&value, &value, 1, ncclInt64, ncclSum, comm, nullptr));
    EXPECT_EQ(value, ranks() * (ranks() - 1) / 2);
  });
}

}  // namespace
}  // namespace tutti::conformance
