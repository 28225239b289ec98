#include "observe/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::observe {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

constexpr Instant at(int64_t us) { return Instant{us * 1000}; }

const CallNote kCall = {.collective = Collective::kAllReduce,
                        .type = DataType::kFloat32,
                        .count = 1024,
                        .sequence = 3,
                        .algorithm = "ring"};

TraceIdentity identity() {
  return {.communicator = 0xabc, .name = "job", .rank = 1, .rankCount = 3, .host = "node\"1"};
}

std::string textOf(const Trace& trace, int64_t nowUs = 1000) {
  return traceText(
      identity(), trace.records(),
      {.now = at(nowUs), .wallClockNs = 5'000'000'000, .droppedCount = trace.droppedCount()});
}

// A call with one message that it sends to rank 2.
class TraceOfOneCall : public testing::Test {
 protected:
  void SetUp() override {
    group = trace.beginGroup({.callCount = 1}, at(1));
    call = trace.beginCall(group, kCall, at(1));
    run = trace.beginRun(call, at(2));
    transfer = trace.beginTransfer(
        call, {.peer = 2, .isSend = true, .firstMessage = 7, .messageCount = 1}, at(3));
    message = trace.beginMessage(transfer, {.number = 7, .bytes = 4096}, at(4));
  }
  Trace trace{64};
  Trace::Handle group = nullptr, call = nullptr, run = nullptr, transfer = nullptr,
                message = nullptr;
};

TEST_F(TraceOfOneCall, TellsWhenEachMessageWasPostedAndSent) {
  trace.messageMoved(message, 4096, at(6));
  trace.end(EventKind::kMessage, message, at(9));
  trace.end(EventKind::kTransfer, transfer, at(9));
  trace.end(EventKind::kRun, run, at(8));
  trace.end(EventKind::kCall, call, at(8));
  trace.end(EventKind::kGroup, group, at(8));
  const std::string text = textOf(trace);
  EXPECT_THAT(
      text,
      HasSubstr(
          R"j("name": "AllReduce #3 (1024 of float, sum)", "cat": "call", "pid": 1, "tid": 0, "ts": 1.000, "dur": 7.000)j"));
  EXPECT_THAT(text, HasSubstr(R"j("algorithm": "ring", "bytes": 4096, "ended": true)j"));
  EXPECT_THAT(
      text,
      HasSubstr(R"j("name": "run", "cat": "run", "pid": 1, "tid": 0, "ts": 2.000, "dur": 6.000)j"));
  EXPECT_THAT(text, HasSubstr(R"j("name": "message 7", "cat": "send")j"));
  EXPECT_THAT(
      text,
      HasSubstr(
          R"j("name": "waits for the network", "cat": "phase", "pid": 1, "tid": 128, "ts": 4.000, "dur": 2.000)j"));
  EXPECT_THAT(
      text,
      HasSubstr(
          R"j("name": "goes out", "cat": "phase", "pid": 1, "tid": 128, "ts": 6.000, "dur": 3.000)j"));
  EXPECT_THAT(
      text, HasSubstr(R"j("ph": "s", "name": "message", "cat": "message", "id": "abc.0.1.2.7")j"));
  EXPECT_THAT(text, HasSubstr(R"j("name": "rank 1 (node\"1, pid 0)")j"));
  EXPECT_THAT(text, HasSubstr(R"j("wall_clock_offset_us": 4999000.000, "dropped_events": 0)j"));
}

TEST_F(TraceOfOneCall, ShowsWhatHasNotEndedUntilNow) {
  const std::string text = textOf(trace);
  EXPECT_THAT(
      text,
      HasSubstr(
          R"j("ts": 1.000, "dur": 999.000, "args": {"algorithm": "ring", "bytes": 4096, "ended": false})j"));
  EXPECT_THAT(text, Not(HasSubstr("goes out")));
  EXPECT_THAT(text, Not(HasSubstr(R"j("ph": "s")j")));
}

TEST(Trace, PutsMessagesThatOverlapOnThreadsOfTheirOwn) {
  Trace trace(64);
  const Trace::Handle transfer =
      trace.beginTransfer(nullptr, {.peer = 0, .messageCount = 3}, at(1));
  for (const int64_t begin : {1, 2, 5}) {
    const Trace::Handle message = trace.beginMessage(transfer, {}, at(begin));
    trace.messageMoved(message, 1, at(begin + 1));
    trace.end(EventKind::kMessage, message, at(begin + 3));
  }
  const std::string text = textOf(trace);
  EXPECT_THAT(text, HasSubstr(R"j("tid": 64, "ts": 1.000, "dur": 3.000)j"));
  EXPECT_THAT(text, HasSubstr(R"j("tid": 65, "ts": 2.000, "dur": 3.000)j"));
  EXPECT_THAT(text, HasSubstr(R"j("tid": 64, "ts": 5.000, "dur": 3.000)j"));
}

TEST(Trace, KeepsTheNewestEventsInMemoryOfAFixedSize) {
  Trace trace(8);
  const Trace::Handle first = trace.beginCall(nullptr, kCall, at(1));
  std::vector<Trace::Handle> later;
  for (int64_t i = 2; i < 12; ++i) later.push_back(trace.beginCall(nullptr, kCall, at(i)));
  trace.end(EventKind::kCall, first, at(20));
  trace.end(EventKind::kCall, later.back(), at(20));
  const std::vector<TraceRecord> records = trace.records();
  ASSERT_THAT(records, SizeIs(8));
  EXPECT_EQ(records.front().number, 4u);
  EXPECT_EQ(records.back().number, 11u);
  EXPECT_EQ(trace.droppedCount(), 3u);
  for (const TraceRecord& record : records)
    EXPECT_EQ(record.stage == TraceStage::kEnded, record.number == 11);
}

// As a GPU's: when the first runs, the second has been called.
TEST(Trace, ShowsRunsInTheirCallsWhereSeveralAreUnderWay) {
  Trace trace(8);
  const Trace::Handle first = trace.beginCall(nullptr, kCall, at(1));
  const Trace::Handle second = trace.beginCall(nullptr, kCall, at(2));
  for (const auto& [call, begin] : {std::pair(first, 3), std::pair(second, 5)}) {
    trace.end(EventKind::kRun, trace.beginRun(call, at(begin)), at(begin + 1));
    trace.end(EventKind::kCall, call, at(begin + 1));
  }
  EXPECT_EQ(trace.beginLaunch(nullptr, nullptr, at(6)), nullptr);
  const std::string text = textOf(trace);
  EXPECT_THAT(text, HasSubstr(R"j("tid": 0, "ts": 1.000, "dur": 3.000)j"));
  EXPECT_THAT(text, HasSubstr(R"j("tid": 0, "ts": 3.000, "dur": 1.000)j"));
  EXPECT_THAT(text, HasSubstr(R"j("tid": 1, "ts": 2.000, "dur": 4.000)j"));
  EXPECT_THAT(text, HasSubstr(R"j("tid": 1, "ts": 5.000, "dur": 1.000)j"));
}

TEST(Trace, CountsCallsThatItWasNotToldOf) {
  Trace trace(8);
  trace.beginCall(nullptr, kCall, at(1));
  trace.drop(3);
  trace.drop(1);
  EXPECT_EQ(trace.droppedCount(), 4u);
}

TEST(Trace, LeavesOutMessagesWhoseTransferIsForgotten) {
  Trace trace(8);
  const Trace::Handle transfer = trace.beginTransfer(nullptr, {.messageCount = 1}, at(1));
  for (int i = 0; i < 8; ++i) trace.beginCall(nullptr, kCall, at(2));
  EXPECT_EQ(trace.beginMessage(transfer, {}, at(3)), nullptr);
}

TEST(Trace, ShowsGroupsOfSeveralCallsOnly) {
  Trace trace(8);
  trace.beginGroup({.callCount = 1}, at(1));
  EXPECT_THAT(textOf(trace), Not(HasSubstr("group of")));
  trace.beginGroup({.callCount = 5, .isUsers = true}, at(1));
  EXPECT_THAT(textOf(trace), HasSubstr("group of 5 calls"));
}

}  // namespace
}  // namespace tutti::observe
