// What goes wrong around GPU ranks and their graphs: aborts amid replays, revoked communicators,
// streams that go, calls that are left out, GPUs without memory.
#include <atomic>
#include <vector>

#include "base/clock.h"
#include "base/futex.h"
#include "tests/gpu/ranks.h"

namespace tutti::gputest {
namespace {

using testing::AnyOf;
using testing::Each;
using testing::HasSubstr;

class Faults : public GpuTest {};

// Before kernels end by themselves (TUTTI_GPU_WAIT_MS of gpu_check.sh).
constexpr auto kPatience = std::chrono::seconds(8);

// The state that is no longer `state`, or `state` when none came in time.
ncclResult_t awaitChange(ncclComm_t comm, ncclResult_t state) {
  const Instant deadline = steadyClock().now() + kPatience;
  ncclResult_t result = state;
  while (result == state && steadyClock().now() < deadline) {
    if (ncclCommGetAsyncError(comm, &result) != ncclSuccess) return ncclInternalError;
    if (result == state) sleepFor(std::chrono::milliseconds(2));
  }
  return result;
}

void reduce(RankSide& side, Array<int32_t>& data, ncclComm_t comm) {
  EXPECT_NCCL(ncclAllReduce(data.device(), data.device(), data.size(), ncclInt32, ncclSum, comm,
                            side.stream()));
}

void captureReduce(RankSide& side, Array<int32_t>& in, Array<int32_t>& out) {
  EXPECT_STATUS(side.gpu.capture([&]() -> Status {
    EXPECT_NCCL(ncclAllReduce(in.device(), out.device(), in.size(), ncclInt32, ncclSum, side.comm,
                              side.stream()));
    return {};
  }));
}

TEST_F(Faults, AThousandReplaysAreRight) {
  runRanks([](RankSide& side) {
    constexpr int kRounds = 50;
    constexpr int kReplays = 20;  // a full launch queue holds up the other ranks of the process
    Array<int32_t> in(side.gpu, 3001, 0);
    Array<int32_t> out(side.gpu, 3001, 0);
    captureReduce(side, in, out);
    for (int round = 0; round < kRounds; ++round) {
      in.get().assign(in.size(), round + side.rank);
      in.put();
      side.meet();
      for (int replay = 0; replay < kReplays; ++replay) EXPECT_STATUS(side.gpu.replay());
      const int expected = side.count * round + side.count * (side.count - 1) / 2;
      ASSERT_THAT(out.get(), Each(expected)) << "round " << round;
      side.meet();
    }
  });
}

TEST_F(Faults, AbortEndsReplaysThatWait) {
  runRanks(
      [](RankSide& side) {
        Array<int32_t> in(side.gpu, 100'000, 1);
        Array<int32_t> out(side.gpu, 100'000, 0);
        captureReduce(side, in, out);
        side.meet();
        EXPECT_STATUS(side.gpu.replay());
        EXPECT_THAT(out.get(), Each(side.count));
        side.meet();
        if (side.rank == 0) {
          for (int replay = 0; replay < 3; ++replay) EXPECT_STATUS(side.gpu.replay());
          sleepFor(std::chrono::milliseconds(50));
        }
        const Instant start = steadyClock().now();
        EXPECT_NCCL(ncclCommAbort(side.comm));
        EXPECT_STATUS(side.gpu.synchronize());
        EXPECT_LT(steadyClock().now() - start, std::chrono::seconds(2));
        side.meet();
        EXPECT_STATUS(side.gpu.replay());  // of a communicator that is gone: does nothing
        EXPECT_STATUS(side.gpu.synchronize());
      },
      End::kLeave);
}

TEST_F(Faults, ARevokedCommunicatorEndsItsKernelsAndShrinks) {
  runRanks(
      [](RankSide& side) {
        Array<int32_t> data(side.gpu, 100'000, 1);
        side.meet();
        int last = side.count - 1;
        if (side.rank == last) {
          side.meet();
          EXPECT_NCCL(ncclCommAbort(side.comm));
          side.meet();
          side.meet();  // its memory goes once no kernel runs
          return;
        }
        reduce(side, data, side.comm);
        sleepFor(std::chrono::milliseconds(50));
        EXPECT_NCCL(ncclCommRevoke(side.comm, NCCL_REVOKE_DEFAULT));
        EXPECT_STATUS(side.gpu.synchronize());
        EXPECT_NE(ncclAllReduce(data.device(), data.device(), 1, ncclInt32, ncclSum, side.comm,
                                side.stream()),
                  ncclSuccess);
        side.meet();
        ncclComm_t rest = nullptr;
        ASSERT_EQ(ncclCommShrink(side.comm, &last, 1, &rest, nullptr, NCCL_SHRINK_ABORT),
                  ncclSuccess)
            << ncclGetLastError(nullptr);
        EXPECT_NCCL(ncclCommAbort(side.comm));
        data.get().assign(data.size(), side.rank + 1);
        data.put();
        side.meet();
        reduce(side, data, rest);
        EXPECT_THAT(data.get(), Each(side.count * (side.count - 1) / 2));
        side.meet();
        EXPECT_NCCL(ncclCommDestroy(rest));
      },
      End::kLeave);
}

TEST_F(Faults, ARankThatLeavesACallOutIsTold) {
  runRanks(
      [](RankSide& side) {
        Array<int32_t> data(side.gpu, 10'000, 1);
        Array<int32_t> all(side.gpu, 10'000 * static_cast<size_t>(side.count), 0);
        side.meet();
        if (side.rank != 0) {
          EXPECT_NCCL(ncclAllGather(data.device(), all.device(), data.size(), ncclInt32, side.comm,
                                    side.stream()));
        }
        reduce(side, data, side.comm);
        EXPECT_EQ(awaitChange(side.comm, ncclSuccess), ncclInvalidUsage);
        EXPECT_STATUS(side.gpu.synchronize());
        EXPECT_NE(ncclAllReduce(data.device(), data.device(), 1, ncclInt32, ncclSum, side.comm,
                                side.stream()),
                  ncclSuccess);
        EXPECT_THAT(std::string(ncclGetLastError(nullptr)), HasSubstr("AllGather"));
        EXPECT_NCCL(ncclCommAbort(side.comm));
      },
      End::kLeave);
}

TEST_F(Faults, NonBlockingInitialisationIsPolled) {
  const ncclUniqueId id = anotherId();
  runRanks([&id](RankSide& side) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    const ncclResult_t begun = ncclCommInitRankConfig(&comm, side.count, id, side.rank, &config);
    ASSERT_TRUE(begun == ncclInProgress || begun == ncclSuccess) << ncclGetLastError(nullptr);
    ASSERT_EQ(awaitChange(comm, ncclInProgress), ncclSuccess) << ncclGetLastError(comm);
    Array<int32_t> data(side.gpu, 10'000, side.rank);
    side.meet();
    const ncclResult_t called = ncclAllReduce(data.device(), data.device(), data.size(), ncclInt32,
                                              ncclSum, comm, side.stream());
    EXPECT_TRUE(called == ncclInProgress || called == ncclSuccess);
    EXPECT_EQ(awaitChange(comm, ncclInProgress), ncclSuccess);
    EXPECT_THAT(data.get(), Each(side.count * (side.count - 1) / 2));
    const ncclResult_t ended = ncclCommFinalize(comm);
    EXPECT_TRUE(ended == ncclInProgress || ended == ncclSuccess);
    EXPECT_EQ(awaitChange(comm, ncclInProgress), ncclSuccess);
    EXPECT_NCCL(ncclCommDestroy(comm));
  });
}

// What it holds still runs, and comes before the calls that follow.
TEST_F(Faults, AStreamMayGoBeforeItsCallsHaveRun) {
  runRanks([](RankSide& side) {
    Array<int32_t> data(side.gpu, 2'000'000, 1);
    auto other = RankGpu::open(side.rank, 0);
    ASSERT_TRUE(other.ok());
    side.meet();
    for (int call = 0; call < 4; ++call) {
      EXPECT_NCCL(ncclAllReduce(data.device(), data.device(), data.size(), ncclInt32, ncclMax,
                                side.comm, static_cast<cudaStream_t>(other.value()->stream())));
    }
    side.meet();  // tools that look on let a stream go only when its kernels have ended
    std::move(other).value().reset();
    EXPECT_NCCL(ncclAllReduce(data.device(), data.device(), data.size(), ncclInt32, ncclSum,
                              side.comm, side.stream()));
    EXPECT_THAT(data.get(), Each(side.count));
  });
}

class Memory : public GpuTest {};

// All of a GPU's memory that there is, and gives it back.
class Hoard {
 public:
  explicit Hoard(RankGpu& gpu) : gpu_(gpu) {
    for (size_t bytes = size_t{1} << 34; bytes >= kLeast; bytes /= 2) {
      for (auto memory = gpu.allocate(bytes); memory.ok(); memory = gpu.allocate(bytes))
        held_.push_back(*memory);
    }
  }
  Hoard(const Hoard&) = delete;
  Hoard& operator=(const Hoard&) = delete;
  ~Hoard() {
    for (void* memory : held_) gpu_.free(memory);
  }

 private:
  static constexpr size_t kLeast = size_t{1} << 12;
  RankGpu& gpu_;
  std::vector<void*> held_;
};

// They go through the host together, or none has a communicator and one says what is missing. In a
// process of its own: communicators leave memory behind that the next ones take.
TEST_F(Memory, NoneAtInitIsToldAndNoMore) {
  const int count = rankCount();
  ncclUniqueId failing;
  ncclUniqueId working;
  ASSERT_EQ(ncclGetUniqueId(&failing), ncclSuccess);
  ASSERT_EQ(ncclGetUniqueId(&working), ncclSuccess);
  Meeting meeting(count);
  std::atomic<int> told = 0;
  std::atomic<int> made = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      auto gpu = RankGpu::open(rank, 0);
      ASSERT_TRUE(gpu.ok());
      ncclComm_t comm = nullptr;
      {
        const Hoard hoard(*gpu.value());
        meeting.arriveAndWait();
        if (ncclCommInitRank(&comm, count, failing, rank) == ncclSuccess) {
          ++made;
          EXPECT_NCCL(ncclCommDestroy(comm));
        } else {
          const std::string why = ncclGetLastError(nullptr);
          EXPECT_FALSE(why.empty());
          if (why.find("memory") != std::string::npos || why.find("MEMORY") != std::string::npos)
            ++told;
        }
        meeting.arriveAndWait();
      }
      meeting.arriveAndWait();
      ASSERT_EQ(ncclCommInitRank(&comm, count, working, rank), ncclSuccess)
          << ncclGetLastError(nullptr);
      Array<int32_t> data(*gpu.value(), 1000, 2);
      meeting.arriveAndWait();
      EXPECT_NCCL(ncclAllReduce(data.device(), data.device(), data.size(), ncclInt32, ncclSum, comm,
                                static_cast<cudaStream_t>(gpu.value()->stream())));
      EXPECT_THAT(data.get(), Each(2 * count));
      EXPECT_NCCL(ncclCommDestroy(comm));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(made.load(), AnyOf(0, count));
  if (made.load() == 0) {
    EXPECT_GT(told.load(), 0) << "no rank said that memory was short";
  }
}

}  // namespace
}  // namespace tutti::gputest
