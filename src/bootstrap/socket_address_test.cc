#include "bootstrap/socket_address.h"

#include <gtest/gtest.h>
#include <net/if.h>

namespace tutti::bootstrap {
namespace {

std::string parsed(std::string_view text) {
  const Result<SocketAddress> address = SocketAddress::parse(text);
  return address.ok() ? address.value().text() : "refused";
}

SocketAddress addressOf(std::string_view text) {
  Result<SocketAddress> address = SocketAddress::parse(text);
  EXPECT_TRUE(address.ok()) << text;
  return address.ok() ? *address : SocketAddress();
}

TEST(SocketAddress, PrintsWhatItParsed) {
  EXPECT_EQ(parsed("10.0.0.5:4242"), "10.0.0.5:4242");
  EXPECT_EQ(parsed("[::1]:1"), "[::1]:1");
  EXPECT_EQ(parsed("[2001:db8::5]:65535"), "[2001:db8::5]:65535");
}

TEST(SocketAddress, KnowsLinkLocalScopes) {
  const uint32_t loopback = if_nametoindex("lo");
  ASSERT_NE(loopback, 0u);
  EXPECT_EQ(addressOf("[fe80::1%lo]:7").scope(), loopback);
  EXPECT_EQ(parsed("[fe80::1%lo]:7"), "[fe80::1%lo]:7");
  EXPECT_TRUE(addressOf("[fe80::1%lo]:7").isLinkLocal());
  EXPECT_EQ(parsed("[fe80::1%no-such-interface]:7"), "refused");
}

TEST(SocketAddress, RefusesWhatIsNoAddress) {
  for (const char* text :
       {"", "10.0.0.5", ":1", "10.0.0.5:", "10.0.0.5:65536", "10.0.0.5:-1", "10.0.0.5:1x", "::1:1",
        "[::1]", "[]:1", "[10.0.0.5]:1", "host:1", "10.0.0:1", "[::1:1"}) {
    EXPECT_EQ(parsed(text), "refused") << text;
  }
}

TEST(SocketAddress, ResolvesNamesAndKeepsToTheFamily) {
  const Result<SocketAddress> numeric = SocketAddress::resolve("127.0.0.1:9", AF_INET);
  ASSERT_TRUE(numeric.ok());
  EXPECT_FALSE(SocketAddress::resolve("127.0.0.1:9", AF_INET6).ok());
  const Result<SocketAddress> named = SocketAddress::resolve("localhost:9", 0);
  ASSERT_TRUE(named.ok());
  EXPECT_TRUE(named.value().isLoopback());
  EXPECT_EQ(named.value().port(), 9);
}

TEST(SocketAddress, ComparesSubnetsBitByBit) {
  const SocketAddress a = addressOf("10.1.2.3:1");
  EXPECT_TRUE(a.isInSubnet(addressOf("10.1.2.200:9"), 24));
  EXPECT_FALSE(a.isInSubnet(addressOf("10.1.3.3:1"), 24));
  EXPECT_TRUE(a.isInSubnet(addressOf("10.1.3.3:1"), 23));
  EXPECT_FALSE(a.isInSubnet(addressOf("10.1.0.3:1"), 23));
  EXPECT_FALSE(a.isInSubnet(addressOf("[::1]:1"), 0));
  EXPECT_FALSE(SocketAddress().isInSubnet(a, 0));
  EXPECT_TRUE(addressOf("[2001:db8::1]:1").isInSubnet(addressOf("[2001:db8::ffff]:1"), 64));
}

TEST(SocketAddress, SurvivesEncodingAndDecoding) {
  for (const char* text : {"10.0.0.5:4242", "[2001:db8::5]:80", "[fe80::1%lo]:7"}) {
    const Result<SocketAddress> back = decodeAddress(encodeAddress(addressOf(text)));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(back.value().text(), text);
  }
  EXPECT_TRUE(decodeAddress(encodeAddress(SocketAddress())).value().isEmpty());
  EncodedAddress strange{};
  strange[0] = 9;
  EXPECT_FALSE(decodeAddress(strange).ok());
}

}  // namespace
}  // namespace tutti::bootstrap
