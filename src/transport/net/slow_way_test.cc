#include "transport/net/slow_way.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "base/units.h"

namespace tutti::transport::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using tutti::net::Label;
using tutti::net::Way;

constexpr uint64_t kMegabyte = 1'000'000;

Way tenGigabit(uint64_t perSecond, uint64_t interfaceBytes) {
  return {.text = "eth0 (10.0.0.1) to rank 1 at 10.0.0.2:9",
          .bytesPerSecond = 1250 * kMegabyte,
          .interfaceBytes = interfaceBytes,
          .measuredPerSecond = perSecond,
          .roundTrip = std::chrono::microseconds(50)};
}

std::string judgeAfterASecond(const Way& after) {
  return SlowWay::judge(tenGigabit(6 * kMegabyte, 0), after,
                        {.bytes = 5 * kMegabyte, .time = seconds(1)});
}

TEST(SlowWay, NamesTheLinkItsRateAndWhatTheInterfaceHas) {
  Way way = tenGigabit(6 * kMegabyte, 6 * kMegabyte);
  EXPECT_THAT(judgeAfterASecond(way),
              HasSubstr("eth0 (10.0.0.1) to rank 1 at 10.0.0.2:9 carries 5.00 MB/s (40.0 Mbit/s; "
                        "TCP measures 48.0 at best), of an interface that has 10000 Mbit/s"));
  way.isSupposed = true;
  EXPECT_THAT(judgeAfterASecond(way), HasSubstr("is supposed to have 10000 Mbit/s"));
}

TEST(SlowWay, IsNotAShareOfWhatSeveralSendersHave) {
  EXPECT_EQ(judgeAfterASecond(tenGigabit(80 * kMegabyte, 80 * kMegabyte)), "") << "a sixteenth";
  EXPECT_EQ(judgeAfterASecond(tenGigabit(6 * kMegabyte, 900 * kMegabyte)), "") << "of others, too";
}

TEST(SlowWay, OfATenthIsNamedWhereFewHostsCannotShareAWireSo) {
  Way way = tenGigabit(125 * kMegabyte, 125 * kMegabyte);
  const auto judge = [&](int32_t hostCount) {
    return SlowWay::judge(tenGigabit(125 * kMegabyte, 0), way,
                          {.bytes = 120 * kMegabyte, .time = seconds(1), .hostCount = hostCount});
  };
  EXPECT_THAT(judge(2), HasSubstr("carries 120.00 MB/s"));
  EXPECT_NE(judge(5), "");
  EXPECT_EQ(judge(6), "") << "five senders, unevenly";
  EXPECT_EQ(judge(0), "") << "of any number of hosts";
  way.isSupposed = true;
  EXPECT_EQ(judge(2), "") << "perhaps that is all that the interface has";
  way.isSupposed = false;
  way.measuredPerSecond = 157 * kMegabyte;
  EXPECT_EQ(judge(2), "") << "an eighth";
}

TEST(SlowWay, OfATenthIsNamedInALargeJobWhereTheReceiverHasLittleToDo) {
  const Way way = tenGigabit(125 * kMegabyte, 125 * kMegabyte);
  const auto judge = [&](uint32_t quietMbit) {
    return SlowWay::judge(
        tenGigabit(125 * kMegabyte, 0), way,
        {.bytes = 120 * kMegabyte, .time = seconds(1), .hostCount = 512, .quietMbit = quietMbit});
  };
  EXPECT_EQ(judge(0), "");
  EXPECT_THAT(judge(10'000), HasSubstr("carries 120.00 MB/s"));
  EXPECT_EQ(judge(1'000), "") << "all that the receiver's interface has";
}

TEST(SlowWay, IsNotAReceiverThatDoesNotReadNorALongWay) {
  Way way = tenGigabit(6 * kMegabyte, 6 * kMegabyte);
  way.receiverLimited = milliseconds(300);
  EXPECT_EQ(judgeAfterASecond(way), "");
  way.receiverLimited = milliseconds(200);
  EXPECT_NE(judgeAfterASecond(way), "");
  way.roundTrip = milliseconds(3);
  EXPECT_EQ(judgeAfterASecond(way), "");
}

// Whose way is looked at.
class FakeConnection final : public tutti::net::Connection {
 public:
  Progress send(const Label&, std::span<const std::byte>) override { return Progress::kIdle; }
  Result<Progress> flush() override { return Progress::kIdle; }
  uint64_t sentCount() const override { return 0; }
  Result<Progress> receiveLabel(Label&) override { return Progress::kIdle; }
  Result<Progress> receivePayload(std::span<std::byte>) override { return Progress::kIdle; }
  std::optional<Way> way() const override {
    ++looks;
    return known;
  }

  mutable int looks = 0;
  std::optional<Way> known = tenGigabit(6 * kMegabyte, 0);
};

class SlowWayTest : public testing::Test {
 protected:
  // So many messages, one each 40 ms.
  void send(int messages, uint64_t bytes) {
    for (int i = 0; i < messages; ++i) {
      clock_.advance(milliseconds(40));
      ++carried_.messages;
      carried_.bytes += bytes;
      way_.sent(carried_, clock_, connection_);
    }
  }

  ManualClock clock_;
  FakeConnection connection_;
  Motor::Carried carried_;
  SlowWay way_;
};

TEST_F(SlowWayTest, LooksAtLongMessagesFourTimesASecondUntilItHasWarned) {
  send(100'000, 8);
  EXPECT_EQ(connection_.looks, 0);
  send(1'000, 16'384);
  EXPECT_EQ(connection_.looks, 0) << "many bytes, but short messages";
  send(20, 262'144);
  EXPECT_GE(connection_.looks, 2);
  EXPECT_LE(connection_.looks, 4);
  send(1'000, 262'144);
  EXPECT_EQ(connection_.looks, 5) << "one to compare with, and four that are slow";
}

TEST_F(SlowWayTest, LooksOnceASecondWhereAWireTakesHardlyAnything) {
  connection_.known = tenGigabit(kMegabyte / 8, 0);
  for (int i = 0; i < 100; ++i) {
    clock_.advance(milliseconds(460));  // for a message, each 40 ms more
    send(1, 65'536);
  }
  EXPECT_EQ(connection_.looks, 5);
}

TEST_F(SlowWayTest, BelievesNoSingleLook) {
  for (int i = 0; i < 100; ++i) {
    connection_.known = tenGigabit(i % 4 == 0 ? 900 * kMegabyte : 6 * kMegabyte, 0);
    send(7, 262'144);
  }
  EXPECT_GE(connection_.looks, 90);
}

TEST_F(SlowWayTest, GivesUpWhereNothingIsKnown) {
  connection_.known.reset();
  send(1'000, 262'144);
  EXPECT_EQ(connection_.looks, 1);
}

}  // namespace
}  // namespace tutti::transport::net
