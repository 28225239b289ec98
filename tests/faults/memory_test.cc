// Each allocation of a communicator's life fails once: an error code comes back, nothing is left
// behind, and the next life is a good one. Needs inject.c preloaded.
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <nccl.h>

#include <cstdlib>
#include <functional>
#include <string>

#include "../conformance/ranks.h"
#include "inject.h"
#include "times.h"

namespace tutti::faults {
namespace {

class Memory : public testing::Test {
 protected:
  void SetUp() override {
    arm_ = reinterpret_cast<InjectFault*>(::dlsym(RTLD_DEFAULT, "injectFault"));
    calls_ = reinterpret_cast<InjectedCalls*>(::dlsym(RTLD_DEFAULT, "injectedCalls"));
    if (arm_ == nullptr) GTEST_SKIP() << "inject.c is not preloaded";
  }

  // Lets the first, second, ... allocation fail until the life needs no more; the number of them.
  long sweep(InjectKind kind, const std::function<ncclResult_t()>& life, long step = 1) {
    EXPECT_EQ(life(), ncclSuccess) << ncclGetLastError(nullptr);
    for (long nth = 0;; nth += step) {
      arm_(kind, nth, ENOMEM, 0);
      const ncclResult_t result = life();
      const long calls = calls_(kind);
      arm_(kind, -1, 0, 0);
      if (result != ncclSuccess) {
        EXPECT_TRUE(result == ncclSystemError || result == ncclRemoteError)
            << "allocation " << nth << ": " << result << " " << ncclGetLastError(nullptr);
      }
      if (nth % 16 == 0) {
        EXPECT_EQ(life(), ncclSuccess) << nth << ncclGetLastError(nullptr);
      }
      if (calls <= nth || testing::Test::HasFailure()) return calls;
    }
  }

  InjectFault* arm_ = nullptr;
  InjectedCalls* calls_ = nullptr;
};

// Two ranks of one thread, with work on them.
ncclResult_t twoRanks() {
  ncclComm_t comms[2] = {};
  ncclResult_t result = ncclCommInitAll(comms, 2, nullptr);
  if (result != ncclSuccess) return result;
  float values[2] = {1, 2};
  static_cast<void>(ncclGroupStart());
  for (int i = 0; i < 2; ++i)
    static_cast<void>(
        ncclAllReduce(&values[i], &values[i], 1, ncclFloat, ncclSum, comms[i], nullptr));
  result = ncclGroupEnd();
  for (ncclComm_t comm : comms) {
    if (const ncclResult_t ended = ncclCommDestroy(comm); result == ncclSuccess) result = ended;
  }
  return result;
}

// One rank that met itself over the network.
ncclResult_t oneRank() {
  ncclUniqueId id;
  ncclResult_t result = ncclGetUniqueId(&id);
  if (result != ncclSuccess) return result;
  ncclComm_t comm = nullptr;
  result = ncclCommInitRank(&comm, 1, id, 0);
  if (result != ncclSuccess) return result;
  float value = 1;
  result = ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comm, nullptr);
  const ncclResult_t ended = ncclCommDestroy(comm);
  return result == ncclSuccess ? ended : result;
}

// Two ranks that meet at a root each, so at two at the same time.
ncclResult_t twoRoots() {
  ncclUniqueId ids[2];
  for (ncclUniqueId& id : ids) {
    if (const ncclResult_t result = ncclGetUniqueId(&id); result != ncclSuccess) return result;
  }
  ncclComm_t comms[2] = {};
  static_cast<void>(ncclGroupStart());
  for (int rank = 0; rank < 2; ++rank)
    static_cast<void>(ncclCommInitRankScalable(&comms[rank], 2, rank, 2, ids, nullptr));
  const ncclResult_t result = ncclGroupEnd();
  for (ncclComm_t comm : comms) {
    if (comm != nullptr) static_cast<void>(ncclCommAbort(comm));
  }
  return result;
}

size_t usedBytes() { return ::mallinfo2().uordblks; }

TEST_F(Memory, EachAllocationOfTwoRanksMayFail) {
  setBoundOfTest(std::chrono::minutes(2));  // thousands of lives
  const long calls = sweep(kInjectMalloc, twoRanks);
  EXPECT_GT(calls, 50);
  const size_t used = usedBytes();
  sweep(kInjectMalloc, twoRanks, 7);
  EXPECT_LT(usedBytes(), used + (size_t{64} << 10)) << "failed lives left memory behind";
}

constexpr const char* kRoots = "an id at which no rank came to meet keeps its root";

TEST_F(Memory, EachAllocationOfAMeetingMayFail) {
  allowLeftovers(kRoots);
  EXPECT_GT(sweep(kInjectMalloc, oneRank), 50);
}

TEST_F(Memory, EachAllocationOfAMeetingAtTwoRootsMayFail) {
  allowLeftovers(kRoots);
  ::setenv("TUTTI_TIMEOUT_MS", "1000", 1);  // which the other may wait
  setBoundOfTest(std::chrono::minutes(3));
  EXPECT_GT(sweep(kInjectMalloc, twoRoots), 100);
}

TEST_F(Memory, EachMappingMayFail) { EXPECT_GT(sweep(kInjectMmap, twoRanks), 1); }

TEST_F(Memory, EachThreadMayFail) {
  allowLeftovers(kRoots);
  EXPECT_GT(sweep(kInjectThread, twoRanks), 1);
  EXPECT_GT(sweep(kInjectThread, oneRank), 0);
}

}  // namespace
}  // namespace tutti::faults
