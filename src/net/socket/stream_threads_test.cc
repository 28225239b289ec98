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

// Moves as the test says; waits at a descriptor that never is ready, or at its own.
struct Work final : StreamWork {
  explicit Work(std::function<Progress()> does) : moves(std::move(does)) {
    std::array<int, 2> fds{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()), 0);
    near.reset(fds[0]);
    far.reset(fds[1]);
  }
  Progress move() override { return moves(); }
  pollfd awaited() override { return {.fd = near.get(), .events = POLLIN, .revents = 0}; }
  void rested() override { restCount.fetch_add(1); }
  const std::function<Progress()> moves;
  UniqueFd near, far;
  std::atomic<int> restCount{0};
};

void awaitTrue(const std::function<bool()>& isTrue) {
  for (int i = 0; i < 10'000 && !isTrue(); ++i) bootstrap::pauseFor(milliseconds(1));
  ASSERT_TRUE(isTrue());
}

class OneStreamThread : public testing::Test {
 protected:
  std::unique_ptr<StreamThread> thread_ = StreamThread::open(steadyClock());
};

TEST_F(OneStreamThread, MovesUntilNothingIsLeftAndThenRests) {
  std::atomic<int> left{0};
  Work work([&left] { return left.fetch_sub(1) > 1 ? Progress::kAdvanced : Progress::kDone; });
  for (int round = 1; round <= 1000; ++round) {
    left = 3;
    thread_->post(work);
    while (work.isPosted()) {
    }
    ASSERT_EQ(left, 0);
  }
  awaitTrue([&work] { return work.restCount == 1000; });
}

// Whoever posts while the work is at its end has it moved once more.
TEST_F(OneStreamThread, MissesNoPost) {
  std::atomic<uint64_t> posted{0};
  uint64_t seen = 0;  // the thread's while it is posted
  Work work([&] {
    seen = posted.load();
    return Progress::kDone;
  });
  for (uint64_t i = 1; i <= 100'000; ++i) {
    posted.store(i);
    thread_->post(work);
  }
  while (work.isPosted()) {
  }
  EXPECT_EQ(seen, 100'000u);
}

TEST_F(OneStreamThread, SleepsAtTheDescriptorUntilItIsReady) {
  std::atomic<int> moves{0};
  Work* self = nullptr;
  Work work([&] {
    ++moves;
    char byte = 0;
    return ::read(self->near.get(), &byte, 1) == 1 ? Progress::kDone : Progress::kIdle;
  });
  self = &work;
  thread_->post(work);
  bootstrap::pauseFor(milliseconds(20));  // alert for 50 us
  const int before = moves;
  bootstrap::pauseFor(milliseconds(100));
  EXPECT_LE(moves - before, 1) << "it looks again and again";
  ASSERT_EQ(::write(work.far.get(), "x", 1), 1);
  awaitTrue([&work] { return !work.isPosted(); });
}

// A descriptor that is polled stays open, whoever closes it.
TEST_F(OneStreamThread, LeavesTheDescriptorOfWhatIsRetracted) {
  for (int round = 0; round < 20; ++round) {
    Work work([] { return Progress::kIdle; });
    thread_->post(work);
    bootstrap::pauseFor(milliseconds(round % 3));
    thread_->retract(work);
    EXPECT_FALSE(work.isPosted());
    work.near.reset();
    char byte = 0;
    EXPECT_EQ(::read(work.far.get(), &byte, 1), 0) << "the other side is not told of the end";
  }
}

TEST_F(OneStreamThread, IsOutOfTheWorkWhenItIsRetracted) {
  for (int round = 0; round < 2000; ++round) {
    auto value = std::make_unique<int>(0);
    Work work([&value] {
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
  std::atomic<int> begun{0};
  Work first([&] {
    ++begun;
    while (isHeld) std::this_thread::yield();
    return Progress::kDone;
  });
  Work second([] { return Progress::kDone; });
  thread_->post(first);
  while (begun == 0) std::this_thread::yield();
  thread_->post(second);
  EXPECT_FALSE(thread_->tryTake(first, StreamThread::From::kAnyThread)) << "it is being moved";
  EXPECT_FALSE(thread_->tryTake(second, StreamThread::From::kIdleThread));
  EXPECT_TRUE(thread_->tryTake(second, StreamThread::From::kAnyThread));
  EXPECT_FALSE(second.isPosted());
  EXPECT_FALSE(thread_->tryTake(second, StreamThread::From::kAnyThread)) << "twice";
  isHeld = false;
  awaitTrue([&first] { return !first.isPosted(); });
  EXPECT_EQ(second.restCount, 0);
  thread_->post(second);
  awaitTrue([&second] { return second.restCount == 1; });
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
  Work work([] { return Progress::kDone; });
  for (size_t i = 0; i < 4; ++i) {
    threads.sender(i).post(work);
    awaitTrue([&work] { return !work.isPosted(); });
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
