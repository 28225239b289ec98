// What a profiler is told of a GPU rank's calls.
#include "launch/gpu_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/futex.h"
#include "launch/gpu_launcher_testing.h"

namespace tutti::launch {
namespace {

using observe::EventKind;
using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

struct Event {
  EventKind kind = EventKind::kGroup;
  size_t parent = 0;  // by place; of groups their own
  Instant began{};
  Instant ended{};
  bool isOpen = true;
  observe::CallNote call{};
  observe::GroupNote group{};
};

// Keeps what it is told, and that events nest.
class Told : public observe::ProfilerSink {
 public:
  Handle beginGroup(const observe::GroupNote& note, Instant now) override {
    return add({.kind = EventKind::kGroup, .began = now, .group = note}, nullptr);
  }
  Handle beginCall(Handle group, const observe::CallNote& note, Instant now) override {
    takeLong(EventKind::kCall);
    return add({.kind = EventKind::kCall, .began = now, .call = note}, group);
  }
  Handle beginLaunch(Handle group, void* /*stream*/, Instant now) override {
    return add({.kind = EventKind::kLaunch, .began = now}, group);
  }
  Handle beginRun(Handle call, Instant now) override {
    takeLong(EventKind::kRun);
    return add({.kind = EventKind::kRun, .began = now}, call);
  }
  Handle beginTransfer(Handle, const observe::TransferNote&, Instant) override { return nullptr; }
  Handle beginMessage(Handle, const observe::MessageNote&, Instant) override { return nullptr; }
  void messageMoved(Handle, uint64_t, Instant) override {}
  void end(EventKind kind, Handle handle, Instant now) override {
    const std::lock_guard lock(mutex_);
    Event& event = events_[placeOf(handle)];
    EXPECT_EQ(event.kind, kind);
    EXPECT_TRUE(event.isOpen) << "ended once";
    EXPECT_LE(event.began, now);
    EXPECT_LE(now, steadyClock().now());
    event.ended = now;
    event.isOpen = false;
    for (const Event& child : events_) {
      if (&child == &event || &events_[child.parent] != &event) continue;
      EXPECT_FALSE(child.isOpen) << "before what it is in";
      EXPECT_LE(child.ended, now);
    }
  }
  void drop(size_t calls) override {
    const std::lock_guard lock(mutex_);
    dropped_ += calls;
  }

  // From now on does not return from the begin of such an event, until it is let go.
  void hold(EventKind kind) {
    const std::lock_guard lock(mutex_);
    held_ = kind;
    isHeld_ = false;
  }
  void awaitHeld() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return isHeld_; });
  }
  void letGo() {
    const std::lock_guard lock(mutex_);
    held_.reset();
    changed_.notify_all();
  }
  std::vector<Event> events(EventKind kind) const {
    const std::lock_guard lock(mutex_);
    std::vector<Event> found;
    std::ranges::copy_if(events_, std::back_inserter(found),
                         [kind](const Event& event) { return event.kind == kind; });
    return found;
  }
  size_t openCount() const {
    const std::lock_guard lock(mutex_);
    return static_cast<size_t>(std::ranges::count(events_, true, &Event::isOpen));
  }
  // Of what has a run, the run; by the calls' order. Null: none.
  std::vector<const Event*> runs() const {
    const std::lock_guard lock(mutex_);
    std::vector<const Event*> found;
    for (size_t call = 0; call < events_.size(); ++call) {
      if (events_[call].kind != EventKind::kCall) continue;
      const auto run = std::ranges::find_if(events_, [call](const Event& event) {
        return event.kind == EventKind::kRun && event.parent == call;
      });
      found.push_back(run == events_.end() ? nullptr : &*run);
    }
    return found;
  }
  size_t dropped() const {
    const std::lock_guard lock(mutex_);
    return dropped_;
  }

 private:
  void takeLong(EventKind kind) {
    std::unique_lock lock(mutex_);
    if (held_ != kind) return;
    isHeld_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !held_; });
  }
  static size_t placeOf(Handle handle) { return reinterpret_cast<uintptr_t>(handle) - 1; }
  Handle add(Event event, Handle parent) {
    const std::lock_guard lock(mutex_);
    event.parent = parent == nullptr ? events_.size() : placeOf(parent);
    if (parent != nullptr) {
      EXPECT_TRUE(events_[event.parent].isOpen) << "inside what is open";
      EXPECT_LE(events_[event.parent].began, event.began);
    }
    EXPECT_LE(event.began, steadyClock().now());
    events_.push_back(event);
    return reinterpret_cast<Handle>(events_.size());
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Event> events_;
  size_t dropped_ = 0;
  std::optional<EventKind> held_;
  bool isHeld_ = false;
};

class GpuProfileTest : public testing::Test {
 protected:
  void open(GpuRankOptions options = {.limits = {.rankCount = 4}}) {
    options.profiler = &profiler_;
    rank_ = std::make_unique<GpuRank>(options);
    rank_->gpu().timerOffset = 1'700'000'000'000'000'000;
    const Status status = rank_->open();
    ASSERT_TRUE(status.ok()) << status.message();
  }
  GpuLauncher& launcher() { return rank_->launcher(); }
  device::FakeAccelerator& gpu() { return rank_->gpu(); }
  // Soon, and before the rank goes.
  bool endsAll(size_t left = 0) const {
    const Instant deadline = steadyClock().now() + kPatience;
    while (told_->openCount() != left && steadyClock().now() < deadline)
      sleepFor(std::chrono::milliseconds(1));
    return told_->openCount() == left;
  }
  // Without those of the clock's.
  std::vector<NotedLaunch> launches() {
    auto noted = gpu().launches();
    const void* clocks = noted.front().stream;
    std::erase_if(noted, [clocks](const NotedLaunch& one) { return one.stream == clocks; });
    return noted;
  }
  static bool isStamp(const NotedLaunch& launch) { return launch.kernel == "tuttiStamp"; }

  Told* told_ = nullptr;  // profiler_'s
  observe::Profiler profiler_ = makeProfiler();
  std::unique_ptr<GpuRank> rank_;

 private:
  observe::Profiler makeProfiler() {
    auto told = std::make_unique<Told>();
    told_ = told.get();
    std::vector<std::unique_ptr<observe::ProfilerSink>> sinks;
    sinks.push_back(std::move(told));
    return observe::Profiler(std::move(sinks));
  }
};

TEST_F(GpuProfileTest, ACallRunsFromTheBeginOfItsKernelToItsEnd) {
  open();
  gpu().hold();
  const Instant before = steadyClock().now();
  Group group;
  group.add(Collective::kAllReduce, 1000);
  ASSERT_TRUE(group.launch(launcher()).ok());
  const Instant enqueued = steadyClock().now();
  sleepFor(std::chrono::milliseconds(20));
  EXPECT_EQ(told_->openCount(), 2u) << "the group and the call";
  gpu().finish();
  const Instant ended = steadyClock().now();
  ASSERT_TRUE(endsAll());
  const Event call = told_->events(EventKind::kCall)[0];
  const Event run = told_->events(EventKind::kRun)[0];
  EXPECT_LE(before, call.began);
  EXPECT_LE(call.began, enqueued);
  EXPECT_GE(run.began - enqueued, std::chrono::milliseconds(19));
  EXPECT_LE(run.ended - ended, std::chrono::milliseconds(1));
  EXPECT_EQ(call.ended, run.ended);
  EXPECT_EQ(told_->events(EventKind::kGroup)[0].ended, run.ended);
  EXPECT_LE(told_->events(EventKind::kLaunch)[0].ended, enqueued);
  EXPECT_EQ(call.call.algorithm, "oneshot");
  EXPECT_EQ(call.call.sequence, 1u);
  EXPECT_EQ(call.call.stream, kStream);
  EXPECT_EQ(call.call.input, group.calls()[0].input);
}

// On the stream of the launch, with nothing between.
TEST_F(GpuProfileTest, StampsLieRightBeforeAndAfterEachLaunch) {
  for (const int32_t ranksPerDevice : {1, 2}) {
    open({.limits = {.rankCount = 4, .ranksPerDevice = ranksPerDevice}});
    const size_t before = launches().size();
    ASSERT_TRUE(manyKinds().launch(launcher()).ok());
    const auto noted = launches();
    ASSERT_EQ((noted.size() - before) % 3, 0u);
    for (size_t i = before; i < noted.size(); i += 3) {
      EXPECT_TRUE(isStamp(noted[i]));
      EXPECT_FALSE(isStamp(noted[i + 1]));
      EXPECT_TRUE(isStamp(noted[i + 2]));
      EXPECT_EQ(noted[i].stream, noted[i + 1].stream);
      EXPECT_EQ(noted[i].stream, noted[i + 2].stream);
      EXPECT_NE(noted[i + 2].behind, 0u);
      EXPECT_FALSE(isStamp(gpu().launches()[noted[i + 2].behind - 1]));
    }
    EXPECT_TRUE(endsAll());
    rank_->close();
    EXPECT_EQ(gpu().alive(), 0u);
  }
}

// In order; those that share a launch have its times, and other launches other times.
TEST_F(GpuProfileTest, CallsOfAGroupHaveTheTimesOfTheirLaunches) {
  open();
  Group group;
  group.add(Collective::kAllReduce, 1)
      .add(Collective::kAllReduce, 2)
      .add(Collective::kSend, 9, DataType::kInt8, 0);
  group.add(Collective::kAllReduce, 5'000'000, DataType::kBfloat16).add(Collective::kAllGather, 0);
  group.add(Collective::kSend, 9, DataType::kInt8, 0).add(Collective::kRecv, 9, DataType::kInt8, 0);
  ASSERT_TRUE(group.launch(launcher()).ok());
  ASSERT_TRUE(endsAll());
  const auto runs = told_->runs();
  ASSERT_EQ(runs.size(), 7u);
  EXPECT_EQ(runs[4], nullptr) << "nothing to do";
  EXPECT_EQ(runs[0]->began, runs[1]->began);
  EXPECT_EQ(runs[0]->ended, runs[1]->ended);
  EXPECT_LT(runs[1]->ended, runs[3]->began) << "another kernel";
  EXPECT_LT(runs[3]->ended, runs[2]->began) << "sends and receives come last";
  EXPECT_EQ(runs[2]->began, runs[6]->began) << "the first of each way";
  EXPECT_LT(runs[2]->ended, runs[5]->began) << "the second send";
  EXPECT_TRUE(told_->events(EventKind::kGroup)[0].group.isUsers);
  const auto calls = told_->events(EventKind::kCall);
  EXPECT_THAT(std::vector({calls[0].call.sequence, calls[1].call.sequence, calls[2].call.sequence,
                           calls[3].call.sequence}),
              ElementsAre(1, 2, 0, 3));
}

TEST_F(GpuProfileTest, EveryCallOfAnyGroupIsToldOfAndEnds) {
  for (const int32_t rankCount : {2, 3, 8, 12}) {
    open({.limits = {.rankCount = rankCount}});
    SeededRng rng(static_cast<uint64_t>(rankCount));
    size_t calls = told_->events(EventKind::kCall).size(),
           withWork = told_->events(EventKind::kRun).size();
    for (int i = 0; i < 30; ++i) {
      const Drawn drawn = drawGroup(rng, rankCount, 1);
      ASSERT_TRUE(drawn.group.launch(launcher()).ok());
      calls += drawn.group.calls().size();
      withWork += drawn.group.calls().size();
    }
    ASSERT_TRUE(endsAll());
    EXPECT_EQ(told_->events(EventKind::kCall).size(), calls);
    EXPECT_EQ(told_->events(EventKind::kRun).size(), withWork);
    EXPECT_EQ(told_->dropped(), 0u);
    rank_->close();
  }
}

TEST_F(GpuProfileTest, CapturedCallsAreToldOfWhenTheyAreCaptured) {
  open();
  gpu().hold();
  gpu().beginCapture(kStream, 3);
  ASSERT_TRUE(allReduces(3).launch(launcher()).ok());
  EXPECT_EQ(told_->openCount(), 0u);
  EXPECT_THAT(told_->events(EventKind::kRun), IsEmpty());
  EXPECT_EQ(told_->events(EventKind::kCall).size(), 3u);
  EXPECT_TRUE(told_->events(EventKind::kGroup)[0].group.isCaptured);
  EXPECT_TRUE(told_->events(EventKind::kCall)[2].call.isCaptured);
  for (const NotedLaunch& launch : launches()) EXPECT_FALSE(isStamp(launch));
  gpu().endCapture(3);
  ASSERT_TRUE(allReduces(1).launch(launcher()).ok());
  EXPECT_FALSE(told_->events(EventKind::kGroup)[1].group.isCaptured);
  EXPECT_EQ(told_->events(EventKind::kCall)[3].call.sequence, 4u);
  gpu().finish();
  EXPECT_TRUE(endsAll());
}

TEST_F(GpuProfileTest, WhatIsMoreThanMayBeUnderWayIsDroppedAndWaitsForNobody) {
  open();
  gpu().hold();
  constexpr size_t kMore = 7;
  for (uint64_t i = 0; i < GpuProfile::kMostLaunches + kMore; ++i)
    ASSERT_TRUE(allReduces(1).launch(launcher()).ok());
  EXPECT_EQ(told_->dropped(), kMore);
  EXPECT_EQ(told_->events(EventKind::kCall).size(), GpuProfile::kMostLaunches);
  gpu().finish();
  ASSERT_TRUE(endsAll());
  ASSERT_TRUE(allReduces(1).launch(launcher()).ok());
  ASSERT_TRUE(endsAll());
  EXPECT_EQ(told_->dropped(), kMore);
  EXPECT_EQ(told_->events(EventKind::kCall).back().call.sequence,
            GpuProfile::kMostLaunches + kMore + 1);
  EXPECT_EQ(told_->events(EventKind::kRun).size(), GpuProfile::kMostLaunches + 1);
}

// Groups of many launches: calls without room for their stamps end with their group, without runs.
TEST_F(GpuProfileTest, CallsWithoutStampsHaveNoRuns) {
  open();
  gpu().hold();
  Group group;
  constexpr size_t kRounds = GpuStamps::kMost / 2 / 16;
  for (size_t i = 0; i < kRounds; ++i) group.add(Collective::kSend, 9, DataType::kInt8, 0);
  for (int i = 0; i < 17; ++i) ASSERT_TRUE(group.launch(launcher()).ok());
  EXPECT_EQ(told_->dropped(), kRounds);
  gpu().finish();
  ASSERT_TRUE(endsAll());
  EXPECT_EQ(told_->events(EventKind::kCall).size(), 17 * kRounds);
  EXPECT_EQ(told_->events(EventKind::kRun).size(), 16 * kRounds);
  gpu().hold();
  ASSERT_TRUE(group.launch(launcher()).ok());
  sleepFor(std::chrono::milliseconds(20));
  EXPECT_EQ(told_->events(EventKind::kRun).size(), 16 * kRounds) << "of stamps that are used again";
  gpu().finish();
  ASSERT_TRUE(endsAll());
  EXPECT_EQ(told_->events(EventKind::kRun).size(), 17 * kRounds);
}

TEST_F(GpuProfileTest, AGroupThatIsRefusedEndsAtOnce) {
  open();
  Group unpaired;
  unpaired.add(Collective::kAllReduce, 10).add(Collective::kSend, 10, DataType::kInt8, 1);
  EXPECT_FALSE(unpaired.launch(launcher()).ok());
  EXPECT_EQ(told_->openCount(), 0u);
  EXPECT_THAT(told_->events(EventKind::kRun), IsEmpty());
  ASSERT_TRUE(allReduces(1).launch(launcher()).ok());
  EXPECT_EQ(told_->events(EventKind::kCall).back().call.sequence, 1u) << "that one was no call";
  EXPECT_TRUE(endsAll());
}

// Wherever a group fails, all that it has begun is ended, though the GPU comes nowhere.
TEST_F(GpuProfileTest, AGroupThatFailsInItsMiddleIsEndedWithAllBefore) {
  for (int number = 1;; ++number) {
    SCOPED_TRACE(number);
    ASSERT_LT(number, 100);
    open();
    gpu().hold();
    ASSERT_TRUE(allReduces(2).launch(launcher()).ok());
    gpu().failAt("launch", number);
    const Status status = manyKinds().launch(launcher());
    gpu().mend();
    if (status.ok()) break;
    EXPECT_TRUE(launcher().hasFailed());
    EXPECT_TRUE(endsAll());
    EXPECT_FALSE(allReduces(1).launch(launcher()).ok());
    EXPECT_EQ(told_->openCount(), 0u) << "nothing is told of what is not called";
    rank_->close();
    EXPECT_GT(gpu().alive(), 0u) << "where the GPU may still write";
    rank_.reset();
  }
}

TEST_F(GpuProfileTest, WhatIsOpenIsEndedWhenTheRankFailsOrGoes) {
  open();
  gpu().hold();
  ASSERT_TRUE(manyKinds().launch(launcher()).ok());
  launcher().abort();
  EXPECT_TRUE(endsAll());

  open();
  gpu().hold();
  ASSERT_TRUE(manyKinds().launch(launcher()).ok());
  EXPECT_NE(told_->openCount(), 0u);
  rank_->close();
  EXPECT_EQ(told_->openCount(), 0u);
}

// An aborted kernel ends in a moment: that is its end.
TEST_F(GpuProfileTest, WhatTheGpuEndsAfterAnAbortHasItsTimes) {
  open();
  gpu().hold();
  ASSERT_TRUE(allReduces(1).launch(launcher()).ok());
  launcher().abort();
  gpu().finish();
  ASSERT_TRUE(endsAll());
  EXPECT_EQ(told_->events(EventKind::kRun).size(), 1u);
}

// Neither over what begins nor over what has ended: the watcher finds out, and ends the kernels.
TEST_F(GpuProfileTest, APlugInThatDoesNotReturnKeepsNobodyFromFindingOutOfADeath) {
  for (const EventKind kind : {EventKind::kCall, EventKind::kRun}) {
    open({.limits = {.rankCount = 3}, .timeout = std::chrono::seconds(1)});
    if (kind == EventKind::kRun) {
      told_->hold(kind);
      ASSERT_TRUE(allReduces(1).launch(launcher()).ok());
      told_->awaitHeld();
    }
    gpu().hold();
    ASSERT_TRUE(allReduces(1).launch(launcher()).ok());
    std::thread caller;
    if (kind == EventKind::kCall) {
      told_->hold(kind);
      caller = std::thread([this] { (void)allReduces(1).launch(launcher()); });
      told_->awaitHeld();
    }
    EXPECT_FALSE(launcher().isIdle());
    rank_->recorderOf(0).giveVerdict(
        {.code = Code::kRemoteError, .guilty = 2, .text = "rank 2 fell into a well"});
    EXPECT_TRUE(rank_->failsWithin(kPatience));
    told_->letGo();
    if (caller.joinable()) caller.join();
    EXPECT_TRUE(endsAll());
    rank_->close();
  }
}

// The GPU's timer runs faster than the host's clock: what is told stays right.
TEST_F(GpuProfileTest, TheClocksAreComparedAsTheyDrift) {
  open();
  gpu().hold();
  ASSERT_TRUE(allReduces(1).launch(launcher()).ok());
  for (int i = 0; i < 10; ++i) {
    sleepFor(std::chrono::milliseconds(30));
    gpu().timerOffset += 1000;  // 33 ppm
    gpu().finish(gpu().launches().size() - 1);
  }
  ASSERT_TRUE(allReduces(1).launch(launcher()).ok());
  const Instant before = steadyClock().now();
  gpu().finish();
  const Instant after = steadyClock().now();
  ASSERT_TRUE(endsAll());
  const Event run = told_->events(EventKind::kRun).back();
  EXPECT_LE(before - run.began, std::chrono::milliseconds(1));
  EXPECT_LE(run.ended - after, std::chrono::milliseconds(1));
}

TEST_F(GpuProfileTest, ARankWhoseGpuTakesNoStampsGoesOnWithoutAProfile) {
  GpuRankOptions options{.limits = {.rankCount = 4}, .timeout = std::chrono::milliseconds(50)};
  options.profiler = &profiler_;
  rank_ = std::make_unique<GpuRank>(options);
  gpu().hold();
  ASSERT_TRUE(rank_->open().ok());
  gpu().finish();
  ASSERT_TRUE(allReduces(1).launch(launcher()).ok());
  EXPECT_THAT(told_->events(EventKind::kCall), IsEmpty());
}

}  // namespace
}  // namespace tutti::launch
