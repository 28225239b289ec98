// Graphs beside other calls of the same communicator, and what is left of communicators whose
// graphs are gone.
#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "tests/gpu/ranks.h"

namespace tutti::gputest {
namespace {

using testing::Each;

class Graphs : public GpuTest {};

// A stream of its own for a rank, and calls there that multiply what is in a buffer by the number
// of ranks: two at once would get in each other's way.
struct Side {
  explicit Side(const RankSide& rank) : side(rank) {
    auto opened = RankGpu::open(rank.rank, 0);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    gpu = std::move(opened).value();
  }
  void call(Array<double>& data, ncclComm_t comm) const {
    EXPECT_NCCL(ncclAllReduce(data.device(), data.device(), data.size(), ncclFloat64, ncclSum, comm,
                              static_cast<cudaStream_t>(gpu->stream())));
  }
  void capture(Array<double>& data, ncclComm_t comm, int calls) const {
    EXPECT_STATUS(gpu->capture([&]() -> Status {
      for (int i = 0; i < calls; ++i) call(data, comm);
      return {};
    }));
  }

  const RankSide& side;
  std::unique_ptr<RankGpu> gpu;
};

void expectCalls(Array<double>& data, int calls, int ranks) {
  double expected = 1;
  for (int i = 0; i < calls; ++i) expected *= ranks;
  EXPECT_THAT(data.get(), Each(testing::DoubleNear(expected, 1e-9 * expected)));
}

constexpr std::array<size_t, 3> kSizes = {10, 3000, 400'000};

TEST_F(Graphs, ReplaysAndOtherCallsOnTwoStreamsKeepOneOrder) {
  for (const size_t size : kSizes) {
    runRanks([size](RankSide& side) {
      constexpr int kRounds = 12, kCaptured = 2;
      const Side replayed(side), called(side);
      Array<double> data(side.gpu, size, 1);
      replayed.capture(data, side.comm, kCaptured);
      side.meet();
      for (int round = 0; round < kRounds; ++round) {
        EXPECT_STATUS(replayed.gpu->replay());
        called.call(data, side.comm);
      }
      EXPECT_STATUS(called.gpu->synchronize());
      EXPECT_STATUS(replayed.gpu->synchronize());
      expectCalls(data, kRounds * (kCaptured + 1), side.count);
    });
  }
}

TEST_F(Graphs, ReplaysOfTwoGraphsOnTwoStreamsKeepOneOrder) {
  for (const size_t size : kSizes) {
    runRanks([size](RankSide& side) {
      constexpr int kRounds = 8;
      const Side first(side), second(side);
      Array<double> data(side.gpu, size, 1);
      first.capture(data, side.comm, 1);
      second.capture(data, side.comm, 3);
      side.meet();
      for (int round = 0; round < kRounds; ++round) {
        EXPECT_STATUS(first.gpu->replay());
        EXPECT_STATUS(second.gpu->replay());
      }
      EXPECT_STATUS(first.gpu->synchronize());
      EXPECT_STATUS(second.gpu->synchronize());
      expectCalls(data, kRounds * 4, side.count);
    });
  }
}

// The first capture begins while what was called before it runs.
TEST_F(Graphs, AGraphComesAfterWhatWasCalledBeforeAnyCapture) {
  for (const size_t size : kSizes) {
    runRanks([size](RankSide& side) {
      constexpr int kCalls = 10;
      const Side replayed(side), called(side);
      Array<double> data(side.gpu, size, 1);
      side.meet();
      for (int i = 0; i < kCalls; ++i) called.call(data, side.comm);
      side.meet();  // the driver may have a capture's end wait for what runs
      replayed.capture(data, side.comm, 1);
      side.meet();
      EXPECT_STATUS(replayed.gpu->replay());
      called.call(data, side.comm);
      EXPECT_STATUS(called.gpu->synchronize());
      EXPECT_STATUS(replayed.gpu->synchronize());
      expectCalls(data, kCalls + 2, side.count);
    });
  }
}

// One in which a group of two communicators is captured, and one of each alone.
TEST_F(Graphs, EachCommunicatorOfAGraphKeepsItsOrder) {
  runRanks([](RankSide& side) {
    ncclComm_t twin = nullptr;
    ASSERT_EQ(ncclCommSplit(side.comm, 0, side.rank, &twin, nullptr), ncclSuccess)
        << ncclGetLastError(nullptr);
    constexpr int kRounds = 10;
    const Side both(side), one(side), other(side);
    Array<double> ours(side.gpu, 2000, 1), theirs(side.gpu, 500, 1);
    EXPECT_STATUS(both.gpu->capture([&]() -> Status {
      EXPECT_NCCL(ncclGroupStart());
      both.call(ours, side.comm);
      both.call(theirs, twin);
      EXPECT_NCCL(ncclGroupEnd());
      return {};
    }));
    one.capture(ours, side.comm, 1);
    side.meet();
    for (int round = 0; round < kRounds; ++round) {
      EXPECT_STATUS(both.gpu->replay());
      EXPECT_STATUS(one.gpu->replay());
      other.call(theirs, twin);
    }
    for (const Side* stream : {&both, &one, &other}) EXPECT_STATUS(stream->gpu->synchronize());
    expectCalls(ours, 2 * kRounds, side.count);
    expectCalls(theirs, 2 * kRounds, side.count);
    side.meet();
    EXPECT_NCCL(ncclCommDestroy(twin));
  });
}

TEST_F(Graphs, CapturesThatCameToNothingChangeNoOrder) {
  runRanks([](RankSide& side) {
    const Side replayed(side), called(side);
    Array<double> data(side.gpu, 3000, 1);
    const Status broken = replayed.gpu->capture([&]() -> Status {
      replayed.call(data, side.comm);
      return replayed.gpu->synchronize();  // forbidden: there is no graph
    });
    EXPECT_FALSE(broken.ok());
    for (int i = 0; i < 3; ++i) {
      replayed.capture(data, side.comm, 1);  // each in the place of the one before
      replayed.capture(data, side.comm, 2);
      side.meet();
      EXPECT_STATUS(replayed.gpu->replay());
      called.call(data, side.comm);
      EXPECT_STATUS(called.gpu->synchronize());
      EXPECT_STATUS(replayed.gpu->synchronize());
      side.meet();
    }
    expectCalls(data, 9, side.count);
  });
}

// ---- lives

class GraphLives : public GpuTest {};

// Of the device in bytes; of the fake's, whatever is there. Nothing: this driver does not tell.
std::optional<size_t> taken() {
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return std::nullopt;
  if (auto* alive = reinterpret_cast<int (*)()>(::dlsym(driver, "fakeCudaAlive")))
    return static_cast<size_t>(alive());
  auto* info = reinterpret_cast<int (*)(size_t*, size_t*)>(::dlsym(driver, "cuMemGetInfo_v2"));
  size_t free = 0, all = 0;
  if (info == nullptr || info(&free, &all) != 0) return std::nullopt;
  return all - free;
}

void liveOnce(bool isGraphFirst) {
  runRanks(
      [isGraphFirst](RankSide& side) {
        Array<double> data(side.gpu, 1000, 1);
        EXPECT_STATUS(side.gpu.capture([&]() -> Status {
          EXPECT_NCCL(ncclAllReduce(data.device(), data.device(), data.size(), ncclFloat64, ncclSum,
                                    side.comm, side.stream()));
          return {};
        }));
        side.meet();
        EXPECT_STATUS(side.gpu.replay());
        EXPECT_STATUS(side.gpu.synchronize());
        expectCalls(data, 1, side.count);
        side.meet();
        if (isGraphFirst) side.gpu.dropGraph();
        EXPECT_NCCL(ncclCommDestroy(side.comm));
        side.meet();
        if (!isGraphFirst) {
          // Nothing, or what the call does where no rank waits: what it uses is there still.
          EXPECT_STATUS(side.gpu.replay());
          EXPECT_STATUS(side.gpu.synchronize());
        }
      },
      End::kLeave);
}

// A rank has 26 MB at least.
TEST_F(GraphLives, CommunicatorsAndTheirGraphsLeaveNothing) {
  constexpr int kCycles = 20;
  for (const bool isGraphFirst : {true, false}) {
    for (int i = 0; i < 3; ++i) liveOnce(isGraphFirst);
    auto gpu = RankGpu::open(0, 0);
    ASSERT_TRUE(gpu.ok());
    const auto before = taken();
    ASSERT_TRUE(before.has_value());
    for (int cycle = 0; cycle < kCycles; ++cycle) liveOnce(isGraphFirst);
    EXPECT_STATUS(gpu.value()->makeCurrent());
    const bool isFake = *before < size_t{1} << 20;
    EXPECT_LE(*taken(), *before + (isFake ? 0 : size_t{64} << 20));
  }
}

}  // namespace
}  // namespace tutti::gputest
