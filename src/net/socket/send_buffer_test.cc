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

}  // namespace
}  // namespace tutti::net::socket
