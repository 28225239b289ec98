// pthread_cancel of threads that are in a call, or about to make one: the call goes on as if
// nothing had happened, the thread ends after it, and the communicator is anybody's to use, end or
// abort.
#include <nccl.h>
#include <pthread.h>
#include <tutti/host.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "../../src/base/patience_testing.h"
#include "../conformance/processes.h"
#include "../conformance/ranks.h"
#include "times.h"

namespace tutti::faults {
namespace {

using conformance::ProcessRank;
using testing::HasSubstr;

constexpr std::chrono::seconds kBound{1};
constexpr std::chrono::milliseconds kUnderWay{100};  // enough for a call to wait where it does

// A thread that can be cancelled, and nobody else's to join.
class Thread {
 public:
  explicit Thread(std::function<void()> body) : body_(std::move(body)) {
    EXPECT_EQ(::pthread_create(&thread_, nullptr, run, this), 0);
  }
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  void cancel() { EXPECT_EQ(::pthread_cancel(thread_), 0); }
  bool hasReturned() const { return hasReturned_; }
  // Whether its end was that of a cancelled one.
  bool join() {
    void* result = nullptr;
    EXPECT_EQ(::pthread_join(thread_, &result), 0);
    return result == PTHREAD_CANCELED;
  }

 private:
  static void* run(void* self) {
    auto* thread = static_cast<Thread*>(self);
    thread->body_();
    thread->hasReturned_ = true;
    ::pthread_testcancel();
    return nullptr;
  }

  const std::function<void()> body_;
  std::atomic<bool> hasReturned_{false};
  pthread_t thread_{};
};

// Runs `body` in a thread that is cancelled before it begins: any cancellation point that a call
// came to would end the process, since nothing unwinds through the C boundary.
void runCancelled(const std::function<void()>& body) {
  bool isDone = false;
  Thread thread([&] {
    EXPECT_EQ(::pthread_cancel(::pthread_self()), 0);
    body();
    isDone = true;
  });
  EXPECT_TRUE(thread.join());
  EXPECT_TRUE(isDone);
}

std::vector<ncclComm_t> makeComms(int count) {
  std::vector<ncclComm_t> comms(static_cast<size_t>(count));
  EXPECT_EQ(ncclCommInitAll(comms.data(), count, nullptr), ncclSuccess)
      << ncclGetLastError(nullptr);
  return comms;
}

ncclResult_t sum(ncclComm_t comm, int64_t& value, cudaStream_t stream = nullptr) {
  return ncclAllReduce(&value, &value, 1, ncclInt64, ncclSum, comm, stream);
}

// By one thread.
void expectSumOfBoth(const std::vector<ncclComm_t>& comms) {
  int64_t values[] = {1, 2};
  EXPECT_NCCL(ncclGroupStart());
  for (size_t i = 0; i < comms.size(); ++i) EXPECT_NCCL(sum(comms[i], values[i]));
  EXPECT_NCCL(ncclGroupEnd());
  EXPECT_EQ(values[0] + values[1], 6);
}

// With links, so that it waits in the operation, and without, so that it waits for a link.
TEST(Cancel, OfAThreadThatWaitsForALatePeerComesAfterItsCall) {
  for (const bool hasLinks : {false, true}) {
    const auto comms = makeComms(2);
    if (hasLinks) expectSumOfBoth(comms);
    int64_t value = 1, other = 2;
    Thread waiting([&] { EXPECT_NCCL(sum(comms[0], value)); });
    std::this_thread::sleep_for(kUnderWay);
    waiting.cancel();
    std::this_thread::sleep_for(kUnderWay);
    EXPECT_FALSE(waiting.hasReturned());
    EXPECT_NCCL(sum(comms[1], other));
    EXPECT_TRUE(waiting.join());
    EXPECT_TRUE(waiting.hasReturned());
    EXPECT_EQ(value, 3);
    EXPECT_EQ(other, 3);
    expectSumOfBoth(comms);
    for (ncclComm_t comm : comms) EXPECT_NCCL(ncclCommDestroy(comm));
  }
}

TEST(Cancel, OfAThreadThatWaitsLeavesAbortToOthers) {
  inThreeTries([](int) {
    const auto comms = makeComms(2);
    expectSumOfBoth(comms);
    int64_t value = 1;
    Thread waiting([&] { EXPECT_NE(sum(comms[0], value), ncclSuccess); });
    std::this_thread::sleep_for(kUnderWay);
    waiting.cancel();
    const auto start = Clock::now();
    EXPECT_NCCL(ncclCommAbort(comms[0]));
    EXPECT_TRUE(waiting.join());
    keepTime("Cancel: abort of a call whose thread is cancelled", Clock::now() - start, kBound);
    EXPECT_TRUE(waiting.hasReturned());
    int64_t other = 2;
    ncclResult_t result = sum(comms[1], other);
    // What the rank had sent before the abort is still an answer, once.
    if (result == ncclSuccess) result = sum(comms[1], other);
    EXPECT_EQ(result, ncclRemoteError);
    EXPECT_THAT(ncclGetLastError(comms[1]), HasSubstr("rank 0"));
    EXPECT_NCCL(ncclCommDestroy(comms[1]));
  });
}

// Destroy waits for calls that are under way, as it does for those of other threads.
TEST(Cancel, OfAThreadThatWaitsLeavesDestroyToOthers) {
  const auto comms = makeComms(2);
  expectSumOfBoth(comms);
  int64_t value = 1, other = 2;
  Thread waiting([&] { EXPECT_NCCL(sum(comms[0], value)); });
  std::this_thread::sleep_for(kUnderWay);
  waiting.cancel();
  std::thread destroyer([&] { EXPECT_NCCL(ncclCommDestroy(comms[0])); });
  std::this_thread::sleep_for(kUnderWay);
  EXPECT_NCCL(sum(comms[1], other));
  const auto start = Clock::now();
  destroyer.join();
  EXPECT_TRUE(waiting.join());
  keepTime("Cancel: destroy after the call of a cancelled thread", Clock::now() - start, kBound);
  EXPECT_EQ(value, 3);
  EXPECT_NCCL(ncclCommDestroy(comms[1]));
}

// The peer comes after the cancel, or never, and then another thread aborts.
TEST(Cancel, OfAThreadThatWaitsInInit) {
  for (const bool comes : {true, false}) {
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    std::vector<ncclComm_t> comms(2);
    std::atomic<bool> hasHandle{false};
    Thread waiting([&] {
      EXPECT_NCCL(ncclGroupStart());
      EXPECT_NCCL(ncclCommInitRank(&comms[0], 2, id, 0));
      hasHandle = true;
      EXPECT_EQ(ncclGroupEnd() == ncclSuccess, comes);
    });
    while (!hasHandle) std::this_thread::yield();
    std::this_thread::sleep_for(kUnderWay);
    waiting.cancel();
    std::this_thread::sleep_for(kUnderWay);
    EXPECT_FALSE(waiting.hasReturned());
    const auto start = Clock::now();
    if (comes) {
      EXPECT_NCCL(ncclCommInitRank(&comms[1], 2, id, 1));
    } else {
      EXPECT_NCCL(ncclCommAbort(comms[0]));
    }
    EXPECT_TRUE(waiting.join());
    if (!comes)
      keepTime("Cancel: abort of an init whose thread is cancelled", Clock::now() - start, kBound);
    EXPECT_TRUE(waiting.hasReturned());
    if (!comes) continue;
    expectSumOfBoth(comms);
    for (ncclComm_t comm : comms) EXPECT_NCCL(ncclCommDestroy(comm));
  }
}

ncclComm_t beginNonBlocking(const ncclUniqueId& id, int rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, rank, &config), ncclInProgress);
  return comm;
}

ncclResult_t poll(ncclComm_t comm) {
  ncclResult_t state = ncclInternalError;
  EXPECT_NCCL(ncclCommGetAsyncError(comm, &state));
  return state;
}

void settle(ncclComm_t comm) {
  while (poll(comm) == ncclInProgress) std::this_thread::yield();
  EXPECT_EQ(poll(comm), ncclSuccess) << ncclGetLastError(comm);
}

// What they have begun needs no thread of theirs: who polls instead sees it through.
TEST(Cancel, OfAThreadThatPollsANonBlockingCommunicator) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t comm = nullptr;
  int64_t value = 1;
  const auto pollForEver = [&](const std::function<void()>& begin) {
    std::atomic<bool> hasBegun{false};
    Thread polling([&] {
      begin();
      hasBegun = true;
      while (poll(comm) == ncclInProgress) ::pthread_testcancel();
    });
    while (!hasBegun) std::this_thread::yield();
    polling.cancel();
    EXPECT_TRUE(polling.join());
    EXPECT_FALSE(polling.hasReturned());
  };
  pollForEver([&] { comm = beginNonBlocking(id, 0); });
  const ncclComm_t peer = beginNonBlocking(id, 1);
  settle(comm);
  settle(peer);
  pollForEver([&] { EXPECT_EQ(sum(comm, value), ncclInProgress); });
  int64_t other = 2;
  EXPECT_THAT(sum(peer, other), testing::AnyOf(ncclInProgress, ncclSuccess));
  settle(comm);
  settle(peer);
  EXPECT_EQ(value, 3);
  EXPECT_EQ(other, 3);
  pollForEver([&] { EXPECT_EQ(sum(comm, value), ncclInProgress); });
  const auto start = Clock::now();
  EXPECT_NCCL(ncclCommAbort(comm));
  keepTime("Cancel: abort of a non-blocking communicator", Clock::now() - start, kBound);
  // The first may still succeed, at once even: with what rank 0 had sent.
  while (poll(peer) == ncclSuccess) {
    const ncclResult_t begun = sum(peer, other);
    if (begun != ncclInProgress && begun != ncclSuccess) break;
    while (poll(peer) == ncclInProgress) std::this_thread::yield();
  }
  EXPECT_EQ(poll(peer), ncclRemoteError);
  EXPECT_THAT(ncclGetLastError(peer), HasSubstr("rank 0"));
  EXPECT_NCCL(ncclCommAbort(peer));
}

// The thread ends with calls in its group that nobody has made yet.
TEST(Cancel, BetweenTheStartAndTheEndOfAGroupDropsItsCalls) {
  const auto comms = makeComms(2);
  int64_t value = 1;
  runCancelled([&] {
    EXPECT_NCCL(ncclGroupStart());
    EXPECT_NCCL(sum(comms[0], value));
  });
  EXPECT_EQ(value, 1);
  expectSumOfBoth(comms);
  for (ncclComm_t comm : comms) EXPECT_NCCL(ncclCommDestroy(comm));
}

// One rank's whole life, short calls at once and not, long ones, refused ones, children.
void liveOn(ncclComm_t comm, int rank, int count) {
  const int64_t total = int64_t{count} * (count + 1) / 2;
  cudaStream_t stream = nullptr;
  EXPECT_NCCL(ncclTuttiStreamCreate(&stream));
  for (int i = 0; i < 300; ++i) {
    int64_t value = rank + 1;
    EXPECT_NCCL(sum(comm, value, i % 3 == 2 ? stream : nullptr));
    EXPECT_NCCL(ncclTuttiStreamSynchronize(stream));
    EXPECT_EQ(value, total);
  }
  std::vector<float> in(100'000, 1), out(in.size() * static_cast<size_t>(count));
  EXPECT_NCCL(ncclAllGather(in.data(), out.data(), in.size(), ncclFloat, comm, nullptr));
  EXPECT_NCCL(ncclGroupStart());
  EXPECT_NCCL(ncclSend(in.data(), 9, ncclFloat, (rank + 1) % count, comm, nullptr));
  EXPECT_NCCL(ncclRecv(out.data(), 9, ncclFloat, (rank + count - 1) % count, comm, nullptr));
  EXPECT_NCCL(ncclGroupEnd());
  EXPECT_EQ(ncclBroadcast(in.data(), out.data(), 1, ncclFloat, count, comm, nullptr),
            ncclInvalidArgument);
  int64_t none = 0;
  EXPECT_EQ(sum(nullptr, none), ncclInvalidArgument);
  ncclComm_t child = nullptr;
  EXPECT_NCCL(ncclCommSplit(comm, 0, rank, &child, nullptr));
  EXPECT_NCCL(ncclCommFinalize(child));
  EXPECT_NCCL(ncclCommDestroy(child));
  EXPECT_NCCL(ncclTuttiStreamDestroy(stream));
}

void liveCancelled(const ncclUniqueId& id, int rank, int count) {
  runCancelled([&] {
    ncclComm_t comm = nullptr;
    EXPECT_NCCL(ncclCommInitRank(&comm, count, id, rank));
    liveOn(comm, rank, count);
    EXPECT_NCCL(ncclCommDestroy(comm));
  });
}

TEST(Cancel, OfAThreadBeforeItsCallsComesAfterThem) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::thread other([&] { liveCancelled(id, 1, 2); });
  liveCancelled(id, 0, 2);
  other.join();
}

TEST(CancelRanks, DISABLED_Live) {
  const ProcessRank self = conformance::thisProcess();
  liveCancelled(self.id, self.rank, self.count);
}

// With a log, whose lines are written on the way; within a host and over sockets.
TEST(Cancel, OfThreadsOfProcessesBeforeTheirCallsComesAfterThem) {
  for (const bool hasHosts : {false, true}) {
    const auto settings = [&](int rank) {
      return std::vector<std::string>{"NCCL_DEBUG=INFO", "NCCL_DEBUG_FILE=/dev/null",
                                      "NCCL_CHECK_POINTERS=1",
                                      "NCCL_HOSTID=" + std::to_string(hasHosts ? rank / 2 : 0)};
    };
    EXPECT_EQ(conformance::runProcesses("CancelRanks.DISABLED_Live", 3, settings),
              std::vector<int>(3, 0));
  }
}

}  // namespace
}  // namespace tutti::faults
