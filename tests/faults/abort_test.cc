// Abort from another thread in each phase of a communicator's life: it returns within a second, the
// call that hung returns with an error, and the peers learn of it.
#include <nccl.h>
#include <signal.h>
#include <sys/mman.h>
#include <tutti/host.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "../../src/base/patience_testing.h"
#include "../conformance/ranks.h"
#include "times.h"

namespace tutti::faults {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

constexpr std::chrono::seconds kBound{1};
constexpr std::chrono::milliseconds kUnderWay{150};  // enough for a call to hang where it does

std::vector<ncclComm_t> makeComms(int count) {
  std::vector<ncclComm_t> comms(static_cast<size_t>(count));
  EXPECT_EQ(ncclCommInitAll(comms.data(), count, nullptr), ncclSuccess)
      << ncclGetLastError(nullptr);
  return comms;
}

// Aborts from this thread while `call` hangs in another one, which must then end with an error.
void abortDuring(const std::string& phase, ncclComm_t comm,
                 const std::function<ncclResult_t()>& call) {
  std::atomic<ncclResult_t> result{ncclInProgress};
  std::atomic<bool> hasBegun{false};
  std::thread caller([&] {
    hasBegun = true;
    result = call();
  });
  while (!hasBegun) std::this_thread::yield();
  std::this_thread::sleep_for(kUnderWay);
  EXPECT_EQ(result, ncclInProgress) << phase << ": the call did not hang";
  const auto start = Clock::now();
  EXPECT_NCCL(ncclCommAbort(comm));
  keepTime("Abort: returns during " + phase, Clock::now() - start, kBound);
  caller.join();
  keepTime("Abort: ends " + phase, Clock::now() - start, kBound);
  EXPECT_THAT(result.load(), AnyOf(ncclInternalError, ncclRemoteError, ncclInvalidUsage)) << phase;
  EXPECT_EQ(ncclCommAbort(comm), ncclInvalidArgument) << "the second one";
}

TEST(Abort, OfAnInitThatWaitsForItsPeers) {
  inThreeTries([](int) {
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclCommInitRankConfig(&comm, 3, id, 1, &config), ncclInProgress);
    std::this_thread::sleep_for(kUnderWay);
    const auto start = Clock::now();
    EXPECT_NCCL(ncclCommAbort(comm));
    keepTime("Abort: returns during init", Clock::now() - start, kBound);
  });
}

TEST(Abort, OfALinkThatIsNotConnected) {
  inThreeTries([](int) {
    const auto comms = makeComms(2);
    float value = 1;
    abortDuring("connecting a link", comms[0], [&] {
      return ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comms[0], nullptr);
    });
    EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comms[1], nullptr),
              ncclRemoteError);
    EXPECT_NCCL(ncclCommAbort(comms[1]));
  });
}

TEST(Abort, OfAReceiveAndThePeerLearnsOfIt) {
  inThreeTries([](int) {
    const auto comms = makeComms(2);
    float value = 1;
    // The links exist from here on.
    EXPECT_NCCL(ncclGroupStart());
    EXPECT_NCCL(ncclSend(&value, 1, ncclFloat, 1, comms[0], nullptr));
    EXPECT_NCCL(ncclRecv(&value, 1, ncclFloat, 0, comms[1], nullptr));
    EXPECT_NCCL(ncclRecv(&value, 1, ncclFloat, 1, comms[0], nullptr));
    EXPECT_NCCL(ncclSend(&value, 1, ncclFloat, 0, comms[1], nullptr));
    EXPECT_NCCL(ncclGroupEnd());
    abortDuring("a receive", comms[0],
                [&] { return ncclRecv(&value, 1, ncclFloat, 1, comms[0], nullptr); });
    const auto start = Clock::now();
    EXPECT_EQ(ncclRecv(&value, 1, ncclFloat, 0, comms[1], nullptr), ncclRemoteError);
    EXPECT_THAT(ncclGetLastError(comms[1]), HasSubstr("rank 0"));
    EXPECT_THAT(ncclGetLastError(comms[1]), HasSubstr("aborted its communicator"));
    keepTime("Abort: is told to a peer that waits", Clock::now() - start, kBound);
    EXPECT_NCCL(ncclCommDestroy(comms[1]));
  });
}

TEST(Abort, OfALoopOfLargeCollectives) {
  inThreeTries([](int) {
    const auto comms = makeComms(2);
    const auto loop = [&](size_t rank) {
      std::vector<float> values(1 << 20, 1);
      ncclResult_t result = ncclSuccess;
      while (result == ncclSuccess)
        result = ncclAllReduce(values.data(), values.data(), values.size(), ncclFloat, ncclMax,
                               comms[rank], nullptr);
      return result;
    };
    std::thread peer([&] { EXPECT_NE(loop(1), ncclSuccess); });
    abortDuring("large collectives", comms[0], [&] {
      const ncclResult_t result = loop(0);
      // Between two calls the abort leaves the next one no communicator.
      return result == ncclInvalidArgument ? ncclInvalidUsage : result;
    });
    peer.join();
    EXPECT_NCCL(ncclCommAbort(comms[1]));
  });
}

// Memory that nobody may touch once it is given back.
class Guarded {
 public:
  explicit Guarded(size_t bytes)
      : bytes_(bytes),
        memory_(
            ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    EXPECT_NE(memory_, MAP_FAILED);
    std::memset(memory_, 1, bytes);
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() { ::munmap(memory_, bytes_); }
  void* get() const { return memory_; }
  void forbid() { EXPECT_EQ(::mprotect(memory_, bytes_, PROT_NONE), 0); }

 private:
  const size_t bytes_;
  void* const memory_;
};

// A thread's messages name its buffers, which are its caller's again once its call has failed. Its
// peer comes before, while or after it leaves.
TEST(Abort, LeavesNoReaderInItsBuffers) {
  constexpr size_t kBytes = 4 << 20;
  std::minstd_rand random(20261122);
  for (int times = 0; times < 60; ++times) {
    SCOPED_TRACE(testing::Message() << "time " << times);
    const auto comms = makeComms(2);
    std::array<Guarded, 2> inputs{Guarded(kBytes), Guarded(kBytes)};
    std::array<Guarded, 2> outputs{Guarded(2 * kBytes), Guarded(2 * kBytes)};
    const auto call = [&](size_t rank) {
      void* const input = inputs[rank].get();
      void* const output = outputs[rank].get();
      if (times % 2 == 0)
        return ncclAllGather(input, output, kBytes, ncclInt8, comms[rank], nullptr);
      return ncclBroadcast(input, output, kBytes, ncclInt8, 0, comms[rank], nullptr);
    };
    // The links exist from here on.
    std::thread first([&] { EXPECT_NCCL(call(1)); });
    EXPECT_NCCL(call(0));
    first.join();
    const bool comesAfter = times % 4 < 2;
    const std::chrono::microseconds peerComes(random() % 400);
    const std::chrono::microseconds aborted(random() % 1500);
    const auto peerCalls = [&] {
      const ncclResult_t result = call(1);
      EXPECT_THAT(result, AnyOf(ncclSuccess, ncclRemoteError)) << ncclGetLastError(comms[1]);
    };
    std::thread leaver([&] {
      if (call(0) == ncclSuccess) return;
      inputs[0].forbid();
      outputs[0].forbid();
    });
    std::thread peer([&] {
      if (comesAfter) return;
      std::this_thread::sleep_for(peerComes);
      peerCalls();
    });
    std::this_thread::sleep_for(aborted);
    EXPECT_NCCL(ncclCommAbort(comms[0]));
    leaver.join();
    peer.join();
    if (comesAfter) peerCalls();
    EXPECT_NCCL(ncclCommAbort(comms[1]));
  }
}

// The last page of some memory, at which whoever reads it stands still until it is opened.
class ClosedPage {
 public:
  explicit ClosedPage(std::byte* page) {
    page_ = page;
    visitor_ = 0;
    mayRead_ = false;
    struct sigaction action {};
    action.sa_sigaction = stand;
    action.sa_flags = SA_SIGINFO;
    EXPECT_EQ(::sigaction(SIGSEGV, &action, &before_), 0);
    EXPECT_EQ(::mprotect(page, kBytes, PROT_NONE), 0);
  }
  ClosedPage(const ClosedPage&) = delete;
  ClosedPage& operator=(const ClosedPage&) = delete;
  ~ClosedPage() {
    open();
    EXPECT_EQ(::sigaction(SIGSEGV, &before_, nullptr), 0);
  }

  // The thread that stands there; 0: none.
  static pid_t visitor() { return visitor_; }
  static void open() {
    ::mprotect(page_, kBytes, PROT_READ | PROT_WRITE);
    mayRead_ = true;
  }

  static constexpr size_t kBytes = 4096;

 private:
  static void stand(int signal, siginfo_t* info, void*) {
    const auto* at = static_cast<const std::byte*>(info->si_addr);
    if (at < page_ || at >= page_ + kBytes) {
      ::sigaction(signal, &before_, nullptr);  // comes again, and is no part of the test
      return;
    }
    visitor_ = ::gettid();
    while (!mayRead_) {
      const timespec moment{.tv_sec = 0, .tv_nsec = 1'000'000};
      ::nanosleep(&moment, nullptr);
    }
  }

  static inline std::byte* page_ = nullptr;
  static inline struct sigaction before_ {};
  static inline std::atomic<pid_t> visitor_{0};
  static inline std::atomic<bool> mayRead_{false};
};

// A thread that gets no CPU while it reads what a call sent that has failed since. However long
// that is, the call does not give the memory back to its caller; the abort returns all the same.
TEST(Abort, WaitsForASlowReaderAndReturnsBeforeTheCall) {
  constexpr size_t kBytes = 1 << 20;
  static constexpr std::chrono::milliseconds kLong{2000};
  inThreeTries([](int) {
    const auto comms = makeComms(2);
    Guarded sent(kBytes);
    std::vector<std::byte> received(kBytes);
    std::atomic<ncclResult_t> sending{ncclInProgress};
    std::atomic<ncclResult_t> receiving{ncclInProgress};
    std::atomic<pid_t> receiver{0};
    ClosedPage page(static_cast<std::byte*>(sent.get()) + kBytes - ClosedPage::kBytes);
    std::thread second([&] {
      receiver = ::gettid();
      receiving = ncclRecv(received.data(), kBytes, ncclInt8, 0, comms[1], nullptr);
    });
    std::thread first([&] {
      sending = ncclSend(sent.get(), kBytes, ncclInt8, 1, comms[0], nullptr);
      if (sending != ncclSuccess) sent.forbid();
    });
    while (ClosedPage::visitor() == 0) std::this_thread::yield();
    // Both ends copy: should the sender have come first, there is no reader to wait for.
    EXPECT_EQ(ClosedPage::visitor(), receiver);
    const auto start = Clock::now();
    EXPECT_NCCL(ncclCommAbort(comms[0]));
    keepTime("Abort: returns beside a thread that reads slowly", Clock::now() - start, kBound);
    std::this_thread::sleep_until(start + kLong);
    EXPECT_EQ(sending, ncclInProgress) << "its memory is still read";
    EXPECT_EQ(receiving, ncclInProgress);
    ClosedPage::open();
    first.join();
    second.join();
    EXPECT_EQ(sending, ncclInternalError);
    EXPECT_EQ(receiving, ncclRemoteError) << ncclGetLastError(comms[1]);
    EXPECT_NCCL(ncclCommAbort(comms[1]));
  });
}

TEST(Abort, OfAGroupOverTwoCommunicatorsEndsItsPart) {
  inThreeTries([](int) {
    const auto first = makeComms(2);
    const auto second = makeComms(2);
    float values[2] = {1, 2};
    std::atomic<ncclResult_t> result{ncclInProgress};
    std::thread caller([&] {
      EXPECT_NCCL(ncclGroupStart());
      EXPECT_NCCL(ncclRecv(&values[0], 1, ncclFloat, 1, first[0], nullptr));
      EXPECT_NCCL(ncclRecv(&values[1], 1, ncclFloat, 1, second[0], nullptr));
      result = ncclGroupEnd();
    });
    std::this_thread::sleep_for(kUnderWay);
    const auto start = Clock::now();
    EXPECT_NCCL(ncclCommAbort(first[0]));
    EXPECT_NCCL(ncclCommAbort(second[0]));
    caller.join();
    keepTime("Abort: ends a group over two communicators", Clock::now() - start, 2 * kBound);
    EXPECT_NE(result, ncclSuccess);
    EXPECT_NCCL(ncclCommAbort(first[1]));
    EXPECT_NCCL(ncclCommAbort(second[1]));
  });
}

TEST(Abort, OfAStreamThatUserCodeBlocks) {
  inThreeTries([](int) {
    const auto comms = makeComms(1);
    cudaStream_t stream = nullptr;
    ASSERT_EQ(ncclTuttiStreamCreate(&stream), ncclSuccess);
    std::atomic<bool> mayEnd{false};
    const auto block = [](void* flag) {
      while (!static_cast<std::atomic<bool>*>(flag)->load())
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    };
    EXPECT_NCCL(ncclTuttiLaunchHostFunc(stream, block, &mayEnd));
    float value = 1;
    EXPECT_NCCL(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comms[0], stream));
    const auto start = Clock::now();
    EXPECT_NCCL(ncclCommAbort(comms[0]));
    keepTime("Abort: returns during user code on its stream", Clock::now() - start, kBound);
    mayEnd = true;
    EXPECT_NCCL(ncclTuttiStreamSynchronize(stream));
    EXPECT_NCCL(ncclTuttiStreamDestroy(stream));
  });
}

TEST(Abort, OfASplitAndAShrinkThatWaitForAPeer) {
  inThreeTries([](int) {
    for (const bool isSplit : {true, false}) {
      const auto comms = makeComms(3);
      ncclComm_t child = nullptr;
      int excluded[] = {2};
      abortDuring(isSplit ? "a split" : "a shrink", comms[0], [&] {
        return isSplit
                   ? ncclCommSplit(comms[0], 0, 0, &child, nullptr)
                   : ncclCommShrink(comms[0], excluded, 1, &child, nullptr, NCCL_SHRINK_DEFAULT);
      });
      EXPECT_EQ(child, nullptr);
      EXPECT_NCCL(ncclCommAbort(comms[1]));
      EXPECT_NCCL(ncclCommAbort(comms[2]));
    }
  });
}

TEST(Abort, OfAChildLeavesTheParentAlone) {
  conformance::runRanks(2, [](int rank, ncclComm_t comm) {
    ncclComm_t child = nullptr;
    ASSERT_EQ(ncclCommSplit(comm, 0, rank, &child, nullptr), ncclSuccess);
    EXPECT_NCCL(ncclCommAbort(child));
    float value = 1;
    EXPECT_NCCL(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comm, nullptr));
    EXPECT_EQ(value, 2);
  });
}

TEST(Abort, AfterFinalizeOrWithoutAnyCall) {
  inThreeTries([](int) {
    const auto comms = makeComms(2);
    const auto start = Clock::now();
    EXPECT_NCCL(ncclCommFinalize(comms[0]));
    EXPECT_NCCL(ncclCommAbort(comms[0]));
    EXPECT_NCCL(ncclCommAbort(comms[1]));
    keepTime("Abort: returns when nothing runs", Clock::now() - start, kBound);
  });
}

}  // namespace
}  // namespace tutti::faults
