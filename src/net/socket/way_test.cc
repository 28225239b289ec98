#include "net/socket/way.h"

#include <gtest/gtest.h>

namespace tutti::net::socket {
namespace {

TEST(Way, FindsWhatAnInterfaceHasMoved) {
  const std::string table =
      "Inter-|   Receive                                                |  Transmit\n"
      " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs\n"
      "    lo: 11 12 13 14 15 16 17 18 19 20 21\n"
      "enp0s31f6: 1234567890123 22 23 24 25 26 27 28 4242424242424 30 31\n"
      "  eth0:21 22 23 24 25 26 27 28 29 30 31\n"
      "  eth1: 21 22 23\n";
  EXPECT_EQ(bytesIn(table, "lo").sent, 19u);
  EXPECT_EQ(bytesIn(table, "enp0s31f6").sent, 4'242'424'242'424u);
  EXPECT_EQ(bytesIn(table, "eth0").sent, 29u);
  EXPECT_EQ(bytesIn(table, "enp0s31f6").received, 1'234'567'890'123u);
  EXPECT_EQ(bytesIn(table, "eth0").received, 21u);
  EXPECT_EQ(bytesIn(table, "eth1").sent, 0u) << "cut off";
  EXPECT_EQ(bytesIn(table, "eth1").received, 0u) << "cut off";
  EXPECT_EQ(bytesIn(table, "eth").sent, 0u);
  EXPECT_EQ(bytesIn("", "eth0").sent, 0u);
}

}  // namespace
}  // namespace tutti::net::socket
