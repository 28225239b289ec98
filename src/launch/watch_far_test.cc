// What a watch makes of a rank of another host, which is asked for signs of life.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <vector>

#include "base/futex.h"
#include "bootstrap/test_job.h"
#include "launch/watch.h"

namespace tutti::launch {
namespace {

using observe::Board;
using observe::WaitNote;
using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr milliseconds kTimeout{2000};

// Rank 0 watches; rank 1 is another process's for it, by sockets.
class FarWatchTest : public testing::Test {
 protected:
  void SetUp() override {
    ranks_ = job_.runAll([](bootstrap::Bootstrap& bootstrap) { return bootstrap.barrier(); });
    for (const bootstrap::RankResult& each : ranks_) ASSERT_TRUE(each.status.ok());
    board_.placeElsewhere(1, "node1", 4711);
    operation_ = recorder_.begin({.count = 8, .sequence = 1});
    watch_.emplace(Watch::Parts{.recorder = recorder_,
                                .clock = steadyClock(),
                                .timeout = kTimeout,
                                .bootstrap = ranks_[0].bootstrap.get(),
                                .peers = &peers_});
    ranks_[1].bootstrap->say([this] {
      asked_.fetch_add(1);
      while (isMute_.load()) sleepFor(milliseconds(1));
      return std::vector<std::byte>();
    });
  }
  void TearDown() override {
    isMute_ = false;
    watch_.reset();
  }

  Status lookAfter(milliseconds idle) {
    const WaitNote wait{.peer = 1, .number = operation_};
    return watch_->look({&wait, 1}, Nanoseconds(idle).count());
  }
  Board open() { return Board::open(UniqueFd(::fcntl(board_.fd(), F_DUPFD_CLOEXEC, 0))).value(); }

  std::atomic<int> asked_{0};
  std::atomic<bool> isMute_{false};
  bootstrap::TestJob job_{2};
  std::vector<bootstrap::RankResult> ranks_;
  std::vector<bootstrap::PeerInfo> peers_{2};
  observe::ProcessRecorders siblings_;
  Board board_ = Board::create(2, "job", Nanoseconds(kTimeout).count()).value();
  observe::Recorder recorder_{open(), 0, "node0", siblings_};
  std::optional<Watch> watch_;
  uint64_t operation_ = 0;
};

TEST_F(FarWatchTest, AsksOnceALook) {
  for (int look = 1; look <= 3; ++look) {
    EXPECT_TRUE(lookAfter(milliseconds(100)).ok());
    for (int i = 0; i < 5000 && asked_ < look; ++i) sleepFor(milliseconds(1));
    sleepFor(milliseconds(100));  // for a question too many
    EXPECT_EQ(asked_, look);
  }
}

TEST_F(FarWatchTest, CountsSilenceFromTheFirstQuestionThatWasNotAnswered) {
  isMute_ = true;
  EXPECT_TRUE(lookAfter(milliseconds(100)).ok());
  sleepFor(kTimeout / 2);
  watch_->advanced();  // another rank's message has come
  EXPECT_TRUE(lookAfter(milliseconds(100)).ok());
  sleepFor(kTimeout / 2);
  const Status verdict = lookAfter(kTimeout / 2);
  EXPECT_EQ(verdict.code(), Code::kRemoteError);
  EXPECT_THAT(std::string(verdict.message()), HasSubstr("gave rank 0 no sign of life for 2."));
}

TEST_F(FarWatchTest, ForgetsTheSilenceOfARankThatHasAnswered) {
  isMute_ = true;
  EXPECT_TRUE(lookAfter(milliseconds(100)).ok());
  sleepFor(kTimeout / 2);
  isMute_ = false;
  watch_->advanced();
  sleepFor(kTimeout);
  EXPECT_TRUE(lookAfter(milliseconds(100)).ok());
  EXPECT_TRUE(lookAfter(milliseconds(200)).ok());
}

}  // namespace
}  // namespace tutti::launch
