// What comes before what, on a device that knows: groups, streams and captures as a seed says.
#include "launch/stream_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "launch/gpu_rank_testing.h"

namespace tutti::launch {
namespace {

using device::NotedLaunch;

void* streamAt(uint64_t which) { return reinterpret_cast<void*>(0x10 * (which + 1)); }

// Streams of the user's: some run, and two pairs are captured now and then, each into a graph.
constexpr uint64_t kStreams = 4;
constexpr size_t kPairs = 2;

class Play {
 public:
  Play(uint64_t seed, int32_t ranksPerDevice)
      : rng_(seed), rank_({.limits = {.rankCount = 4, .ranksPerDevice = ranksPerDevice}}) {
    const Status status = rank_.open();
    EXPECT_TRUE(status.ok()) << status.message();
    before_ = gpu().launches().size();  // the trials of kernels
    ended_ = before_;
    gpu().finish(ended_);
    user_ = gpu().findKernel({}, "user", 0).value();
  }

  void step() {
    switch (draw(11)) {
      case 0: return work(streamAt(draw(kStreams)));
      case 1: return workAmid(captures_[draw(kPairs)]);
      case 2: return finishSome();
      case 3: return turn(captures_[draw(kPairs)]);
      case 4: return replace(streamAt(draw(kStreams)));
      case 5:
      case 6: return group(&captures_[draw(kPairs)]);
      case 7:
      case 8: return replay();
      default: return group(nullptr);
    }
  }

 private:
  struct Captured {
    std::array<void*, 2> streams;
    uint64_t id = 0;            // 0: not now
    std::set<uint64_t> called;  // the communicator's, numbered as the device does
  };

  device::FakeAccelerator& gpu() { return rank_.gpu(); }
  uint64_t draw(uint64_t below) { return rng_.below(below); }

  // Something of the user's. Streams to be captured have none outside of captures.
  void workAmid(const Captured& capture) {
    if (capture.id != 0) work(capture.streams[draw(2)]);
  }
  void work(void* stream) {
    const wire::GpuLaunch argument{};
    EXPECT_TRUE(gpu().launch({.kernel = user_, .argument = &argument}, stream).ok());
    work_[stream].insert(gpu().launches().size());
  }
  // What the one that goes has still to do, its follower does not wait for.
  void replace(void* stream) {
    gpu().replaceStream(stream);
    work_[stream].clear();
  }
  void finishSome() {
    ended_ += draw(gpu().launches().size() - ended_ + 1);
    gpu().finish(ended_);
    if (draw(2) == 0) rank_.launcher().isIdle();
  }
  void turn(Captured& capture) {
    for (void* stream : capture.streams) work_[stream].clear();
    if (capture.id != 0) {
      gpu().endCapture(capture.id);
      graphs_.push_back(capture);
      capture.id = 0;
      capture.called.clear();
      return;
    }
    capture.id = ++lastCapture_;
    for (void* stream : capture.streams) gpu().beginCapture(stream, capture.id);
  }

  // On any stream, which nothing of the program's orders with others.
  void replay() {
    if (graphs_.empty()) return;
    const size_t which = draw(graphs_.size());
    const Captured graph = graphs_[which];
    const auto numbers = gpu().replay(graph.id, streamAt(draw(kStreams)));
    const auto launches = gpu().launches();
    std::set<uint64_t> replayed;
    for (const uint64_t number : graph.called) {
      const uint64_t again = numbers.at(number);
      expectAfter(launches[again - 1], again);
      replayed.insert(again);
    }
    called_.merge(replayed);
    if (draw(3) != 0) return;
    gpu().destroyGraph(graph.id);
    graphs_.erase(graphs_.begin() + static_cast<ptrdiff_t>(which));
  }
  // All calls of the communicator that may still run.
  void expectAfter(const NotedLaunch& launch, uint64_t number) {
    for (const uint64_t before : called_) {
      EXPECT_TRUE(before <= ended_ || launch.after.contains(before))
          << "launch " << number << " of the communicator may overlap " << before;
    }
  }

  // Of a capture where one is given and under way.
  void group(Captured* capture) {
    if (capture != nullptr && capture->id == 0) capture = nullptr;
    std::vector<Call> calls(1 + draw(5));
    std::vector<StreamCall> items;
    for (Call& call : calls) {
      call.shape = {.count = 1 + draw(uint64_t{1} << draw(22))};
      call.shape.type = draw(2) == 0 ? DataType::kFloat32 : DataType::kInt8;
      items.push_back(
          {.call = &call,
           .stream = capture != nullptr ? capture->streams[draw(2)] : streamAt(draw(kStreams))});
    }
    const size_t first = gpu().launches().size();
    const Status status = rank_.launcher().launch(items, false);
    ASSERT_TRUE(status.ok()) << status.message();
    check(items, first, capture);
  }

  void check(const std::vector<StreamCall>& items, size_t first, Captured* capture) {
    const bool isCaptured = capture != nullptr;
    const auto launches = gpu().launches();
    ASSERT_GT(launches.size(), first);
    std::set<uint64_t>& earlier = isCaptured ? capture->called : called_;
    for (size_t i = first; i < launches.size(); ++i) {
      const NotedLaunch& launch = launches[i];
      EXPECT_EQ(launch.capture, isCaptured ? capture->id : 0);
      if (!isCaptured) expectAfter(launch, i + 1);
      for (const uint64_t number : capture != nullptr ? capture->called : std::set<uint64_t>{}) {
        EXPECT_TRUE(launch.after.contains(number))
            << "launch " << i + 1 << " of the graph may overlap " << number;
      }
      for (const StreamCall& item : items) {
        for (const uint64_t number : work_[item.stream])
          EXPECT_TRUE(launch.after.contains(number)) << "before the user's " << number;
      }
      earlier.insert(i + 1);
    }
    for (const StreamCall& item : items) {
      const auto before = gpu().before(item.stream);
      for (size_t i = first; i < launches.size(); ++i)
        EXPECT_TRUE(before.contains(i + 1)) << "a stream of the group goes on before its calls";
    }
  }

  SeededRng rng_;
  GpuRank rank_;
  const device::Kernel* user_ = nullptr;
  uint64_t before_ = 0;
  uint64_t ended_ = 0;
  uint64_t lastCapture_ = 0;
  std::array<Captured, kPairs> captures_{
      {{.streams = {streamAt(kStreams), streamAt(kStreams + 1)}, .called = {}},
       {.streams = {streamAt(kStreams + 2), streamAt(kStreams + 3)}, .called = {}}}};
  std::vector<Captured> graphs_;
  std::set<uint64_t> called_;  // outside of captures and by replays, as Captured::called
  std::map<void*, std::set<uint64_t>> work_;
};

class StreamOrderTest : public testing::TestWithParam<int32_t> {};

// Calls of a communicator never overlap, whether they run or graphs do; a group's come after all
// that its streams had before, and all of them go on after it.
TEST_P(StreamOrderTest, HoldsForGroupsOnAnyStreamsInAndOutOfCaptures) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Play play(seed, GetParam());
    for (int step = 0; step < 60 && !HasFailure(); ++step) play.step();
    if (HasFailure()) return;
  }
}
INSTANTIATE_TEST_SUITE_P(RanksOnAGpu, StreamOrderTest, testing::Values(1, 2));

// The one call that a stream needs is the record of its end.
TEST(StreamOrder, CallsOnOneStreamWaitForNothing) {
  GpuRank rank({.limits = {.rankCount = 4}});
  ASSERT_TRUE(rank.open().ok());
  rank.gpu().hold();
  rank.gpu().failAt("wait", 1, true);
  Call call;
  call.shape.count = 100;
  const StreamCall item{.call = &call, .stream = streamAt(0)};
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(rank.launcher().launch({&item, 1}, false).ok());
  rank.gpu().finish();
  EXPECT_TRUE(rank.launcher().isIdle());
  const StreamCall other{.call = &call, .stream = streamAt(1)};
  EXPECT_TRUE(rank.launcher().launch({&other, 1}, false).ok())
      << "nor on another when nothing runs";
  EXPECT_FALSE(rank.gpu().hasFailed());
}

Status reduceOn(GpuRank& rank, void* stream) {
  Call call;
  call.shape.count = 100;
  const StreamCall item{.call = &call, .stream = stream};
  return rank.launcher().launch({&item, 1}, false);
}

// However many calls it has, on however many streams. Others of the communicator count anew.
TEST(StreamOrder, AGraphHasOneNodeThatWaitsAndOneThatRecords) {
  for (const bool mixes : {true, false}) {
    GpuRank rank({.limits = {.rankCount = 4}, .mixesGraphs = mixes});
    ASSERT_TRUE(rank.open().ok());
    for (const uint64_t id : {1, 2}) {
      for (const uint64_t which : {0, 1}) rank.gpu().beginCapture(streamAt(which), id);
      for (uint64_t call = 0; call < 20; ++call)
        ASSERT_TRUE(reduceOn(rank, streamAt(call / 3 % 2)).ok());
      for (const uint64_t earlier : {1, 2}) {
        const size_t nodes = mixes && earlier <= id ? 1 : 0;
        EXPECT_EQ(rank.gpu().eventNodes(earlier), std::pair(nodes, nodes));
      }
      rank.gpu().endCapture(id);
    }
  }
}

// The call may still run when the capture begins, on a stream that is gone.
TEST(StreamOrder, AGraphComesAfterWhatWasCalledBeforeAnyCapture) {
  for (const int32_t ranksPerDevice : {1, 2}) {
    GpuRank rank({.limits = {.rankCount = 4, .ranksPerDevice = ranksPerDevice}});
    ASSERT_TRUE(rank.open().ok());
    rank.gpu().hold();
    ASSERT_TRUE(reduceOn(rank, streamAt(0)).ok());
    const uint64_t called = rank.gpu().launches().size();
    rank.gpu().replaceStream(streamAt(0));
    rank.gpu().beginCapture(streamAt(1), 7);
    ASSERT_TRUE(reduceOn(rank, streamAt(1)).ok());
    rank.gpu().endCapture(7);
    const auto numbers = rank.gpu().replay(7, streamAt(2));
    ASSERT_EQ(numbers.size(), 1u);
    const auto launches = rank.gpu().launches();
    EXPECT_TRUE(launches[numbers.begin()->second - 1].after.contains(called));
  }
}

// Nothing of the graph runs ever, so nobody waits for it.
TEST(StreamOrder, ACaptureThatComesToNothingHoldsUpNobody) {
  GpuRank rank({.limits = {.rankCount = 4}});
  ASSERT_TRUE(rank.open().ok());
  rank.gpu().beginCapture(streamAt(1), 7);
  ASSERT_TRUE(reduceOn(rank, streamAt(1)).ok());
  rank.gpu().breakCapture(7);
  rank.gpu().endCapture(7);
  for (const uint64_t which : {0, 2, 0}) {
    ASSERT_TRUE(reduceOn(rank, streamAt(which)).ok());
    const auto launches = rank.gpu().launches();
    EXPECT_FALSE(launches.back().after.contains(1));
    EXPECT_TRUE(launches.size() == 2 || launches.back().after.contains(launches.size() - 1));
  }
}

// Before a first captured call is an event's node, behind which no kernel can start early.
TEST(StreamOrder, AGraphsFirstCallDoesNotStartEarly) {
  for (const bool mixes : {true, false}) {
    GpuRank rank({.limits = {.rankCount = 4}, .mixesGraphs = mixes});
    ASSERT_TRUE(rank.open().ok());
    rank.gpu().beginCapture(streamAt(1), 7);
    ASSERT_TRUE(reduceOn(rank, streamAt(1)).ok());
    ASSERT_TRUE(reduceOn(rank, streamAt(1)).ok());
    const auto launches = rank.gpu().launches();
    EXPECT_EQ(launches[0].startsEarly, !mixes);
    EXPECT_TRUE(launches[1].startsEarly);
  }
}

TEST(StreamOrder, AGraphThatCannotBeOrderedIsAnErrorOfTheCallAlone) {
  for (const char* call : {"shareWithGraph", "waitInGraph", "createStream", "createEvent"}) {
    GpuRank rank({.limits = {.rankCount = 4}});
    ASSERT_TRUE(rank.open().ok());
    rank.gpu().hold();
    ASSERT_TRUE(reduceOn(rank, streamAt(0)).ok());
    const size_t before = rank.gpu().launches().size();
    rank.gpu().beginCapture(streamAt(1), 7);
    rank.gpu().failAt(call);
    EXPECT_FALSE(reduceOn(rank, streamAt(1)).ok()) << call;
    EXPECT_EQ(rank.gpu().launches().size(), before);
    EXPECT_FALSE(rank.launcher().hasFailed());
    ASSERT_TRUE(reduceOn(rank, streamAt(1)).ok()) << "the next is ordered";
    rank.gpu().endCapture(7);
    const auto numbers = rank.gpu().replay(7, streamAt(2));
    const auto launches = rank.gpu().launches();
    EXPECT_TRUE(launches[numbers.begin()->second - 1].after.contains(before));
    rank.gpu().finish();
  }
}

}  // namespace
}  // namespace tutti::launch
