// One rank's launcher on a GPU that notes what it is told: what is launched, how calls fail, how
// what a kernel writes and what the board says becomes an error.
#include "launch/gpu_launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <string>
#include <thread>

#include "base/rng.h"
#include "launch/child_testing.h"
#include "launch/gpu_rank_testing.h"

namespace tutti::launch {
namespace {

using device::NotedLaunch;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

constexpr Nanoseconds kPatience = std::chrono::seconds(20);
void* const kStream = reinterpret_cast<void*>(uintptr_t{0x10});
void* const kOther = reinterpret_cast<void*>(uintptr_t{0x20});

// Buffers that nobody reads, a different one for each call.
std::byte* bufferOf(size_t call) {
  return reinterpret_cast<std::byte*>((uintptr_t{1} << 40) + (call << 32));
}

// The calls of a group, each on a stream.
class Group {
 public:
  Group& add(Collective collective, uint64_t count, DataType type = DataType::kFloat32,
             int32_t peer = 0, ReduceOp op = ReduceOp::kSum) {
    calls_.push_back(
        {.shape =
             {.collective = collective, .type = type, .op = op, .peer = Rank{peer}, .count = count},
         .input = bufferOf(2 * calls_.size()),
         .output = bufferOf(2 * calls_.size() + 1)});
    streams_.push_back(stream_);
    return *this;
  }
  Group& on(void* stream) {
    stream_ = stream;
    return *this;
  }
  const std::vector<Call>& calls() const { return calls_; }
  Status launch(GpuLauncher& launcher) const {
    std::vector<StreamCall> items;
    for (size_t i = 0; i < calls_.size(); ++i)
      items.push_back({.call = &calls_[i], .stream = streams_[i]});
    return launcher.launch(items);
  }

 private:
  std::vector<Call> calls_;
  std::vector<void*> streams_;
  void* stream_ = kStream;
};

Group allReduces(int count) {
  Group group;
  for (int i = 0; i < count; ++i) group.add(Collective::kAllReduce, static_cast<uint64_t>(i) + 1);
  return group;
}

bool isProgram(const NotedLaunch& launch) {
  return launch.kernel.ends_with("Program") || launch.kernel == "tuttiProgramTransfers";
}
bool isOfTransfers(const NotedLaunch& launch) {
  return launch.kernel == "tuttiProgramTransfers" || kernels::cuda::takesTransfers(launch.kernel);
}

// What the kernels of a rank have in common.
struct Words {
  const uint32_t* abort;
  wire::GpuError* error;
};
Words wordsOf(const NotedLaunch& launch) {
  if (launch.kernel == "tuttiProgramTransfers") {
    const auto view = argumentOf<wire::GpuProgramTransfers>(launch).view;
    return {.abort = view.abortWord, .error = view.error};
  }
  if (isProgram(launch)) {
    const auto view = argumentOf<wire::GpuProgramLaunch>(launch).view;
    return {.abort = view.abortWord, .error = view.error};
  }
  const wire::GpuView view = isOfTransfers(launch) ? argumentOf<wire::GpuTransfers>(launch).view
                                                   : argumentOf<wire::GpuLaunch>(launch).view;
  return {.abort = view.abortWord, .error = view.error};
}
bool isAborted(const NotedLaunch& launch) {
  return std::atomic_ref(const_cast<uint32_t&>(*wordsOf(launch).abort)).load() != 0;
}

std::unique_ptr<GpuRank> openRank(GpuRank::Options options) {
  auto rank = std::make_unique<GpuRank>(std::move(options));
  const Status status = rank->open();
  EXPECT_TRUE(status.ok()) << status.message();
  return rank;
}

// ---- what is launched

// Collectives as one element each: which, and where it goes to.
using Done = std::pair<Collective, const void*>;
std::vector<Done> collectivesOf(const std::vector<NotedLaunch>& launches) {
  std::vector<Done> done;
  for (const NotedLaunch& launch : launches) {
    if (isOfTransfers(launch)) continue;
    if (isProgram(launch)) {
      const auto call = argumentOf<wire::GpuProgramLaunch>(launch).call;
      done.push_back({call.collective, call.output});
      continue;
    }
    const auto argument = argumentOf<wire::GpuLaunch>(launch);
    for (int32_t i = 0; i < argument.callCount; ++i)
      done.push_back({argument.calls[i].collective, argument.calls[i].output});
  }
  return done;
}
// Sends and receives: the peer, and the buffer.
using Transfer = std::tuple<bool, int32_t, const void*>;
std::multiset<Transfer> transfersOf(const std::vector<NotedLaunch>& launches) {
  std::multiset<Transfer> transfers;
  for (const NotedLaunch& launch : launches) {
    if (!isOfTransfers(launch)) continue;
    if (isProgram(launch)) {
      const auto argument = argumentOf<wire::GpuProgramTransfers>(launch);
      for (int32_t i = 0; i < argument.transferCount; ++i) {
        const auto& one = argument.transfers[i];
        transfers.insert({(one.peerAndKind & wire::kGpuProgramSends) != 0,
                          one.peerAndKind & ~wire::kGpuProgramSends, one.buffer});
      }
      continue;
    }
    const auto argument = argumentOf<wire::GpuTransfers>(launch);
    for (int32_t i = 0; i < argument.transferCount; ++i) {
      const auto& one = argument.transfers[i];
      transfers.insert({one.isSend, one.peer, one.buffer});
    }
  }
  return transfers;
}

struct Drawn {
  Group group;
  std::vector<Done> collectives;
  std::multiset<Transfer> transfers;
};
Drawn drawGroup(SeededRng& rng, int32_t rankCount, int32_t self) {
  const auto draw = [&rng](uint64_t below) { return rng.below(below); };
  Drawn drawn;
  const uint64_t calls = 1 + draw(60);
  for (uint64_t i = 0; i < calls; ++i) {
    const auto collective = static_cast<Collective>(draw(kCollectiveCount));
    const uint64_t count = 1 + draw(uint64_t{1} << draw(24));
    auto peer = static_cast<int32_t>(draw(static_cast<uint64_t>(rankCount)));
    if (isPointToPoint(collective) && peer == self) peer = (self + 1) % rankCount;
    drawn.group.on(draw(3) == 0 ? kOther : kStream)
        .add(collective, count, static_cast<DataType>(draw(kDataTypeCount)), peer,
             draw(2) == 0 ? ReduceOp::kSum : ReduceOp::kMax);
    const Call& call = drawn.group.calls().back();
    if (!isPointToPoint(call)) {
      drawn.collectives.push_back({collective, call.output});
    } else {
      const bool isSend = collective == Collective::kSend;
      drawn.transfers.insert({isSend, peer, isSend ? call.input : call.output});
    }
  }
  return drawn;
}

class GpuLauncherOf : public testing::TestWithParam<int32_t> {};

TEST_P(GpuLauncherOf, LaunchesEveryCallOfAGroupOnceAndCollectivesInOrder) {
  const int32_t rankCount = GetParam();
  auto rank = openRank({.limits = {.rankCount = rankCount}});
  SeededRng rng(static_cast<uint64_t>(rankCount));
  size_t seen = 0;
  for (int round = 0; round < 25; ++round) {
    const Drawn drawn = drawGroup(rng, rankCount, 1);
    const Status status = drawn.group.launch(rank->launcher());
    ASSERT_TRUE(status.ok()) << status.message();
    auto launches = rank->gpu().launches();
    launches.erase(launches.begin(), launches.begin() + static_cast<ptrdiff_t>(seen));
    seen += launches.size();
    EXPECT_EQ(collectivesOf(launches), drawn.collectives) << "round " << round;
    EXPECT_EQ(transfersOf(launches), drawn.transfers) << "round " << round;
    for (const NotedLaunch& launch : launches) {
      EXPECT_GE(launch.blocks, 1u);
      EXPECT_GE(launch.threads, 32u);
      EXPECT_EQ(launch.stream, drawn.group.calls().empty() ? nullptr : launches[0].stream);
      EXPECT_FALSE(isAborted(launch));
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, GpuLauncherOf, testing::Values(3, 4, 8, 12));

TEST(GpuLauncherTest, KernelsAreToldOfAllSegmentsAndTheirRank) {
  for (const int32_t rankCount : {2, 5, 8}) {
    auto rank =
        openRank({.limits = {.rankCount = rankCount}, .waitLimit = std::chrono::milliseconds(7)});
    ASSERT_TRUE(Group().add(Collective::kAllReduce, 100).launch(rank->launcher()).ok());
    const auto view = argumentOf<wire::GpuLaunch>(rank->gpu().launches().at(0)).view;
    EXPECT_EQ(view.rank, 1);
    EXPECT_EQ(view.rankCount, rankCount);
    EXPECT_EQ(view.timeoutNs, 7'000'000u);
    EXPECT_EQ(*view.abortWord, 0u);
    EXPECT_EQ(view.error->fault, 0u);
    for (size_t peer = 0; peer < rank->rankCount(); ++peer)
      EXPECT_EQ(view.segments[peer], rank->segments()->addresses()[peer]);
  }
}

TEST(GpuLauncherTest, LongCallsTakeFewerBlocksWhileOthersHaveTheGpu) {
  for (const bool adapts : {true, false}) {
    auto rank = openRank({.limits = {.rankCount = 4, .adaptsBlocks = adapts, .hasBulk = true}});
    std::vector<uint32_t> blocks;
    for (uint64_t call = 1; call <= 100; ++call) {
      for (const int32_t other : {0, 2, 3}) rank->board().page(other).longCalls = call << 1;
      ASSERT_TRUE(Group()
                      .add(Collective::kAllReduce, 16 << 20)
                      .add(Collective::kAllReduce, 16)
                      .launch(rank->launcher())
                      .ok());
      const auto launches = rank->gpu().launches();
      const NotedLaunch& launch = launches[launches.size() - 2];
      blocks.push_back(launch.blocks);
      // Every launch was late.
      uint64_t* starts = argumentOf<wire::GpuLaunch>(launch).view.starts;
      std::atomic_ref(*starts).store(call << 32 | call);
    }
    EXPECT_GT(blocks.front(), 128u);
    EXPECT_EQ(blocks.back() <= 32, adapts) << blocks.back();
  }
}

TEST(GpuLauncherTest, FiftySmallAllReducesAreFourLaunches) {
  auto rank = openRank({.limits = {.rankCount = 4}});
  ASSERT_TRUE(allReduces(50).launch(rank->launcher()).ok());
  std::vector<int32_t> counts;
  uint64_t next = 1;
  for (const NotedLaunch& launch : rank->gpu().launches()) {
    const auto argument = argumentOf<wire::GpuLaunch>(launch);
    counts.push_back(argument.callCount);
    for (int32_t i = 0; i < argument.callCount; ++i) EXPECT_EQ(argument.calls[i].count, next++);
  }
  EXPECT_THAT(counts, testing::ElementsAre(16, 16, 16, 2));
}

// No call loads a kernel: that could wait for kernels that wait for us.
TEST(GpuLauncherTest, AllKernelsAreFoundWhenItOpens) {
  for (const int32_t rankCount : {2, 3, 8, 12}) {
    auto rank = openRank({.limits = {.rankCount = rankCount}});
    rank->gpu().failAt("findKernel");
    SeededRng rng(7);
    for (int round = 0; round < 40; ++round) {
      const Status status = drawGroup(rng, rankCount, 1).group.launch(rank->launcher());
      ASSERT_TRUE(status.ok()) << status.message();
    }
    EXPECT_FALSE(rank->gpu().hasFailed());
  }
}

TEST(GpuLauncherTest, RanksThatShareAGpuRunEveryKernelOnceOnAStreamOfTheirOwn) {
  auto rank = openRank({.limits = {.rankCount = 4, .ranksPerDevice = 2}});
  const auto tried = rank->gpu().launches();
  std::set<std::string> names;
  for (const NotedLaunch& launch : tried) {
    EXPECT_EQ(launch.blocks, 1u);
    EXPECT_EQ(launch.stream, tried[0].stream);
    names.insert(launch.kernel);
  }
  ASSERT_TRUE(
      allReduces(1).on(kOther).add(Collective::kBroadcast, 5).launch(rank->launcher()).ok());
  const auto launches = rank->gpu().launches();
  ASSERT_GT(launches.size(), tried.size());
  for (size_t i = tried.size(); i < launches.size(); ++i) {
    EXPECT_EQ(launches[i].stream, tried[0].stream);
    EXPECT_TRUE(names.contains(launches[i].kernel)) << launches[i].kernel;
  }
}

TEST(GpuLauncherTest, MoreThanEightRanksRegisterNoBuffers) {
  auto rank = openRank({.limits = {.rankCount = 12}});
  const Status status = rank->launcher().addBuffer(&status, bufferOf(0), 4096);
  EXPECT_EQ(status.code(), Code::kInvalidUsage);
}

// ---- failures of calls

TEST(GpuLauncherTest, AGroupThatIsRefusedLaunchesNothingAndHarmsNothing) {
  auto rank = openRank({.limits = {.rankCount = 3}});
  Group unpaired;
  unpaired.add(Collective::kAllReduce, 10).add(Collective::kSend, 10, DataType::kInt8, 1);
  EXPECT_FALSE(unpaired.launch(rank->launcher()).ok()) << "a send to oneself without a receive";
  EXPECT_TRUE(rank->gpu().launches().empty());
  EXPECT_FALSE(rank->launcher().hasFailed());
  EXPECT_TRUE(allReduces(3).launch(rank->launcher()).ok());
}

// A group of every kind of launch on two streams, other than the stream of the call before.
Group manyKinds() {
  Group group;
  group.on(kStream);
  for (int i = 0; i < 20; ++i) group.add(Collective::kAllReduce, 100);
  group.add(Collective::kAllReduce, 5'000'000, DataType::kBfloat16).on(kOther);
  group.add(Collective::kAllGather, 3).add(Collective::kAllToAll, 100'000);
  group.add(Collective::kSend, 9, DataType::kInt8, 0).add(Collective::kRecv, 9, DataType::kInt8, 2);
  group.add(Collective::kSend, 9'000'000, DataType::kInt8, 0);
  return group;
}

struct FailedCall {
  const char* call;
  bool isSticky;
};
class GpuLauncherFailing : public testing::TestWithParam<FailedCall> {};

// Of a group all is launched or nothing, or what was is ended, and the communicator says why. In
// either case it goes away as it should.
TEST_P(GpuLauncherFailing, InAnyPlaceOfAGroupLeavesNoPartOfItWaiting) {
  const auto [call, isSticky] = GetParam();
  size_t whole = 0;
  bool hasAborted = false;
  for (int number = 1;; ++number) {
    SCOPED_TRACE(testing::Message() << call << " " << number);
    ASSERT_LT(number, 100);
    for (const int32_t ranksPerDevice : {1, 2}) {
      auto rank = openRank({.limits = {.rankCount = 4, .ranksPerDevice = ranksPerDevice}});
      device::FakeAccelerator& gpu = rank->gpu();
      ASSERT_TRUE(allReduces(1).on(kOther).launch(rank->launcher()).ok());
      gpu.hold();
      ASSERT_TRUE(Group().on(kOther).add(Collective::kAllReduce, 1).launch(rank->launcher()).ok());
      const size_t before = gpu.launches().size();
      gpu.failAt(call, number, isSticky);
      const Status status = manyKinds().launch(rank->launcher());
      const size_t launched = gpu.launches().size() - before;
      if (!gpu.hasFailed()) {
        EXPECT_TRUE(status.ok()) << status.message();
        EXPECT_TRUE(hasAborted || std::string_view(call) == "wait");
        return;
      }
      if (whole == 0) {
        auto healthy = openRank({.limits = {.rankCount = 4}});
        ASSERT_TRUE(manyKinds().launch(healthy->launcher()).ok());
        whole = healthy->gpu().launches().size();
        ASSERT_GT(whole, 4u);
      }
      EXPECT_EQ(status.code(), Code::kUnhandledCudaError);
      EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(call) + ": CUDA_ERROR"));
      const auto launches = gpu.launches();
      EXPECT_EQ(rank->launcher().hasFailed(), isAborted(launches.back()));
      if (rank->launcher().hasFailed()) {
        hasAborted = true;
        gpu.mend();
        EXPECT_EQ(rank->launcher().failure().message(), status.message());
        EXPECT_EQ(allReduces(3).launch(rank->launcher()).message(), status.message());
        EXPECT_EQ(gpu.launches().size(), launches.size()) << "nothing after a failure";
      } else {
        EXPECT_TRUE(launched == 0 || launched == whole) << launched << " of " << whole;
        gpu.mend();
        EXPECT_TRUE(allReduces(3).launch(rank->launcher()).ok()) << "nothing has happened";
      }
      // Where nothing tells when what was launched ends, what it uses stays.
      const bool isKept = rank->launcher().hasFailed() && isSticky;
      gpu.finish(before);
      const bool isOver = rank->launcher().hasFailed() && (launched == 0 || isSticky);
      EXPECT_EQ(rank->launcher().isIdle(), isOver) << launched << " launches run yet";
      gpu.finish();
      EXPECT_TRUE(rank->launcher().isIdle());
      rank->close();
      EXPECT_EQ(gpu.alive(), isKept ? rank->rankCount() + 1 : 0);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Calls, GpuLauncherFailing,
                         testing::Values(FailedCall{"launch", false}, FailedCall{"record", false},
                                         FailedCall{"wait", false}, FailedCall{"launch", true},
                                         FailedCall{"record", true}, FailedCall{"wait", true}));

TEST(GpuLauncherTest, WhatFailsWhileItOpensLeavesNothing) {
  for (const char* call :
       {"makeWords", "createEvent", "createStream", "findKernel", "launch", "record", "isDone"}) {
    bool hasFailed = true;
    for (int number = 1; hasFailed; ++number) {
      SCOPED_TRACE(testing::Message() << call << " " << number);
      GpuRank rank({.limits = {.rankCount = 3, .ranksPerDevice = 2}});
      rank.gpu().failAt(call, number);
      const Status status = rank.open();
      hasFailed = rank.gpu().hasFailed();
      const bool isAsked = std::string_view(call) == "isDone";  // only waits for the trial's end
      EXPECT_EQ(status.ok(), !hasFailed || isAsked) << status.message();
      if (hasFailed && !isAsked) {
        EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(call) + ": CUDA_ERROR"));
      }
      EXPECT_TRUE(hasFailed || number > 1) << "nobody calls it";
      rank.close();
      EXPECT_EQ(rank.gpu().alive(), 0u);
    }
  }
}

TEST(GpuLauncherTest, KernelsThatDoNotEndWhileItOpensAreAnErrorInTime) {
  GpuRank rank(
      {.limits = {.rankCount = 2, .ranksPerDevice = 2}, .timeout = std::chrono::milliseconds(50)});
  rank.gpu().hold();
  const Status status = rank.open();
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("have not ended within 50 ms"), HasSubstr("GPU 0000:01:00.0")));
  EXPECT_EQ(rank.gpu().alive(), 0u);
}

TEST(GpuLauncherTest, ADestroyedStreamIsAnErrorOfTheCall) {
  for (void* last : {kStream, kOther}) {
    for (const int32_t ranksPerDevice : {1, 2}) {
      auto rank = openRank({.limits = {.rankCount = 3, .ranksPerDevice = ranksPerDevice}});
      ASSERT_TRUE(Group().on(last).add(Collective::kAllReduce, 1).launch(rank->launcher()).ok());
      rank->gpu().loseStream(kOther);
      const auto launches = rank->gpu().launches();
      const Status status =
          Group().on(kOther).add(Collective::kAllReduce, 1).launch(rank->launcher());
      EXPECT_EQ(status.code(), Code::kUnhandledCudaError);
      EXPECT_THAT(std::string(status.message()), HasSubstr("CUDA_ERROR_INVALID_HANDLE"));
      EXPECT_EQ(rank->gpu().launches().size(), launches.size());
      EXPECT_FALSE(rank->launcher().hasFailed());
      EXPECT_TRUE(Group().add(Collective::kAllReduce, 1).launch(rank->launcher()).ok());
      rank->close();
      EXPECT_EQ(rank->gpu().alive(), 0u);
    }
  }
}

TEST(GpuLauncherTest, AGpuThatDoesNotTellWhatItHoldsRunsNoKernel) {
  auto rank = openRank({.limits = {.rankCount = 3}});
  rank->gpu().failAt("blocksPerMultiprocessor");
  const Status status = allReduces(1).launch(rank->launcher());
  EXPECT_THAT(std::string(status.message()), HasSubstr("blocksPerMultiprocessor: CUDA_ERROR"));
  EXPECT_TRUE(rank->gpu().launches().empty());
  EXPECT_TRUE(rank->launcher().hasFailed());
  rank->close();
  EXPECT_EQ(rank->gpu().alive(), 0u);
}

TEST(GpuLauncherTest, ALostDeviceHoldsUpNobody) {
  auto rank = openRank({.limits = {.rankCount = 3}});
  rank->gpu().hold();
  ASSERT_TRUE(allReduces(1).launch(rank->launcher()).ok());
  EXPECT_FALSE(rank->launcher().isIdle());
  rank->gpu().failAt("isDone", 1, true);
  EXPECT_TRUE(rank->launcher().waitIdle(kPatience, steadyClock()));
  EXPECT_FALSE(allReduces(1).launch(rank->launcher()).ok());
  rank->launcher().abort();
  rank->close();
}

// ---- what runs, and its end

TEST(GpuLauncherTest, IsIdleWhenTheDeviceHasEndedWhatWasCalled) {
  auto rank = openRank({.limits = {.rankCount = 3}});
  EXPECT_TRUE(rank->launcher().isIdle());
  rank->gpu().hold();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(allReduces(1).launch(rank->launcher()).ok());
  for (uint64_t ended = 0; ended < 5; ++ended) {
    rank->gpu().finish(ended);
    EXPECT_FALSE(rank->launcher().isIdle()) << ended << " of 5";
    EXPECT_FALSE(rank->launcher().waitIdle(Nanoseconds(0), steadyClock()));
  }
  rank->gpu().finish(5);
  EXPECT_TRUE(rank->launcher().isIdle());
}

TEST(GpuLauncherTest, AbortIsSeenByWhatRunsAndTheFirstFailureStays) {
  auto rank = openRank({.limits = {.rankCount = 3}});
  rank->gpu().hold();
  ASSERT_TRUE(manyKinds().launch(rank->launcher()).ok());
  const auto launches = rank->gpu().launches();
  rank->launcher().fail(Status(Code::kRemoteError, "the first"));
  rank->launcher().fail(Status(Code::kInternalError, "the second"));
  for (const NotedLaunch& launch : launches) EXPECT_TRUE(isAborted(launch));
  EXPECT_EQ(rank->launcher().failure().message(), "the first");
  EXPECT_EQ(allReduces(1).launch(rank->launcher()).code(), Code::kRemoteError);
  EXPECT_EQ(rank->gpu().launches().size(), launches.size());
}

struct FaultCase {
  wire::GpuFault fault;
  int32_t peer;
  Code code;
  const char* text;
};

TEST(GpuLauncherTest, WhatAKernelWritesBecomesAnErrorThatNamesThePeer) {
  using wire::GpuFault;
  const std::string who = "rank 2 \\(node2, pid 1002, GPU 2\\)";
  const std::vector<FaultCase> faults = {
      {GpuFault::kAborted, 2, Code::kRemoteError, "aborted while waiting for WHO in AllGather"},
      {GpuFault::kTimedOut, 2, Code::kRemoteError,
       "rank 1 waited 250 ms for WHO in AllGather \\(message 77\\); TUTTI_GPU_WAIT_MS"},
      {GpuFault::kMismatch, 2, Code::kInvalidUsage,
       "rank 1 is in AllGather but WHO runs another call"},
      {GpuFault::kTimedOut, -1, Code::kRemoteError, "for a rank in AllGather"},
      {GpuFault::kTimedOut, 3, Code::kRemoteError, "for a rank in AllGather"},
  };
  for (const FaultCase& one : faults) {
    for (const bool isCaptured : {false, true}) {
      auto rank = openRank({.limits = {.rankCount = 3},
                            .timeout = std::chrono::seconds(1),
                            .waitLimit = std::chrono::milliseconds(250)});
      rank->gpu().hold();
      if (isCaptured) rank->gpu().beginCapture(kStream, 5);
      ASSERT_TRUE(Group().add(Collective::kAllGather, 100).launch(rank->launcher()).ok());
      if (isCaptured) rank->gpu().endCapture(5);
      const NotedLaunch launch = rank->gpu().launches().back();
      wire::GpuError& error = *wordsOf(launch).error;
      error.peer = one.peer;
      error.collective = static_cast<uint32_t>(Collective::kAllGather);
      error.number = 77;
      std::atomic_ref(error.fault).store(static_cast<uint32_t>(one.fault));
      ASSERT_TRUE(rank->failsWithin(kPatience)) << one.text;
      const Status failure = rank->launcher().failure();
      EXPECT_EQ(failure.code(), one.code);
      std::string wanted = one.text;
      if (const size_t at = wanted.find("WHO"); at != std::string::npos) wanted.replace(at, 3, who);
      EXPECT_THAT(std::string(failure.message()), ContainsRegex(wanted));
      EXPECT_TRUE(isAborted(launch));
      EXPECT_TRUE(rank->board().hasVerdict()) << "the others hear of it";
    }
  }
}

TEST(GpuLauncherTest, AVerdictOfAnotherRankEndsWhatWaits) {
  for (const bool isCaptured : {false, true}) {
    auto rank = openRank({.limits = {.rankCount = 3}, .timeout = std::chrono::seconds(1)});
    rank->gpu().hold();
    if (isCaptured) rank->gpu().beginCapture(kStream, 5);
    ASSERT_TRUE(allReduces(1).launch(rank->launcher()).ok());
    rank->recorderOf(0).giveVerdict(
        {.code = Code::kRemoteError, .guilty = 2, .text = "rank 2 fell into a well"});
    ASSERT_TRUE(rank->failsWithin(kPatience));
    EXPECT_THAT(std::string(rank->launcher().failure().message()), HasSubstr("into a well"));
    EXPECT_TRUE(isAborted(rank->gpu().launches().back()));
  }
}

// ---- the dead

class GpuLauncherDeathTest : public testing::Test {
 protected:
  // Rank 2 is a process of its own.
  void open(Nanoseconds timeout = std::chrono::seconds(2)) {
    rank_ =
        std::make_unique<GpuRank>(GpuRank::Options{.limits = {.rankCount = 3}, .timeout = timeout});
    observe::Page& page = rank_->board().page(2);
    page.processId = child_.identity().processId;
    page.processStart = child_.identity().start;
    ASSERT_TRUE(rank_->open().ok());
    rank_->gpu().hold();
  }
  void capture(const Group& group) {
    rank_->gpu().beginCapture(kStream, 9);
    EXPECT_TRUE(group.launch(rank_->launcher()).ok());
    rank_->gpu().endCapture(9);
  }
  void expectNamed() {
    const Instant start = steadyClock().now();
    ASSERT_TRUE(rank_->failsWithin(kPatience));
    took_ = steadyClock().now() - start;
    EXPECT_EQ(rank_->launcher().failure().code(), Code::kRemoteError);
    EXPECT_THAT(std::string(rank_->launcher().failure().message()), HasSubstr("rank 2 (node2"));
    EXPECT_TRUE(isAborted(rank_->gpu().launches().back()));
  }

  Child child_;  // first: it is to have a copy of nothing
  std::unique_ptr<GpuRank> rank_;
  Nanoseconds took_{};
};

TEST_F(GpuLauncherDeathTest, OfARankThatIsAwaitedEndsWhatWaits) {
  open();
  ASSERT_TRUE(allReduces(1).launch(rank_->launcher()).ok());
  sleepFor(std::chrono::milliseconds(300));
  EXPECT_FALSE(rank_->launcher().hasFailed()) << "late is not dead";
  child_.end();
  expectNamed();
}

TEST_F(GpuLauncherDeathTest, IsFoundWhereOnlyReplaysMayRun) {
  open();
  capture(allReduces(1));
  EXPECT_TRUE(rank_->launcher().isIdle());
  sleepFor(std::chrono::milliseconds(700));  // into the longest pauses
  EXPECT_FALSE(rank_->launcher().hasFailed());
  child_.end();
  expectNamed();
}

TEST_F(GpuLauncherDeathTest, IsNobodysBusinessWhileNothingWasCalled) {
  open();
  ASSERT_TRUE(allReduces(1).launch(rank_->launcher()).ok());
  rank_->gpu().finish();
  EXPECT_TRUE(rank_->launcher().isIdle());
  sleepFor(std::chrono::milliseconds(100));
  child_.end();
  sleepFor(std::chrono::milliseconds(300));
  EXPECT_FALSE(rank_->launcher().hasFailed());
  rank_->gpu().hold();
  ASSERT_TRUE(allReduces(1).launch(rank_->launcher()).ok());
  expectNamed();
}

TEST_F(GpuLauncherDeathTest, OfARankThatIsStoppedForLongerThanTheTimeoutIsTold) {
  open(std::chrono::seconds(1));
  ASSERT_TRUE(allReduces(1).launch(rank_->launcher()).ok());
  child_.stop();
  expectNamed();
  EXPECT_THAT(std::string(rank_->launcher().failure().message()), HasSubstr("alive, stopped"));
}

// ---- launches that the driver holds up

// One that comes back when the abort word is raised, as when a kernel has to end first.
class HeldUpLaunch {
 public:
  explicit HeldUpLaunch(GpuRank& rank) {
    rank.gpu().onLaunch = [this](const device::KernelLaunch& launch) {
      const auto& view = static_cast<const wire::GpuLaunch*>(launch.argument)->view;
      std::atomic_ref abort(const_cast<uint32_t&>(*view.abortWord));
      isHeldUp_ = true;
      const Instant deadline = steadyClock().now() + kPatience;
      while (abort.load() == 0 && steadyClock().now() < deadline)
        sleepFor(std::chrono::milliseconds(1));
      wasAborted_ = abort.load() != 0;
    };
    caller_ = std::thread([&rank] { allReduces(1).launch(rank.launcher()).ok(); });
    while (!isHeldUp_) sleepFor(std::chrono::milliseconds(1));
  }
  ~HeldUpLaunch() {
    if (caller_.joinable()) caller_.join();
  }

  // Once.
  bool wasAborted() {
    caller_.join();
    return wasAborted_;
  }

 private:
  std::atomic<bool> isHeldUp_ = false;
  std::atomic<bool> wasAborted_ = false;
  std::thread caller_;
};

// Which another communicator's kernel may be the reason for: ncclCommAbort returns all the same.
TEST(GpuLauncherTest, WhoWaitsForTheEndOfALaunchThatTheDriverHoldsUpWaitsNoLongerThanItSaid) {
  auto rank = openRank({.limits = {.rankCount = 3}});
  HeldUpLaunch launch(*rank);
  const Instant start = steadyClock().now();
  EXPECT_FALSE(rank->launcher().waitIdle(std::chrono::milliseconds(200), steadyClock()));
  EXPECT_LT(steadyClock().now() - start, kPatience / 2);
  rank->launcher().abort();
  EXPECT_TRUE(launch.wasAborted());
  EXPECT_TRUE(rank->launcher().waitIdle(kPatience, steadyClock()));
}

// While another thread allocates; the watcher ends it without the launcher's mutex.
TEST(GpuLauncherTest, ALaunchThatTheDriverHoldsUpIsEndedWhenItsPeerHasLeft) {
  auto rank = openRank({.limits = {.rankCount = 3}});
  HeldUpLaunch launch(*rank);
  rank->recorderOf(2).setLife(observe::Life::kDestroyed);
  EXPECT_TRUE(launch.wasAborted());
  ASSERT_TRUE(rank->failsWithin(kPatience));
  EXPECT_THAT(std::string(rank->launcher().failure().message()),
              AllOf(HasSubstr("rank 2 (node2"), HasSubstr("destroyed")));
}

// Far ahead of the GPU, where kernels wait for that rank for good.
TEST_F(GpuLauncherDeathTest, EndsALaunchThatTheDriverHoldsUp) {
  open();
  HeldUpLaunch launch(*rank_);
  sleepFor(std::chrono::milliseconds(300));
  EXPECT_FALSE(rank_->launcher().hasFailed()) << "late is not dead";
  child_.end();
  EXPECT_TRUE(launch.wasAborted());
  expectNamed();
}

TEST_F(GpuLauncherDeathTest, EndsALaunchThatTheDriverHoldsUpForARankThatIsStopped) {
  open(std::chrono::seconds(1));
  HeldUpLaunch launch(*rank_);
  child_.stop();
  EXPECT_TRUE(launch.wasAborted());
  expectNamed();
  EXPECT_THAT(std::string(rank_->launcher().failure().message()), HasSubstr("alive, stopped"));
}

TEST(GpuLauncherTest, ALaunchThatTheDriverHoldsUpIsEndedByAnotherRanksVerdict) {
  auto rank = openRank({.limits = {.rankCount = 3}});
  HeldUpLaunch launch(*rank);
  rank->recorderOf(0).giveVerdict(
      {.code = Code::kRemoteError, .guilty = 2, .text = "rank 2 fell into a well"});
  EXPECT_TRUE(launch.wasAborted());
  ASSERT_TRUE(rank->failsWithin(kPatience));
}

// ---- graphs

TEST(GpuLauncherTest, CapturedCallsNeitherRunNorHoldUpIdleness) {
  auto rank = openRank({.limits = {.rankCount = 4}});
  rank->gpu().hold();
  rank->gpu().beginCapture(kStream, 3);
  ASSERT_TRUE(allReduces(20).launch(rank->launcher()).ok());
  EXPECT_TRUE(rank->launcher().isIdle());
  for (const NotedLaunch& launch : rank->gpu().launches()) EXPECT_EQ(launch.capture, 3u);
  rank->gpu().endCapture(3);
  ASSERT_TRUE(allReduces(1).launch(rank->launcher()).ok());
  EXPECT_FALSE(rank->launcher().isIdle());
}

// Whichever comes first: work of a stream outside would become part of the graph, or be lost.
TEST(GpuLauncherTest, AGroupIsWhollyPartOfOneCaptureOrOfNone) {
  for (const uint64_t first : {0, 3, 4}) {
    for (const uint64_t second : {0, 3, 4}) {
      auto rank = openRank({.limits = {.rankCount = 4}});
      if (first != 0) rank->gpu().beginCapture(kStream, first);
      if (second != 0) rank->gpu().beginCapture(kOther, second);
      const Status status = manyKinds().launch(rank->launcher());
      EXPECT_FALSE(rank->launcher().hasFailed());
      if (first == second) {
        EXPECT_TRUE(status.ok()) << status.message();
        continue;
      }
      EXPECT_EQ(status.code(), Code::kInvalidUsage);
      EXPECT_THAT(std::string(status.message()), HasSubstr("captured"));
      EXPECT_TRUE(rank->gpu().launches().empty());
      rank->close();
      EXPECT_EQ(rank->gpu().alive(), 0u) << "no graph has anything of it";
    }
  }
}

// What a user's mistake, or another thread's, does to a capture is no failure of the communicator:
// nothing of it will ever run.
TEST(GpuLauncherTest, ABrokenCaptureIsAnErrorOfTheCallAlone) {
  for (const int32_t ranksPerDevice : {1, 2}) {
    for (void* broken : {kStream, kOther}) {
      auto rank = openRank({.limits = {.rankCount = 3, .ranksPerDevice = ranksPerDevice}});
      const size_t before = rank->gpu().launches().size();
      rank->gpu().beginCapture(broken, 3);
      rank->gpu().breakCapture(3);
      const Status status = manyKinds().launch(rank->launcher());
      EXPECT_EQ(status.code(), Code::kInvalidUsage);
      EXPECT_THAT(std::string(status.message()),
                  ContainsRegex("capture of stream 0x.* has failed"));
      EXPECT_EQ(rank->gpu().launches().size(), before);
      rank->gpu().endCapture(3);
      EXPECT_TRUE(manyKinds().launch(rank->launcher()).ok());
      rank->close();
      EXPECT_EQ(rank->gpu().alive(), 0u) << "no graph has anything of it";
    }
  }
}

// Another thread may break it at any time.
TEST(GpuLauncherTest, ACaptureThatBreaksAmidACallDoesNotEndTheCommunicator) {
  for (size_t launchesBefore = 0; launchesBefore < 4; ++launchesBefore) {
    auto rank = openRank({.limits = {.rankCount = 3}});
    device::FakeAccelerator& gpu = rank->gpu();
    gpu.beginCapture(kStream, 3);
    gpu.onLaunch = [&](const device::KernelLaunch&) {
      if (gpu.launches().size() == launchesBefore) gpu.breakCapture(3);
    };
    const Status status = allReduces(50).launch(rank->launcher());
    EXPECT_EQ(status.code(), Code::kUnhandledCudaError);
    EXPECT_EQ(gpu.launches().size(), launchesBefore);
    EXPECT_FALSE(rank->launcher().hasFailed());
    EXPECT_TRUE(observe::readBoard(rank->board())[1].history.empty()) << "the others know of none";
    gpu.endCapture(3);
    ASSERT_TRUE(allReduces(1).launch(rank->launcher()).ok());
    EXPECT_FALSE(isAborted(gpu.launches().back()));
    rank->close();
    EXPECT_EQ(gpu.alive(), 0u);
  }
}

TEST(GpuLauncherTest, AStreamThatTellsNothingOfCapturesTakesNoCall) {
  for (const int number : {1, 2}) {
    auto rank = openRank({.limits = {.rankCount = 3}});
    rank->gpu().failAt("captureOf", number);
    const Status status = manyKinds().launch(rank->launcher());
    EXPECT_THAT(std::string(status.message()), HasSubstr("captureOf: CUDA_ERROR"));
    EXPECT_TRUE(rank->gpu().launches().empty());
    EXPECT_TRUE(manyKinds().launch(rank->launcher()).ok());
  }
}

// Replays after the end find the abort word raised, and it, the error's words and the segments
// where they were.
TEST(GpuLauncherTest, WhatAGraphHoldsOutlivesTheCommunicator) {
  for (const bool isAbortedBefore : {false, true}) {
    auto rank = openRank({.limits = {.rankCount = 4}});
    rank->gpu().beginCapture(kStream, 3);
    ASSERT_TRUE(allReduces(40).launch(rank->launcher()).ok());
    rank->gpu().endCapture(3);
    const auto launches = rank->gpu().launches();
    if (isAbortedBefore) rank->launcher().abort();
    rank->close();
    EXPECT_EQ(rank->gpu().alive(), rank->rankCount() + 1) << "the segments, and the words";
    for (const NotedLaunch& launch : launches) {
      EXPECT_TRUE(isAborted(launch));
      const auto view = argumentOf<wire::GpuLaunch>(launch).view;
      view.error->peer = 1;
      for (int32_t peer = 0; peer < view.rankCount; ++peer) *view.segments[peer] = std::byte{1};
    }
  }
}

TEST(GpuLauncherTest, WithoutACaptureNothingOutlivesTheCommunicator) {
  for (const int32_t rankCount : {1, 2, 8, 12}) {
    auto rank = openRank({.limits = {.rankCount = rankCount}, .self = 0});
    SeededRng rng(3);
    if (rankCount > 1) {
      EXPECT_TRUE(drawGroup(rng, rankCount, 0).group.launch(rank->launcher()).ok());
    }
    rank->close();
    EXPECT_EQ(rank->gpu().alive(), 0u);
  }
}

}  // namespace
}  // namespace tutti::launch
