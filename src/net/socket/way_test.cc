#include "net/socket/way.h"

#include <gtest/gtest.h>

namespace tutti::net::socket {
namespace {

TEST(Way, FindsWhatAnInterfaceHasSent) {
  const std::string table =
      "Inter-|   Receive                                                |  Transmit\n"
      " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs\n"
      "    lo: 11 12 13 14 15 16 17 18 19 20 21\n"
      "enp0s31f6: 1234567890123 22 23 24 25 26 27 28 4242424242424 30 31\n"
      "  eth0:21 22 23 24 25 26 27 28 29 30 31\n"
      "  eth1: 21 22 23\n";
  EXPECT_EQ(sentBytesIn(table, "lo"), 19u);
  EXPECT_EQ(sentBytesIn(table, "enp0s31f6"), 4'242'424'242'424u);
  EXPECT_EQ(sentBytesIn(table, "eth0"), 29u);
  EXPECT_EQ(sentBytesIn(table, "eth1"), 0u) << "cut off";
  EXPECT_EQ(sentBytesIn(table, "eth"), 0u);
  EXPECT_EQ(sentBytesIn("", "eth0"), 0u);
}

}  // namespace
}  // namespace tutti::net::socket
