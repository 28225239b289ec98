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
  EXPECT_TRUE(ledger.isWorthAsking(7));
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
  EXPECT_FALSE(ledger.isWorthAsking(7));
}

TEST(SegmentLedger, NeverAsksAgainForWhatCannotBeMapped) {
  SegmentLedger ledger;
  ledger.ask(7);
  ledger.takeAnswer(SegmentLedger::makeAnswer(7, false));
  EXPECT_FALSE(ledger.isMapped(7));
  for (uint32_t i = 0; i < 2 * kCopiesBeforeAskingAgain; ++i) EXPECT_FALSE(ledger.isWorthAsking(7));
}

TEST(SegmentLedger, GivesANewSegmentTheOldOnesPlace) {
  SegmentLedger ledger;
  map(ledger, 7);
  const uint64_t newer = 7 + kSegmentPlaces;
  EXPECT_TRUE(ledger.isWorthAsking(newer));
  map(ledger, newer);
  EXPECT_FALSE(ledger.isMapped(7));
  EXPECT_TRUE(ledger.isMapped(newer));
}

TEST(SegmentLedger, GivesAnOldSegmentItsPlaceBackOnlyAfterManyCopies) {
  SegmentLedger ledger;
  map(ledger, 7 + kSegmentPlaces);
  for (uint32_t i = 1; i < kCopiesBeforeAskingAgain; ++i) EXPECT_FALSE(ledger.isWorthAsking(7));
  EXPECT_TRUE(ledger.isWorthAsking(7));
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
