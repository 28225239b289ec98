#include "wire/shared_segment.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace tutti::wire {
namespace {

void map(SegmentLedger& ledger, uint64_t serial) {
  ledger.ask(serial);
  ledger.takeAnswer(SegmentLedger::makeAnswer(serial, true));
}

TEST(SegmentLedger, AsksOnceAndBelievesOnlyTheAnswerToItsQuestion) {
  SegmentLedger ledger;
  EXPECT_TRUE(ledger.isWorthAsking(7, 100));
  ledger.ask(7);
  EXPECT_TRUE(ledger.isWaiting());
  EXPECT_FALSE(ledger.isMapped(7));
  ledger.takeAnswer(SegmentLedger::makeAnswer(6, true));
  ledger.takeAnswer(0);
  ledger.takeAnswer(UINT64_MAX);
  EXPECT_TRUE(ledger.isWaiting());
  ledger.takeAnswer(SegmentLedger::makeAnswer(7, true));
  EXPECT_FALSE(ledger.isWaiting());
  EXPECT_TRUE(ledger.isMapped(7));
  EXPECT_FALSE(ledger.isWorthAsking(7, 100));
}

TEST(SegmentLedger, NeverAsksAgainForWhatCannotBeMapped) {
  SegmentLedger ledger;
  ledger.ask(7);
  ledger.takeAnswer(SegmentLedger::makeAnswer(7, false));
  EXPECT_FALSE(ledger.isMapped(7));
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(ledger.isWorthAsking(7, 1 << 30));
}

TEST(SegmentLedger, GivesANewSegmentTheOldOnesPlace) {
  SegmentLedger ledger;
  map(ledger, 7);
  const uint64_t newer = 7 + kSegmentPlaces;
  EXPECT_TRUE(ledger.isWorthAsking(newer, 1));
  map(ledger, newer);
  EXPECT_FALSE(ledger.isMapped(7));
  EXPECT_TRUE(ledger.isMapped(newer));
}

TEST(SegmentLedger, AsksOnceTheCopiesHaveCostAsMuchAsMapping) {
  SegmentLedger ledger(1000);
  EXPECT_FALSE(ledger.isWorthAsking(7, 400));
  EXPECT_FALSE(ledger.isWorthAsking(8, 999));
  EXPECT_FALSE(ledger.isWorthAsking(7, 599));
  EXPECT_TRUE(ledger.isWorthAsking(7, 1));
  EXPECT_TRUE(ledger.isWorthAsking(8, 1));
}

TEST(SegmentLedger, TwoOfOnePlaceDoNotMapEachOtherOutMessageByMessage) {
  SegmentLedger ledger(1000);
  const uint64_t serials[] = {7, 7 + kSegmentPlaces};
  size_t asked = 0;
  for (int message = 0; message < 1000; ++message) {
    for (const uint64_t serial : serials) {
      if (ledger.isMapped(serial) || !ledger.isWorthAsking(serial, 100)) continue;
      map(ledger, serial);
      ++asked;
    }
  }
  EXPECT_GE(asked, 2u);
  EXPECT_LE(asked, 2u * 1000 * 100 / 1000);
}

TEST(SharedSegment, ContainsOnlyWhatLiesWhollyWithin) {
  std::byte memory[64];
  const SharedSegment segment{.serial = 1, .start = memory + 16, .bytes = 32, .token = {}};
  EXPECT_TRUE(segment.contains(memory + 16, 32));
  EXPECT_TRUE(segment.contains(memory + 47, 1));
  EXPECT_FALSE(segment.contains(memory + 16, 33));
  EXPECT_FALSE(segment.contains(memory + 15, 1));
  EXPECT_FALSE(segment.contains(memory + 47, 2));
  EXPECT_FALSE(segment.contains(memory + 17, SIZE_MAX));
  EXPECT_FALSE(
      (SharedSegment{.serial = 0, .start = memory, .bytes = 64, .token = {}}.contains(memory, 1)));
}

}  // namespace
}  // namespace tutti::wire
