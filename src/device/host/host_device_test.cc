#include "device/host/host_device.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/units.h"
#include "device/host/allocations_for_test.h"
#include "device/host/host_device_testing.h"
#include "device/ping_pong_for_test.h"

namespace tutti::device {
namespace {

TEST_F(HostDeviceTest, TellsWhatItIs) {
  EXPECT_TRUE(device_->caps().isHost);
  EXPECT_EQ(device_->caps().name, "host");
  EXPECT_GE(device_->caps().concurrency, 1);
}

TEST_F(HostDeviceTest, AllocatesZeroedPages) {
  void* memory = device_->allocate(5000).value();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 4096, 0u);
  const auto* bytes = static_cast<const unsigned char*>(memory);
  for (size_t i = 0; i < 5000; ++i) ASSERT_EQ(bytes[i], 0);
  EXPECT_TRUE(device_->free(memory).ok());
}

TEST_F(HostDeviceTest, FreesOnlyWhatItAllocated) {
  int foreign = 0;
  void* memory = device_->allocate(1).value();
  expectInvalid(device_->free(&foreign));
  expectInvalid(device_->free(nullptr));
  expectInvalid(device_->free(static_cast<char*>(memory) + 1));
  EXPECT_TRUE(device_->free(memory).ok());
  expectInvalid(device_->free(memory));
}

TEST_F(HostDeviceTest, RefusesSizesThatCannotBe) {
  expectInvalid(device_->allocate(0).takeStatus());
  expectInvalid(device_->allocate(SIZE_MAX).takeStatus());
  EXPECT_EQ(device_->allocate(SIZE_MAX / 2).takeStatus().code(), Code::kSystemError);
}

TEST_F(HostDeviceTest, TakesNullAndCudaConstantsForTheCallingThread) {
  for (uintptr_t handle : {0u, 1u, 2u})
    EXPECT_EQ(resolved(reinterpret_cast<void*>(handle)), nullptr);
}

TEST_F(HostDeviceTest, RefusesForeignDestroyedAndOtherKindsOfHandles) {
  int foreign = 0;
  void* stream = makeStream();
  void* event = makeEvent();
  ASSERT_TRUE(streams().destroyStream(stream).ok());
  for (void* bad : {static_cast<void*>(&foreign), reinterpret_cast<void*>(3),
                    reinterpret_cast<void*>(~uintptr_t{0}), stream, event}) {
    expectInvalid(device_->resolve(bad).takeStatus());
    expectInvalid(streams().destroyStream(bad));
    expectInvalid(streams().synchronizeStream(bad));
    expectInvalid(streams().isStreamDone(bad).takeStatus());
    expectInvalid(streams().launchHostFunction(
        bad, [](void*) {}, nullptr));
    expectInvalid(streams().recordEvent(event, bad));
    expectInvalid(streams().waitEvent(bad, event));
  }
  void* live = makeStream();
  ASSERT_TRUE(streams().destroyEvent(event).ok());
  for (void* bad : {static_cast<void*>(&foreign), static_cast<void*>(nullptr), live, event}) {
    expectInvalid(streams().destroyEvent(bad));
    expectInvalid(streams().recordEvent(bad, live));
    expectInvalid(streams().waitEvent(live, bad));
    expectInvalid(streams().synchronizeEvent(bad));
    expectInvalid(streams().isEventDone(bad).takeStatus());
    expectInvalid(streams().elapsedMilliseconds(bad, bad).takeStatus());
  }
  expectInvalid(streams().destroyStream(nullptr));
  expectInvalid(streams().launchHostFunction(live, nullptr, nullptr));
}

TEST_F(HostDeviceTest, RunsTasksInTheCallingThreadWithoutAStream) {
  std::atomic<int> counter{0};
  NumberTask slow(counter, 5);
  NumberTask quick(counter, 2);
  const std::array<Task*, 2> tasks{&slow, &quick};
  ASSERT_TRUE(device_->enqueue(nullptr, tasks).ok());
  EXPECT_EQ(quick.number.load(), 0);
  EXPECT_EQ(slow.number.load(), 1);
  EXPECT_EQ(slow.thread, std::this_thread::get_id());
  EXPECT_TRUE(device_->enqueue(nullptr, {}).ok());
}

TEST_F(HostDeviceTest, RunsGroupsInOrderAndTheTasksOfAGroupTogether) {
  void* stream = makeStream();
  std::atomic<int> counter{0};
  std::vector<std::unique_ptr<NumberTask>> tasks;
  for (int group = 0; group < 200; ++group) {
    for (int polls : {6, 3, 1}) tasks.push_back(std::make_unique<NumberTask>(counter, polls));
    const std::array<Task*, 3> together{tasks.end()[-3].get(), tasks.end()[-2].get(),
                                        tasks.end()[-1].get()};
    ASSERT_TRUE(device_->enqueue(resolved(stream), together).ok());
  }
  ASSERT_TRUE(streams().synchronizeStream(stream).ok());
  for (int group = 0; group < 200; ++group) {
    for (int i = 0; i < 3; ++i) {
      const NumberTask& task = *tasks[static_cast<size_t>(3 * group + i)];
      EXPECT_EQ(task.number.load(), 3 * group + 2 - i);
      EXPECT_EQ(task.completions, 1);
      EXPECT_NE(task.thread, std::this_thread::get_id());
    }
  }
}

TEST_F(HostDeviceTest, TakesWorkFromManyThreadsAndLosesNone) {
  void* stream = makeStream();
  std::atomic<int> counter{0};
  constexpr int kThreads = 8;
  constexpr int kEach = 500;
  std::vector<std::vector<std::unique_ptr<NumberTask>>> tasks(kThreads);
  std::vector<std::thread> threads;
  for (auto& own : tasks) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) {
        own.push_back(std::make_unique<NumberTask>(counter));
        Task* task = own.back().get();
        ASSERT_TRUE(device_->enqueue(resolved(stream), {&task, 1}).ok());
        if (i % 100 == 0) {
          ASSERT_TRUE(streams().synchronizeStream(stream).ok());
          ASSERT_EQ(own.back()->completions, 1);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(streams().synchronizeStream(stream).ok());
  EXPECT_EQ(counter.load(), kThreads * kEach);
  for (const auto& own : tasks) {
    for (size_t i = 1; i < own.size(); ++i)
      EXPECT_LT(own[i - 1]->number.load(), own[i]->number.load());
  }
}

TEST_F(HostDeviceTest, AllocatesNothingToEnqueue) {
  void* stream = makeStream();
  std::atomic<int> counter{0};
  NumberTask warmUp(counter);
  Task* first = &warmUp;
  ASSERT_TRUE(device_->enqueue(resolved(stream), {&first, 1}).ok());
  ASSERT_TRUE(streams().synchronizeStream(stream).ok());
  std::vector<std::unique_ptr<NumberTask>> tasks;
  for (int i = 0; i < 100; ++i) tasks.push_back(std::make_unique<NumberTask>(counter, 3));
  Gate gate;
  NumberTask gated(counter, 1, &gate);  // makes the stream's thread sleep, and be woken
  const uint64_t before = host::allocationCount();
  Task* task = &gated;
  bool ok = device_->enqueue(resolved(stream), {&task, 1}).ok();
  for (size_t i = 0; i < tasks.size(); i += 2) {
    const std::array<Task*, 2> pair{tasks[i].get(), tasks[i + 1].get()};
    ok = ok && device_->enqueue(i % 4 == 0 ? nullptr : resolved(stream), pair).ok();
  }
  gate.open();
  ok = ok && streams().synchronizeStream(stream).ok();
  EXPECT_EQ(host::allocationCount() - before, 0u);
  EXPECT_TRUE(ok);
  EXPECT_EQ(counter.load(), 102);
}

class Links {
 public:
  explicit Links(size_t count) {
    memory_ = std::make_unique<std::byte[]>(count * kBytes + kCacheLineBytes);
    auto start = roundUp(reinterpret_cast<uintptr_t>(memory_.get()), kCacheLineBytes);
    for (size_t i = 0; i < count; ++i)
      views_.push_back(wire::viewLink(reinterpret_cast<void*>(start + i * kBytes), kGeometry));
  }
  const wire::LinkView& operator[](size_t i) const { return views_[i]; }

 private:
  static constexpr wire::LinkGeometry kGeometry{.slotCount = 2, .slotBytes = 64};
  static constexpr size_t kBytes = wire::linkBytes(kGeometry);
  std::unique_ptr<std::byte[]> memory_;
  std::vector<wire::LinkView> views_;
};

TEST_F(HostDeviceTest, RunsSixtyFourRanksAsThreads) {
  constexpr size_t kRanks = 64;
  Links links(kRanks);
  device_->joinRanks(kRanks);
  // A ring of pairs: rank 2k and 2k+1 exchange messages, all at once.
  std::vector<std::thread> ranks;
  std::atomic<int> failures{0};
  for (size_t rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      PingPongTask task({.out = links[rank],
                         .in = links[rank ^ 1],
                         .first = rank % 2 == 0,
                         .rounds = 200,
                         .burst = 3});
      Task* one = &task;
      if (!device_->enqueue(nullptr, {&one, 1}).ok() || !task.status().ok()) ++failures;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  device_->leaveRanks(kRanks);
  EXPECT_EQ(failures.load(), 0);
}

TEST_F(HostDeviceTest, DrivesBothSidesOfALinkInOneThread) {
  Links links(2);
  PingPongTask left({.out = links[0], .in = links[1], .first = true, .rounds = 1000, .burst = 3});
  PingPongTask right({.out = links[1], .in = links[0], .first = false, .rounds = 1000, .burst = 3});
  const std::array<Task*, 2> tasks{&left, &right};
  ASSERT_TRUE(device_->enqueue(resolved(makeStream()), tasks).ok());
  device_.reset();
  EXPECT_TRUE(left.status().ok());
  EXPECT_TRUE(right.status().ok());
}

TEST(HostDeviceWaiting, FollowsTheLargestNumberOfRanksInForce) {
  host::HostDevice device(steadyClock());
  const int32_t cpus = device.caps().concurrency;
  const auto expectPolicyFor = [&](int32_t ranks) {
    EXPECT_EQ(device.waiting().policy().spins, host::makeWaitPolicy(ranks, cpus).spins);
    EXPECT_EQ(device.waiting().policy().yields, host::makeWaitPolicy(ranks, cpus).yields);
  };
  expectPolicyFor(1);
  device.joinRanks(100 * cpus);
  expectPolicyFor(100 * cpus);
  device.joinRanks(2 * cpus);
  device.joinRanks(2 * cpus);
  expectPolicyFor(100 * cpus);
  device.leaveRanks(100 * cpus);
  expectPolicyFor(2 * cpus);
  device.leaveRanks(2 * cpus);
  expectPolicyFor(2 * cpus);
  device.leaveRanks(2 * cpus);
  device.leaveRanks(2 * cpus);  // once too often
  expectPolicyFor(1);
}

}  // namespace
}  // namespace tutti::device
