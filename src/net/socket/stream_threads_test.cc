#include "net/socket/stream_threads.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <functional>

#include "base/few_descriptors_testing.h"
#include "bootstrap/poller.h"

namespace tutti::net::socket {
namespace {

using std::chrono::milliseconds;

// Moves as the test says; waits at a descriptor of its own.
struct Work final : StreamWork {
  explicit Work(StreamThread& by, std::function<Progress(Work&)> does)
      : thread(by), moves(std::move(does)) {
    std::array<int, 2> fds{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()), 0);
    near.reset(fds[0]);
    far.reset(fds[1]);
    thread.attach(*this);
  }
  ~Work() { thread.detach(*this); }
  Progress move() override { return moves(*this); }
  pollfd awaited() const override { return {.fd = near.get(), .events = POLLIN, .revents = 0}; }

  StreamThread& thread;
  const std::function<Progress(Work&)> moves;
  UniqueFd near, far;
  std::atomic<int> count{0};  // as the test has it
};

void awaitTrue(const std::function<bool()>& isTrue) {
  for (int i = 0; i < 10'000 && !isTrue(); ++i) bootstrap::pauseFor(milliseconds(1));
  ASSERT_TRUE(isTrue());
}

class OneStreamThread : public testing::Test {
 protected:
  std::unique_ptr<StreamThread> thread_ = StreamThread::open(StreamThreads::kAlert, steadyClock());
};

TEST_F(OneStreamThread, MovesUntilNothingIsLeft) {
  Work work(*thread_, [](Work& self) {
    return self.count.fetch_sub(1) > 1 ? Progress::kAdvanced : Progress::kDone;
  });
  for (int round = 0; round < 1000; ++round) {
    work.count = 3;
    thread_->post(work);
    awaitTrue([&work] { return work.count <= 0; });
    ASSERT_EQ(work.count, 0);
  }
}

// Whoever posts while the work is at its end has it moved once more.
TEST_F(OneStreamThread, MissesNoPost) {
  std::atomic<uint64_t> posted{0};
  std::atomic<uint64_t> seen{0};
  Work work(*thread_, [&](Work&) {
    seen = posted.load(std::memory_order_relaxed);
    return Progress::kDone;
  });
  for (uint64_t i = 1; i <= 100'000; ++i) {
    posted.store(i, std::memory_order_relaxed);
    thread_->post(work);
  }
  awaitTrue([&seen] { return seen == 100'000u; });
}

// The thread sleeps at times before a post, and is about to at others.
TEST_F(OneStreamThread, IsAwakeAfterEachPost) {
  Work work(*thread_, [](Work& self) {
    ++self.count;
    return Progress::kDone;
  });
  for (int i = 1; i <= 3000; ++i) {
    const int before = work.count;
    thread_->post(work);
    const Instant limit = steadyClock().now() + std::chrono::seconds(10);
    while (work.count == before) ASSERT_LT(steadyClock().now(), limit);
    const Instant end = steadyClock().now() + std::chrono::microseconds(i % 100);
    while (steadyClock().now() < end) {
    }
  }
}

TEST_F(OneStreamThread, SleepsAtTheDescriptorUntilItIsReady) {
  std::atomic<bool> isRead{false};
  Work work(*thread_, [&isRead](Work& self) {
    ++self.count;
    char byte = 0;
    isRead = ::read(self.near.get(), &byte, 1) == 1;
    return isRead ? Progress::kDone : Progress::kIdle;
  });
  thread_->post(work);
  bootstrap::pauseFor(milliseconds(20));  // alert for 50 us
  const int before = work.count;
  bootstrap::pauseFor(milliseconds(100));
  EXPECT_LE(work.count - before, 1) << "it looks again and again";
  ASSERT_EQ(::write(work.far.get(), "x", 1), 1);
  awaitTrue([&isRead] { return isRead.load(); });
}

// A descriptor that is polled stays open, whoever closes it.
TEST_F(OneStreamThread, LeavesTheDescriptorOfWhatIsRetracted) {
  for (int round = 0; round < 20; ++round) {
    Work work(*thread_, [](Work&) { return Progress::kIdle; });
    thread_->post(work);
    bootstrap::pauseFor(milliseconds(round % 3));
    thread_->retract(work);
    work.near.reset();
    char byte = 0;
    EXPECT_EQ(::read(work.far.get(), &byte, 1), 0) << "the other side is not told of the end";
  }
}

TEST_F(OneStreamThread, IsOutOfTheWorkWhenItIsRetracted) {
  for (int round = 0; round < 2000; ++round) {
    auto value = std::make_unique<int>(0);
    Work work(*thread_, [&value](Work&) {
      ++*value;
      return Progress::kAdvanced;
    });
    thread_->post(work);
    if (round % 2 == 0) std::this_thread::yield();
    thread_->retract(work);
    value.reset();
  }
}

TEST_F(OneStreamThread, GivesBackWhatItHasNotBegun) {
  std::atomic<bool> isHeld{true};
  Work first(*thread_, [&isHeld](Work& self) {
    ++self.count;
    while (isHeld) std::this_thread::yield();
    return Progress::kDone;
  });
  Work second(*thread_, [](Work& self) {
    ++self.count;
    return Progress::kDone;
  });
  thread_->post(first);
  awaitTrue([&first] { return first.count == 1; });
  EXPECT_TRUE(thread_->isMoving());
  thread_->post(second);
  EXPECT_FALSE(thread_->tryTake(first)) << "it is being moved";
  EXPECT_TRUE(thread_->tryTake(second));
  EXPECT_FALSE(thread_->tryTake(second)) << "twice";
  isHeld = false;
  awaitTrue([this] { return !thread_->isMoving(); });
  bootstrap::pauseFor(milliseconds(10));
  EXPECT_EQ(second.count, 0);
  thread_->post(second);
  awaitTrue([&second] { return second.count == 1; });
}

int64_t cpuMicroseconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1'000'000 + usage.ru_utime.tv_usec +
         usage.ru_stime.tv_usec;
}

TEST(StreamThreads, TakeNoCpuWhileNothingIsPosted) {
  StreamThreads threads(4);
  ASSERT_EQ(threads.count(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    Work work(threads.sender(i), [](Work& self) {
      ++self.count;
      return Progress::kDone;
    });
    threads.sender(i).post(work);
    awaitTrue([&work] { return work.count == 1; });
  }
  bootstrap::pauseFor(milliseconds(10));
  const int64_t before = cpuMicroseconds();
  bootstrap::pauseFor(milliseconds(300));
  EXPECT_LT(cpuMicroseconds() - before, 30'000);
}

TEST(StreamThreads, AreFewerWhereTheSystemGivesNoMore) {
  EXPECT_EQ(StreamThreads(0).count(), 0u);
  const FewDescriptors few(5);  // one wakes each thread
  EXPECT_EQ(StreamThreads(4).count(), 2u);
}

}  // namespace
}  // namespace tutti::net::socket
