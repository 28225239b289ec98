#include "transport/net/slow_way.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
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
  const auto judge = [&](QuietSpeed quiet) {
    return SlowWay::judge(
        tenGigabit(125 * kMegabyte, 0), way,
        {.bytes = 120 * kMegabyte, .time = seconds(1), .hostCount = 512, .quiet = quiet});
  };
  EXPECT_EQ(judge({}), "");
  EXPECT_THAT(judge({.mbit = 10'000}), HasSubstr("carries 120.00 MB/s"));
  EXPECT_EQ(judge({.mbit = 1'000}), "") << "all that the receiver's interface has";
  EXPECT_THAT(judge({.mbit = 9'000, .isLeast = true}), HasSubstr("of an interface that has 10000"));
  EXPECT_EQ(judge({.mbit = 7'000, .isLeast = true}), "") << "perhaps all that it has";
}

// Of neither is more known than what it has carried.
TEST(SlowWay, OfATenthIsNamedWhereInterfacesThatTellNoSpeedHaveCarriedMore) {
  Way way = tenGigabit(100 * kMegabyte, 100 * kMegabyte);
  way.isSupposed = true;
  const auto judge = [&](double carriedMbit, QuietSpeed quiet, int32_t hostCount = 512) {
    return SlowWay::judge(tenGigabit(100 * kMegabyte, 0), way,
                          {.bytes = 100 * kMegabyte,
                           .time = seconds(1),
                           .hostCount = hostCount,
                           .quiet = quiet,
                           .carried = carriedMbit * 1e6 / 8});
  };
  const QuietSpeed quiet{.mbit = 8'000, .isLeast = true};
  EXPECT_EQ(judge(0, quiet), "");
  EXPECT_EQ(judge(8'000, {}), "") << "many may share the receiver's wire";
  EXPECT_THAT(judge(9'000, quiet), HasSubstr("tells no speed and has carried 8000 Mbit/s"));
  EXPECT_EQ(judge(6'000, quiet), "") << "an eighth";
  EXPECT_THAT(judge(8'000, {}, 2), HasSubstr("tells no speed and has carried 8000 Mbit/s"));
  way.measuredPerSecond = 160 * kMegabyte;
  EXPECT_EQ(judge(100'000, {.mbit = 100'000, .isLeast = true}), "")
      << "more than 10 Gbit/s may never have been on a wire";
  way.measuredPerSecond = way.interfaceBytes = 60 * kMegabyte;
  EXPECT_THAT(judge(100, {.mbit = 100, .isLeast = true}), HasSubstr("is supposed to have 10000"))
      << "to have carried little says nothing";
}

// However much the others send over the same interface.
TEST(SlowWay, OfATenthOfWhatTheOthersHaveIsNamedWhereFewInterfacesTellNoSpeed) {
  Way way = tenGigabit(10 * kMegabyte, 300 * kMegabyte);
  way.isSupposed = true;
  const auto judge = [&](double othersMbit, int32_t hostCount = 4) {
    return SlowWay::judge(tenGigabit(10 * kMegabyte, 0), way,
                          {.bytes = 10 * kMegabyte,
                           .time = seconds(1),
                           .hostCount = hostCount,
                           .others = othersMbit * 1e6 / 8});
  };
  EXPECT_THAT(judge(800),
              HasSubstr("tells no speed and over which the other links of this process have 800 "
                        "Mbit/s (their median)"));
  EXPECT_EQ(judge(0), "") << "there are none";
  EXPECT_EQ(judge(600), "") << "an eighth";
  EXPECT_EQ(judge(800, 6), "") << "five senders, unevenly";
  way.measuredPerSecond = 160 * kMegabyte;
  EXPECT_EQ(judge(100'000), "") << "more than 10 Gbit/s may never have been on a wire";
  way.measuredPerSecond = 10 * kMegabyte;
  way.isSupposed = false;
  EXPECT_EQ(judge(800), "") << "what the interface has is known, and others keep it busy";
}

TEST(MeasuredLinks, HaveAMedianOfTheOthersLately) {
  MeasuredLinks links;
  ManualClock clock;
  std::array<char, 5> link{};
  EXPECT_EQ(links.medianOfOthers(&link[0], clock.now()), 0);
  links.note(&link[0], 10, clock.now());
  EXPECT_EQ(links.medianOfOthers(&link[0], clock.now()), 0) << "its own";
  links.note(&link[1], 100, clock.now());
  EXPECT_EQ(links.medianOfOthers(&link[0], clock.now()), 100);
  links.note(&link[2], 900, clock.now());
  EXPECT_EQ(links.medianOfOthers(&link[0], clock.now()), 100) << "of two the smaller";
  links.note(&link[3], 300, clock.now());
  EXPECT_EQ(links.medianOfOthers(&link[0], clock.now()), 300);
  links.note(&link[3], 50, clock.now());
  EXPECT_EQ(links.medianOfOthers(&link[0], clock.now()), 100) << "the last of each";
  links.forget(&link[1]);
  EXPECT_EQ(links.medianOfOthers(&link[0], clock.now()), 50);
  clock.advance(seconds(61));
  links.note(&link[2], 900, clock.now());
  EXPECT_EQ(links.medianOfOthers(&link[0], clock.now()), 900) << "others are of long ago";
}

TEST(SlowWay, IsToldWhatTheReceiverHas) {
  for (const bool isLeast : {false, true}) {
    const QuietSpeed told =
        QuietSpeed::decode(QuietSpeed{.mbit = 400'000, .isLeast = isLeast}.encode());
    EXPECT_EQ(told.mbit, 400'000u);
    EXPECT_EQ(told.isLeast, isLeast);
  }
  EXPECT_EQ(QuietSpeed{}.encode(), 0u);
}

TEST(SeenRate, IsTheMostThatWasCarriedOverASecond) {
  SeenRate seen;
  ManualClock clock;
  const auto noteAfter = [&](milliseconds time, uint64_t bytes) {
    clock.advance(time);
    seen.note(bytes, clock.now());
  };
  noteAfter(milliseconds(0), 0);
  noteAfter(seconds(1), 500);
  EXPECT_EQ(seen.most(), 0) << "nothing was known before";
  noteAfter(seconds(2), 2'500);
  EXPECT_EQ(seen.most(), 1'000);
  noteAfter(milliseconds(100), 9'000);
  noteAfter(milliseconds(900), 9'500);
  EXPECT_EQ(seen.most(), 7'000) << "over the second, not over its best tenth";
  noteAfter(seconds(1), 9'600);
  EXPECT_EQ(seen.most(), 7'000);
  noteAfter(seconds(1), 100);
  EXPECT_EQ(seen.most(), 7'000) << "a counter that began anew";
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
