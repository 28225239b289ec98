// Non-blocking communicators: no call of them waits, for a peer or for long, and those that come
// while an earlier one is in progress are answered as NCCL answers them.
#include <fcntl.h>
#include <tutti/host.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <numeric>
#include <string>

#include "../../src/base/patience_testing.h"
#include "processes.h"
#include "ranks.h"

namespace tutti::conformance {
namespace {

using Clock = std::chrono::steady_clock;
using testing::AnyOf;

constexpr int kRanks = 3;
constexpr int kRounds = 15;
constexpr std::chrono::milliseconds kBound{1};

// How long the calling thread was ready and had no CPU, in all: that is the machine's doing. Zero
// where the kernel does not tell. Of the thread that makes it.
class ReadyTime {
 public:
  ReadyTime() : file_(::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}
  ~ReadyTime() {
    if (file_ >= 0) ::close(file_);
  }
  ReadyTime(const ReadyTime&) = delete;
  ReadyTime& operator=(const ReadyTime&) = delete;

  std::chrono::nanoseconds now() const {
    std::array<char, 96> text{};
    unsigned long long ran = 0, waited = 0;
    const bool isThere = file_ >= 0 && ::pread(file_, text.data(), text.size() - 1, 0) > 0 &&
                         std::sscanf(text.data(), "%llu %llu", &ran, &waited) == 2;
    return std::chrono::nanoseconds(isThere ? waited : 0);
  }

 private:
  const int file_;
};

// What the calls of one rank took: the time that they computed, slept and waited for others, since
// each begins when this thread has a CPU. Those of rank 0 return before a peer has come, or never.
class CallTimes {
 public:
  ncclResult_t of(const std::string& name, const std::function<ncclResult_t()>& call) {
    const auto ready = ready_.now();
    const auto start = Clock::now();
    const ncclResult_t result = call();
    const auto took = Clock::now() - start;
    times_[name].push_back(took - (ready_.now() - ready));
    return result;
  }
  // The longest but for one call in two hundred; of fewer calls simply the longest.
  std::map<std::string, Clock::duration> longest() {
    std::map<std::string, Clock::duration> longest;
    for (auto& [name, times] : times_) {
      std::ranges::sort(times);
      longest[name] = times[times.size() - 1 - times.size() / 200];
    }
    return longest;
  }
  void expectShort(int patience) {
    for (const auto& [name, time] : longest())
      EXPECT_LT(time, kBound * patience) << name << ": of " << times_[name].size() << ", in ns";
  }

 private:
  ReadyTime ready_;
  std::map<std::string, std::vector<Clock::duration>> times_;
};

#define TIMED(call) times_.of(#call, [&] { return call; })

// One life of a non-blocking communicator. Its rank 0 does each step before the others come to it:
// they wait on `order`, a communicator that blocks.
class Life {
 public:
  Life(int rank, ncclComm_t order, CallTimes& times)
      : rank_(rank), order_(order), times_(times), stream_(makeStream()) {}
  ~Life() { EXPECT_NCCL(ncclTuttiStreamDestroy(stream_)); }
  Life(const Life&) = delete;
  Life& operator=(const Life&) = delete;

  void run() {
    begin();
    operate();
    std::vector<ncclComm_t> children(2);
    split(children);
    for (ncclComm_t child : children) end(child);
    shrink();
    end(comm_);
  }

 private:
  static cudaStream_t makeStream() {
    cudaStream_t stream = nullptr;
    EXPECT_NCCL(ncclTuttiStreamCreate(&stream));
    return stream;
  }

  void inTurn(const std::function<void()>& step) {
    if (rank_ == 0) step();
    EXPECT_NCCL(ncclBcast(&id_, sizeof id_, ncclInt8, 0, order_, nullptr));
    if (rank_ != 0) step();
  }

  // As the first to come, a call cannot be done.
  void expectBegun(ncclResult_t result) const {
    if (rank_ == 0) {
      EXPECT_EQ(result, ncclInProgress) << ncclGetLastError(nullptr);
    } else {
      EXPECT_THAT(result, AnyOf(ncclInProgress, ncclSuccess)) << ncclGetLastError(nullptr);
    }
  }

  ncclResult_t stateOf(ncclComm_t comm) {
    ncclResult_t state = ncclInternalError;
    EXPECT_NCCL(TIMED(ncclCommGetAsyncError(comm, &state)));
    return state;
  }

  void settle(ncclComm_t comm) {
    ncclResult_t state = stateOf(comm);
    for (; state == ncclInProgress; state = stateOf(comm)) std::this_thread::yield();
    EXPECT_EQ(state, ncclSuccess) << ncclGetLastError(comm);
  }

  void begin() {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (rank_ == 0) {
      EXPECT_NCCL(ncclGetUniqueId(&id_));
    }
    inTurn([&] {
      expectBegun(TIMED(ncclCommInitRankConfig(&comm_, kRanks, id_, rank_, &config)));
      if (rank_ == 0) expectNotReady(comm_);
    });
    settle(comm_);
  }

  // While it initialises, and without harm to what it becomes.
  void expectNotReady(ncclComm_t comm) {
    int64_t value = 1;
    int excluded[] = {kRanks - 1};
    ncclComm_t child = nullptr;
    void* handle = nullptr;
    EXPECT_EQ(stateOf(comm), ncclInProgress);
    EXPECT_EQ(TIMED(ncclAllReduce(&value, &value, 1, ncclInt64, ncclSum, comm, nullptr)),
              ncclInvalidArgument);
    EXPECT_EQ(TIMED(ncclSend(&value, 1, ncclInt64, 0, comm, nullptr)), ncclInvalidArgument);
    EXPECT_EQ(TIMED(ncclCommSplit(comm, 0, 0, &child, nullptr)), ncclInvalidArgument);
    EXPECT_EQ(TIMED(ncclCommShrink(comm, excluded, 1, &child, nullptr, NCCL_SHRINK_DEFAULT)),
              ncclInvalidArgument);
    EXPECT_EQ(child, nullptr);
    EXPECT_EQ(TIMED(ncclCommRegister(comm, &value, sizeof value, &handle)), ncclInvalidArgument);
    EXPECT_EQ(TIMED(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT)), ncclInvalidArgument);
    EXPECT_EQ(TIMED(ncclCommFinalize(comm)), ncclInvalidArgument);
    EXPECT_NCCL(ncclGroupStart());
    EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclInt64, ncclSum, comm, nullptr),
              ncclInvalidArgument);
    EXPECT_EQ(TIMED(ncclGroupEnd()), ncclInvalidArgument);
    EXPECT_EQ(stateOf(comm), ncclInProgress);
    EXPECT_EQ(value, 1);
  }

  // Short and long ones, on its own stream and on the caller's, alone and in groups; all of them
  // are called before the first of them can end.
  void operate() {
    constexpr size_t kLong = size_t{1} << 18;
    int64_t brief = rank_;
    std::vector<int32_t> all(kLong, rank_), onStream(kLong, 1);
    std::vector<int32_t> gathered(kRanks), grouped(kLong, 2), passed(kLong);
    const int next = (rank_ + 1) % kRanks, last = (rank_ + kRanks - 1) % kRanks;
    inTurn([&] {
      expectBegun(TIMED(ncclAllReduce(&brief, &brief, 1, ncclInt64, ncclSum, comm_, nullptr)));
      expectBegun(
          TIMED(ncclAllReduce(all.data(), all.data(), kLong, ncclInt32, ncclMax, comm_, nullptr)));
      expectBegun(TIMED(ncclAllReduce(onStream.data(), onStream.data(), kLong, ncclInt32, ncclSum,
                                      comm_, stream_)));
      EXPECT_NCCL(ncclGroupStart());
      EXPECT_NCCL(TIMED(ncclAllGather(&rank_, gathered.data(), 1, ncclInt32, comm_, nullptr)));
      EXPECT_NCCL(TIMED(ncclAllReduce(grouped.data(), grouped.data(), kLong, ncclInt32, ncclSum,
                                      comm_, stream_)));
      EXPECT_NCCL(TIMED(ncclSend(all.data(), kLong, ncclInt32, next, comm_, nullptr)));
      EXPECT_NCCL(TIMED(ncclRecv(passed.data(), kLong, ncclInt32, last, comm_, nullptr)));
      expectBegun(TIMED(ncclGroupEnd()));
      if (rank_ == 0) {
        EXPECT_EQ(stateOf(comm_), ncclInProgress);
      }
    });
    settle(comm_);
    EXPECT_NCCL(ncclTuttiStreamSynchronize(stream_));
    EXPECT_EQ(brief, kRanks * (kRanks - 1) / 2);
    EXPECT_EQ(all, std::vector<int32_t>(kLong, kRanks - 1));
    EXPECT_EQ(onStream, std::vector<int32_t>(kLong, kRanks));
    std::vector<int32_t> ranks(kRanks);
    std::iota(ranks.begin(), ranks.end(), 0);
    EXPECT_EQ(gathered, ranks);
    EXPECT_EQ(grouped, std::vector<int32_t>(kLong, 2 * kRanks));
    EXPECT_EQ(passed, all);
  }

  // One alone, one in a group.
  void split(std::vector<ncclComm_t>& children) {
    inTurn([&] {
      expectBegun(TIMED(ncclCommSplit(comm_, 7, -rank_, &children[0], nullptr)));
      EXPECT_NCCL(ncclGroupStart());
      EXPECT_NCCL(ncclCommSplit(comm_, 0, 0, &children[1], nullptr));
      expectBegun(TIMED(ncclGroupEnd()));
      if (rank_ != 0) return;
      int count = 0;
      for (ncclComm_t child : children) {
        EXPECT_EQ(TIMED(ncclCommCount(child, &count)), ncclInvalidArgument);  // nobody knows yet
        expectNotReady(child);
      }
      EXPECT_EQ(stateOf(comm_), ncclInProgress);
    });
    settle(comm_);
    for (ncclComm_t child : children) settle(child);
  }

  // Without the last rank; the child is revoked amid a call.
  void shrink() {
    int excluded[] = {kRanks - 1};
    const bool stays = rank_ != excluded[0];
    ncclComm_t child = nullptr;
    inTurn([&] {
      if (!stays) return;
      expectBegun(TIMED(ncclCommShrink(comm_, excluded, 1, &child, nullptr, NCCL_SHRINK_DEFAULT)));
      if (rank_ == 0) expectNotReady(child);
    });
    if (stays) settle(child);
    float value = 1;
    inTurn([&] {
      if (rank_ != 0) return;
      expectBegun(TIMED(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, child, nullptr)));
      EXPECT_THAT(TIMED(ncclCommRevoke(child, NCCL_REVOKE_DEFAULT)),
                  AnyOf(ncclInProgress, ncclSuccess));
      settle(child);
    });
    if (stays) {
      EXPECT_NCCL(ncclCommAbort(child));
    }
    settle(comm_);
  }

  // Finalized while a call goes on.
  void end(ncclComm_t comm) {
    int64_t value = 1;
    inTurn([&] {
      expectBegun(TIMED(ncclAllReduce(&value, &value, 1, ncclInt64, ncclSum, comm, nullptr)));
      expectBegun(TIMED(ncclCommFinalize(comm)));
      EXPECT_EQ(TIMED(ncclCommFinalize(comm)), ncclInvalidUsage);
      EXPECT_EQ(TIMED(ncclAllReduce(&value, &value, 1, ncclInt64, ncclSum, comm, nullptr)),
                ncclInvalidUsage);
    });
    settle(comm);
    EXPECT_EQ(value, kRanks);
    EXPECT_NCCL(ncclCommDestroy(comm));
  }

  const int rank_;
  const ncclComm_t order_;
  CallTimes& times_;
  const cudaStream_t stream_;
  ncclUniqueId id_{};
  ncclComm_t comm_ = nullptr;
};

void live(int rank, ncclComm_t order, int patience) {
  CallTimes times;
  for (int round = 0; round < kRounds; ++round) Life(rank, order, times).run();
  times.expectShort(patience);
}

// One that sleeps is found though it is one in a hundred, and one that computes.
TEST(NonBlocking, TheMeasureFindsRareCallsThatWait) {
  const auto spin = [] {
    for (const auto end = Clock::now() + 2 * kBound; Clock::now() < end;) {
    }
  };
  const auto sleep = [] { std::this_thread::sleep_for(2 * kBound); };
  CallTimes times;
  for (int i = 0; i < 300; ++i) {
    EXPECT_NCCL(times.of("sleeps", [&] { return i % 100 == 50 ? sleep() : void(), ncclSuccess; }));
    EXPECT_NCCL(times.of("spins", [&] { return i % 100 == 50 ? spin() : void(), ncclSuccess; }));
  }
  EXPECT_GT(times.longest()["sleeps"], kBound);
  EXPECT_GT(times.longest()["spins"], kBound);
}

TEST(NonBlocking, CallsOfThreadsWaitForNobody) {
  inThreeTries([](int patience) {
    runRanks(kRanks, [&](int rank, ncclComm_t order) { live(rank, order, patience); });
  });
}

TEST(NonBlockingRanks, DISABLED_Live) {
  const ProcessRank self = thisProcess();
  ncclComm_t order = nullptr;
  ASSERT_EQ(ncclCommInitRank(&order, self.count, self.id, self.rank), ncclSuccess);
  live(self.rank, order, std::atoi(std::getenv("TEST_PATIENCE")));
  EXPECT_NCCL(ncclCommDestroy(order));
}

TEST(NonBlocking, CallsOfProcessesWaitForNobody) {
  inThreeTries([](int patience) {
    const std::vector<int> codes =
        runProcesses("NonBlockingRanks.DISABLED_Live", kRanks, [&](int /*rank*/) {
          return std::vector<std::string>{"TEST_PATIENCE=" + std::to_string(patience)};
        });
    EXPECT_EQ(codes, std::vector<int>(kRanks, 0));
  });
}

}  // namespace
}  // namespace tutti::conformance
