// What comes before what, on a device that knows: groups, streams and captures as a seed says.
#include "launch/stream_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
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
    switch (draw(9)) {
      case 0: return work(streamAt(draw(kStreams)));
      case 1: return workAmid(captures_[draw(kPairs)]);
      case 2: return finishSome();
      case 3: return turn(captures_[draw(kPairs)]);
      case 4: return replace(streamAt(draw(kStreams)));
      case 5:
      case 6: return group(&captures_[draw(kPairs)]);
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
    capture.called.clear();
    if (capture.id != 0) {
      gpu().endCapture(capture.id);
      capture.id = 0;
      return;
    }
    capture.id = ++lastCapture_;
    for (void* stream : capture.streams) gpu().beginCapture(stream, capture.id);
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
      for (const uint64_t number : earlier) {
        if (!isCaptured && number <= ended_) continue;
        EXPECT_TRUE(launch.after.contains(number))
            << "launch " << i + 1 << " of the communicator may overlap " << number;
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
  std::set<uint64_t> called_;  // outside of captures, as Captured::called
  std::map<void*, std::set<uint64_t>> work_;
};

class StreamOrderTest : public testing::TestWithParam<int32_t> {};

// Calls of a communicator never overlap; a group's come after all that its streams had before, and
// all of them go on after it.
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

}  // namespace
}  // namespace tutti::launch
