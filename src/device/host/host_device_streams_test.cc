// Streams and events of the host: their order, host functions, and the streams' threads.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>

#include <array>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/process_counts_testing.h"
#include "device/host/host_device_testing.h"
#include "device/host_streams.h"
#include "device/registry.h"

namespace tutti::device {
namespace {

TEST_F(HostDeviceTest, KnowsWhetherAStreamIsDone) {
  void* stream = makeStream();
  EXPECT_TRUE(streams().isStreamDone(stream).value());
  Gate gate;
  ASSERT_TRUE(streams().launchHostFunction(stream, &Gate::passHere, &gate).ok());
  EXPECT_FALSE(streams().isStreamDone(stream).value());
  gate.open();
  ASSERT_TRUE(streams().synchronizeStream(stream).ok());
  EXPECT_TRUE(streams().isStreamDone(stream).value());
}

TEST_F(HostDeviceTest, CallsHostFunctionsInStreamOrder) {
  void* stream = makeStream();
  std::atomic<int> counter{0};
  NumberTask before(counter, 4);
  NumberTask after(counter);
  Task* task = &before;
  ASSERT_TRUE(device_->enqueue(resolved(stream), {&task, 1}).ok());
  const auto call = [](void* argument) { static_cast<std::atomic<int>*>(argument)->fetch_add(10); };
  ASSERT_TRUE(streams().launchHostFunction(stream, call, &counter).ok());
  task = &after;
  ASSERT_TRUE(device_->enqueue(resolved(stream), {&task, 1}).ok());
  ASSERT_TRUE(streams().synchronizeStream(stream).ok());
  EXPECT_EQ(before.number.load(), 0);
  EXPECT_EQ(after.number.load(), 11);
  ASSERT_TRUE(streams().launchHostFunction(nullptr, call, &counter).ok());
  EXPECT_EQ(counter.load(), 22);
}

TEST_F(HostDeviceTest, SurvivesAHostFunctionThatThrows) {
  void* stream = makeStream();
  const auto thrower = [](void*) { throw std::runtime_error("no"); };
  ASSERT_TRUE(streams().launchHostFunction(stream, thrower, nullptr).ok());
  EXPECT_TRUE(streams().synchronizeStream(stream).ok());
  EXPECT_EQ(streams().launchHostFunction(nullptr, thrower, nullptr).code(), Code::kInternalError);
}

TEST_F(HostDeviceTest, RefusesToWaitForAStreamOnItsOwnThread) {
  struct Attempt {
    HostStreams* streams;
    void* stream;
    Code synchronize;
    Code destroy;
    bool queried;
  } attempt{&streams(), makeStream(), Code::kOk, Code::kOk, true};
  const auto call = [](void* argument) {
    auto* own = static_cast<Attempt*>(argument);
    own->synchronize = own->streams->synchronizeStream(own->stream).code();
    own->destroy = own->streams->destroyStream(own->stream).code();
    own->queried = own->streams->isStreamDone(own->stream).value();
  };
  ASSERT_TRUE(streams().launchHostFunction(attempt.stream, call, &attempt).ok());
  ASSERT_TRUE(streams().synchronizeStream(attempt.stream).ok());
  EXPECT_EQ(attempt.synchronize, Code::kInvalidUsage);
  EXPECT_EQ(attempt.destroy, Code::kInvalidUsage);
  EXPECT_FALSE(attempt.queried);
}

TEST_F(HostDeviceTest, FinishesAStreamsWorkBeforeDestroyingIt) {
  std::atomic<int> counter{0};
  NumberTask task(counter, 1000);
  void* stream = makeStream();
  Task* one = &task;
  ASSERT_TRUE(device_->enqueue(resolved(stream), {&one, 1}).ok());
  ASSERT_TRUE(streams().destroyStream(stream).ok());
  EXPECT_EQ(task.completions, 1);
  NumberTask left(counter, 1000);
  one = &left;
  ASSERT_TRUE(device_->enqueue(resolved(makeStream()), {&one, 1}).ok());
  device_.reset();
  EXPECT_EQ(left.completions, 1);
}

TEST_F(HostDeviceTest, NamesItsThreadsAndKeepsSignalsFromThem) {
  struct Seen {
    std::array<char, 16> name{};
    int blocked = 0;
  } seen;
  void* stream = makeStream();
  const auto look = [](void* argument) {
    auto* own = static_cast<Seen*>(argument);
    ::prctl(PR_GET_NAME, own->name.data());
    sigset_t mask;
    ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    for (int signal : {SIGINT, SIGTERM, SIGUSR1, SIGALRM, SIGCHLD})
      own->blocked += ::sigismember(&mask, signal);
  };
  // The first function may run before the thread's name is set.
  ASSERT_TRUE(streams()
                  .launchHostFunction(
                      stream, [](void*) {}, nullptr)
                  .ok());
  ASSERT_TRUE(streams().launchHostFunction(stream, look, &seen).ok());
  ASSERT_TRUE(streams().synchronizeStream(stream).ok());
  EXPECT_STREQ(seen.name.data(), "tutti-stream");
  EXPECT_EQ(seen.blocked, 5);
}

TEST_F(HostDeviceTest, OrdersStreamsByEvents) {
  void* early = makeStream();
  void* late = makeStream();
  void* event = makeEvent();
  std::atomic<int> counter{0};
  Gate gate;
  NumberTask gated(counter, 1, &gate);
  NumberTask following(counter);
  Task* task = &gated;
  ASSERT_TRUE(device_->enqueue(resolved(early), {&task, 1}).ok());
  ASSERT_TRUE(streams().recordEvent(event, early).ok());
  EXPECT_FALSE(streams().isEventDone(event).value());
  ASSERT_TRUE(streams().waitEvent(late, event).ok());
  task = &following;
  ASSERT_TRUE(device_->enqueue(resolved(late), {&task, 1}).ok());
  EXPECT_FALSE(streams().isStreamDone(late).value());
  EXPECT_EQ(following.number.load(), -1);
  gate.open();
  ASSERT_TRUE(streams().synchronizeStream(late).ok());
  EXPECT_EQ(gated.number.load(), 0);
  EXPECT_EQ(following.number.load(), 1);
  EXPECT_TRUE(streams().isEventDone(event).value());
  EXPECT_TRUE(streams().synchronizeEvent(event).ok());
}

TEST_F(HostDeviceTest, KeepsEarlierWaitsWhenAnEventIsRecordedAgainOrDestroyed) {
  void* slow = makeStream();
  void* quick = makeStream();
  void* waiting = makeStream();
  void* event = makeEvent();
  Gate gate;
  ASSERT_TRUE(streams().launchHostFunction(slow, &Gate::passHere, &gate).ok());
  ASSERT_TRUE(streams().recordEvent(event, slow).ok());
  ASSERT_TRUE(streams().waitEvent(waiting, event).ok());
  ASSERT_TRUE(streams().recordEvent(event, quick).ok());
  ASSERT_TRUE(streams().synchronizeEvent(event).ok());
  EXPECT_TRUE(streams().isEventDone(event).value());
  EXPECT_FALSE(streams().isStreamDone(waiting).value());
  ASSERT_TRUE(streams().destroyEvent(event).ok());
  EXPECT_FALSE(streams().isStreamDone(waiting).value());
  gate.open();
  ASSERT_TRUE(streams().synchronizeStream(waiting).ok());
}

TEST_F(HostDeviceTest, TakesAnUnrecordedEventForReached) {
  void* event = makeEvent();
  EXPECT_TRUE(streams().isEventDone(event).value());
  EXPECT_TRUE(streams().synchronizeEvent(event).ok());
  EXPECT_TRUE(streams().waitEvent(makeStream(), event).ok());
  EXPECT_TRUE(streams().waitEvent(nullptr, event).ok());
}

TEST_F(HostDeviceTest, LetsTheCallingThreadWaitForAnEvent) {
  void* stream = makeStream();
  void* event = makeEvent();
  Gate gate;
  ASSERT_TRUE(streams().launchHostFunction(stream, &Gate::passHere, &gate).ok());
  ASSERT_TRUE(streams().recordEvent(event, stream).ok());
  std::thread opener([&] { gate.open(); });
  ASSERT_TRUE(streams().waitEvent(nullptr, event).ok());
  EXPECT_TRUE(gate.isOpen());
  opener.join();
}

TEST(HostEvents, MeasureTheTimeBetweenThem) {
  ManualClock clock;
  const auto device = openDevice(DeviceKind::kHost, {.clock = &clock}).value();
  HostStreams& streams = *device->hostStreams();
  void* stream = streams.createStream().value();
  void* start = streams.createEvent().value();
  void* end = streams.createEvent().value();
  EXPECT_EQ(streams.elapsedMilliseconds(start, end).status().code(), Code::kInvalidArgument);
  ASSERT_TRUE(streams.recordEvent(start, stream).ok());
  EXPECT_EQ(streams.elapsedMilliseconds(start, end).status().code(), Code::kInvalidArgument);
  const auto pass = [](void* time) {
    static_cast<ManualClock*>(time)->advance(std::chrono::microseconds(2500));
  };
  ASSERT_TRUE(streams.launchHostFunction(stream, pass, &clock).ok());
  Gate gate;
  ASSERT_TRUE(streams.launchHostFunction(stream, &Gate::passHere, &gate).ok());
  ASSERT_TRUE(streams.recordEvent(end, stream).ok());
  EXPECT_EQ(streams.elapsedMilliseconds(start, end).status().code(), Code::kInProgress);
  gate.open();
  ASSERT_TRUE(streams.synchronizeEvent(end).ok());
  EXPECT_FLOAT_EQ(streams.elapsedMilliseconds(start, end).value(), 2.5f);
  EXPECT_FLOAT_EQ(streams.elapsedMilliseconds(end, start).value(), -2.5f);
  ASSERT_TRUE(streams.recordEvent(start, nullptr).ok());
  EXPECT_FLOAT_EQ(streams.elapsedMilliseconds(end, start).value(), 0.0f);
}

TEST_F(HostDeviceTest, StartsThreadsWithTheFirstWorkAndLeavesNoneBehind) {
  std::thread([] {}).join();  // a sanitizer adds a thread of its own beside the first one
  const size_t before = runningThreads();
  std::vector<void*> made;
  for (int i = 0; i < 8; ++i) made.push_back(makeStream());
  EXPECT_EQ(runningThreads(), before);
  for (void* stream : made)
    ASSERT_TRUE(streams()
                    .launchHostFunction(
                        stream, [](void*) {}, nullptr)
                    .ok());
  EXPECT_EQ(runningThreads(), before + 8);
  for (void* stream : made) ASSERT_TRUE(streams().destroyStream(stream).ok());
  EXPECT_EQ(runningThreadsDownTo(before), before);
}

}  // namespace
}  // namespace tutti::device
