#include "transport/net/transfer_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "observe/trace.h"

namespace tutti::transport::net {
namespace {

using observe::EventKind;
using observe::TraceRecord;
using observe::TraceStage;

// A log whose events go to a trace.
class Transfers : public testing::Test {
 protected:
  Transfers() {
    auto trace = std::make_unique<observe::Trace>(64);
    trace_ = trace.get();
    std::vector<std::unique_ptr<observe::ProfilerSink>> sinks;
    sinks.push_back(std::move(trace));
    profiler_ = std::make_unique<observe::Profiler>(std::move(sinks));
    log_ = std::make_unique<TransferLog>(*profiler_, clock_);
  }

  void begin(uint64_t first, uint64_t count) {
    log_->begin({}, {.peer = 1, .firstMessage = first, .messageCount = count});
  }
  // Of the kind, in the order of their beginnings.
  std::vector<TraceRecord> events(EventKind kind) const {
    std::vector<TraceRecord> found;
    for (const TraceRecord& record : trace_->records()) {
      if (record.kind == kind) found.push_back(record);
    }
    return found;
  }
  int64_t tick() {
    clock_.advance(Nanoseconds(1));
    return static_cast<int64_t>(clock_.now());
  }

  ManualClock clock_;
  observe::Trace* trace_ = nullptr;
  std::unique_ptr<observe::Profiler> profiler_;
  std::unique_ptr<TransferLog> log_;
};

TEST_F(Transfers, TellEachMessageOnceWithItsTransfer) {
  begin(5, 2);
  log_->appeared(5, 100);
  log_->appeared(5, 100);
  log_->moved(5);
  log_->appeared(6, 50);
  log_->passed(6);
  const auto messages = events(EventKind::kMessage);
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[0].first, 5u);
  EXPECT_EQ(messages[0].bytes, 100u);
  EXPECT_EQ(messages[0].parent, events(EventKind::kTransfer)[0].number);
  EXPECT_EQ(messages[0].stage, TraceStage::kEnded);
  EXPECT_EQ(messages[1].stage, TraceStage::kOpen);
  EXPECT_EQ(events(EventKind::kTransfer)[0].stage, TraceStage::kOpen);
  log_->passed(7);
  EXPECT_EQ(events(EventKind::kTransfer)[0].stage, TraceStage::kEnded);
}

TEST_F(Transfers, TellOfMessagesThatCameEarlyWithTheTimesThatTheyCameAt) {
  const int64_t came = tick();
  log_->appeared(0, 8);
  const int64_t moved = tick();
  log_->moved(0);
  EXPECT_TRUE(events(EventKind::kMessage).empty());
  tick();
  begin(0, 1);
  const auto messages = events(EventKind::kMessage);
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(static_cast<int64_t>(messages[0].began), came);
  EXPECT_EQ(static_cast<int64_t>(messages[0].moved), moved);
}

// While the first call still sends, the rank is at the next.
TEST_F(Transfers, OfSeveralCallsFollowEachOther) {
  begin(0, 2);
  begin(2, 1);
  for (const uint64_t number : {0, 1, 2}) log_->appeared(number, 8);
  const auto transfers = events(EventKind::kTransfer);
  const auto messages = events(EventKind::kMessage);
  ASSERT_EQ(messages.size(), 3u);
  EXPECT_EQ(messages[1].parent, transfers[0].number);
  EXPECT_EQ(messages[2].parent, transfers[1].number);
  log_->passed(2);
  EXPECT_EQ(events(EventKind::kTransfer)[0].stage, TraceStage::kEnded);
  EXPECT_EQ(events(EventKind::kTransfer)[1].stage, TraceStage::kOpen);
}

TEST_F(Transfers, EndWithTheirLink) {
  begin(0, 3);
  log_->appeared(0, 8);
  log_.reset();
  EXPECT_EQ(events(EventKind::kTransfer)[0].stage, TraceStage::kEnded);
  EXPECT_EQ(events(EventKind::kMessage)[0].stage, TraceStage::kEnded);
}

// A call that failed is over before its messages have come.
TEST_F(Transfers, ThatFailedLeaveNothingBehind) {
  begin(0, 2);
  log_->passed(2);
  log_->appeared(1, 8);
  log_->moved(1);
  log_->moved(0);
  EXPECT_TRUE(events(EventKind::kMessage).empty());
  EXPECT_EQ(events(EventKind::kTransfer)[0].stage, TraceStage::kEnded);
}

}  // namespace
}  // namespace tutti::transport::net
