// Lanes whose library hangs, or is slow, in one of its calls: who waits is told in time, what the
// library may still touch stays, and nobody waits for long for a lane to close.
#include "net/queued_lane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <thread>

#include "base/futex.h"

namespace tutti::net {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// Where a call stands still, until it is let go.
class Gate {
 public:
  void pass(std::string_view call) {
    std::unique_lock lock(mutex_);
    if (call == stuck_) {
      hasCome_ = true;
      news_.notify_all();
      news_.wait(lock, [&] { return stuck_ != call; });
    }
  }
  void close(std::string_view call) {
    const std::lock_guard lock(mutex_);
    stuck_ = call;
  }
  void open() {
    const std::lock_guard lock(mutex_);
    stuck_.clear();
    news_.notify_all();
  }
  void awaitCall() {
    std::unique_lock lock(mutex_);
    news_.wait(lock, [&] { return hasCome_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable news_;
  std::string stuck_;
  bool hasCome_ = false;
};

// Takes what is posted at once; its requests are through when they are asked for.
class GatedLane final : public Lane {
 public:
  explicit GatedLane(std::shared_ptr<Gate> gate) : gate_(std::move(gate)) {}
  ~GatedLane() override { gate_->pass("close"); }
  GatedLane(const GatedLane&) = delete;
  GatedLane& operator=(const GatedLane&) = delete;
  Result<Memory> enroll(std::span<std::byte> memory) override {
    gate_->pass("enroll");
    return Memory{memory.data()};
  }
  void release(Memory) override { gate_->pass("release"); }
  Result<Request> post(std::span<std::byte> bytes, Memory) override {
    gate_->pass("post");
    return Request{bytes.data()};
  }
  Result<std::optional<size_t>> test(Request) override {
    gate_->pass("test");
    return std::optional<size_t>(7);
  }
  Result<Request> flush(std::span<std::byte> bytes, Memory) override {
    gate_->pass("flush");
    return Request{bytes.data()};
  }
  CallNames callNames() const override {
    return {.enroll = "enroll",
            .release = "release",
            .post = "post",
            .test = "test",
            .flush = "flush",
            .close = "close"};
  }

 private:
  const std::shared_ptr<Gate> gate_;
};

class NamedFabric final : public Fabric {
 public:
  const Caps& caps() const override { return caps_; }
  Result<std::unique_ptr<LaneListener>> listen(const LanePlace&) override {
    return Status(Code::kInternalError, "not asked for here");
  }
  Result<std::unique_ptr<LaneDialer>> dial(const LanePlace&, const LaneHandle&) override {
    return Status(Code::kInternalError, "not asked for here");
  }

 private:
  const Caps caps_{.name = "Gated", .library = "the library of the test", .description = {}};
};

class QueuedLanes : public testing::TestWithParam<const char*> {
 protected:
  static constexpr milliseconds kLimit{200};

  void SetUp() override { begin(kLimit); }
  // What hangs still is let go, so that its thread ends with the test.
  void TearDown() override {
    lane_.reset();
    gate_->open();
    thread_.reset();
  }

  void begin(milliseconds limit) {
    lane_.reset();
    thread_ =
        LaneThread::start(
            {.fabric = std::make_shared<NamedFabric>(), .timeout = limit, .clock = steadyClock()})
            .value();
    lane_ = std::make_unique<QueuedLane>(std::make_unique<GatedLane>(gate_), thread_);
  }

  // Enrolls, posts, flushes, awaits; the trouble there was.
  Status moveOne() {
    const Lane::Memory memory = lane_->enroll(bytes_);
    TUTTI_TRY(await([&]() -> Result<bool> {
      TUTTI_TRY_ASSIGN(const Progress known, lane_->isKnown(memory));
      return known == Progress::kDone;
    }));
    for (const bool isFlush : {false, true}) {
      TUTTI_TRY_ASSIGN(const Request request,
                       isFlush ? lane_->flush(bytes_, memory) : lane_->post(bytes_, memory));
      TUTTI_TRY(await([&]() -> Result<bool> {
        TUTTI_TRY_ASSIGN(const std::optional<size_t> moved, lane_->test(request));
        EXPECT_TRUE(!moved || *moved == 7);
        return moved.has_value();
      }));
    }
    lane_->release(memory, {});
    return {};
  }

  template <typename Ask>
  Status await(Ask ask) {
    for (;;) {
      TUTTI_TRY_ASSIGN(const bool isThere, ask());
      if (isThere) return {};
      sleepFor(std::chrono::microseconds(20));
    }
  }

  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  std::vector<std::byte> bytes_ = std::vector<std::byte>(64);
  std::shared_ptr<LaneThread> thread_;  // shared with the lane
  std::unique_ptr<QueuedLane> lane_;
};

INSTANTIATE_TEST_SUITE_P(Calls, QueuedLanes, testing::Values("enroll", "post", "test", "flush"),
                         [](const auto& call) { return std::string(call.param); });

TEST_P(QueuedLanes, NameTheCallThatHangs) {
  gate_->close(GetParam());
  const Instant begin = steadyClock().now();
  const Status status = moveOne();
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the library of the test has not returned from " + std::string(GetParam()) +
                        " for 0."));
  EXPECT_GE(steadyClock().now() - begin, kLimit);
  EXPECT_LT(steadyClock().now() - begin, kLimit + milliseconds(1500));
  EXPECT_TRUE(thread_->isHung());
  // Of any lane of the thread, and for good.
  const QueuedLane other(std::make_unique<GatedLane>(gate_), thread_);
  EXPECT_FALSE(thread_->look().ok());
}

TEST_P(QueuedLanes, WaitForACallThatIsSlow) {
  begin(milliseconds(20'000));
  gate_->close(GetParam());
  std::thread later([&] {
    gate_->awaitCall();
    sleepFor(milliseconds(100));
    gate_->open();
  });
  EXPECT_TRUE(moveOne().ok());
  later.join();
  EXPECT_FALSE(thread_->isHung());
}

using QueuedLanesClosing = QueuedLanes;
INSTANTIATE_TEST_SUITE_P(Calls, QueuedLanesClosing, testing::Values("release", "close"),
                         [](const auto& call) { return std::string(call.param); });

TEST_P(QueuedLanesClosing, KeepWhatTheLibraryMayTouchUntilItIsThrough) {
  ASSERT_TRUE(moveOne().ok());
  gate_->close(GetParam());
  lane_->release(lane_->enroll(bytes_), {});
  auto kept = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = kept;
  const Instant begin = steadyClock().now();
  EXPECT_FALSE(lane_->close(std::move(kept)));
  lane_.reset();
  EXPECT_LT(steadyClock().now() - begin, milliseconds(800));
  EXPECT_FALSE(seen.expired());
  // No other lane waits as long once more.
  auto second = std::make_unique<QueuedLane>(std::make_unique<GatedLane>(gate_), thread_);
  const Instant again = steadyClock().now();
  EXPECT_FALSE(second->close({}));
  EXPECT_LT(steadyClock().now() - again, milliseconds(200));
  gate_->open();
  for (int i = 0; i < 5000 && !second->awaitClosed(); ++i) sleepFor(milliseconds(1));
  EXPECT_TRUE(seen.expired());
}

TEST_F(QueuedLanes, AreClosedWhenTheirEndReturns) {
  ASSERT_TRUE(moveOne().ok());
  auto kept = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = kept;
  EXPECT_TRUE(lane_->close(std::move(kept)));
  EXPECT_TRUE(seen.expired());
}

// A thread that hangs for good does not hold up who lets go of it, and finds all that it needs when
// it goes on after all.
TEST_F(QueuedLanes, ThatHangAreLeftBehind) {
  gate_->close("post");
  EXPECT_FALSE(moveOne().ok());
  const Instant begin = steadyClock().now();
  lane_.reset();
  thread_.reset();
  EXPECT_LT(steadyClock().now() - begin, milliseconds(2500));
  gate_->open();
  sleepFor(milliseconds(100));
}

// Time in which nobody looks, as while the process is stopped, is not the library's.
TEST(LaneThreads, HardlyCountTimeInWhichNobodyLooked) {
  ManualClock clock;
  const auto gate = std::make_shared<Gate>();
  gate->close("post");
  std::shared_ptr<LaneThread> thread = LaneThread::start({.fabric = std::make_shared<NamedFabric>(),
                                                          .timeout = std::chrono::seconds(1),
                                                          .clock = clock})
                                           .value();
  auto lane = std::make_unique<QueuedLane>(std::make_unique<GatedLane>(gate), thread);
  std::vector<std::byte> bytes(8);
  ASSERT_TRUE(lane->post(bytes, lane->enroll(bytes)).ok());
  gate->awaitCall();
  EXPECT_TRUE(thread->look().ok());
  clock.advance(std::chrono::hours(1));
  EXPECT_TRUE(thread->look().ok());
  for (int i = 0; i < 12; ++i) {
    clock.advance(milliseconds(90));
    [[maybe_unused]] const Status status = thread->look();
  }
  EXPECT_TRUE(thread->isHung());
  gate->open();
}

}  // namespace
}  // namespace tutti::net
