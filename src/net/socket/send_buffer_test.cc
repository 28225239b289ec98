#include "net/socket/send_buffer.h"

#include <gtest/gtest.h>

#include "base/units.h"

namespace tutti::net::socket {
namespace {

using std::chrono::microseconds;

TEST(SendBuffer, IsShortWhereTheWayIs) {
  EXPECT_EQ(sendBufferBytes(microseconds(0), 0), 128_KiB);
  EXPECT_EQ(sendBufferBytes(microseconds(10), 0), 128_KiB);
  EXPECT_EQ(sendBufferBytes(microseconds(50), 10'000), 128_KiB);
  EXPECT_EQ(sendBufferBytes(microseconds(60), 10'000), 150'000u);
  EXPECT_EQ(sendBufferBytes(microseconds(800), 1000), 200'000u);
}

TEST(SendBuffer, IsTheKernelsWhereTheWayHoldsMore) {
  EXPECT_EQ(sendBufferBytes(microseconds(100), 10'000), 0u);
  EXPECT_EQ(sendBufferBytes(microseconds(40), 100'000), 0u);
  EXPECT_EQ(sendBufferBytes(microseconds(50), 0), 0u);
  EXPECT_EQ(sendBufferBytes(microseconds(20'000), 1000), 0u);
}

TEST(SendBuffer, IsChosenAgainAsBytesGoOut) {
  SendBuffer buffer(10'000);
  EXPECT_EQ(buffer.adopt(microseconds(900)), 0u);  // both ends were busy
  EXPECT_FALSE(buffer.isDue(256_KiB - 1));
  EXPECT_TRUE(buffer.isDue(1));
  EXPECT_EQ(buffer.adopt(microseconds(60)), 150'000u);
  EXPECT_FALSE(buffer.isDue(128_KiB));
  EXPECT_TRUE(buffer.isDue(128_KiB));
  EXPECT_EQ(buffer.adopt(microseconds(70)), 0u) << "longer than it was";
  EXPECT_FALSE(buffer.isDue(256_KiB));
  EXPECT_TRUE(buffer.isDue(1_MiB));
  EXPECT_EQ(buffer.adopt(microseconds(3)), 128_KiB);
  EXPECT_FALSE(buffer.isDue(1_GiB)) << "it can be no shorter";
}

TEST(SendBuffer, OfNobodyIsNeverLookedAt) { EXPECT_FALSE(SendBuffer().isDue(1_GiB)); }

}  // namespace
}  // namespace tutti::net::socket
