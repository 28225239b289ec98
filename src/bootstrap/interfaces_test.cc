#include "bootstrap/interfaces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::bootstrap {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

SocketAddress addressOf(const std::string& host) {
  const bool isV6 = host.find(':') != std::string::npos;
  Result<SocketAddress> address = SocketAddress::parse(isV6 ? "[" + host + "]:0" : host + ":0");
  EXPECT_TRUE(address.ok()) << host;
  return *address;
}

Interface made(const std::string& name, const std::string& host, int prefixBits = 24) {
  const SocketAddress address = addressOf(host);
  return {.name = name,
          .address = address,
          .prefixBits = prefixBits,
          .isUp = true,
          .isLoopback = address.isLoopback()};
}

std::vector<Interface> machine() {
  return {made("lo", "127.0.0.1", 8), made("docker0", "172.17.0.1", 16),
          made("eth0", "10.0.0.5"),   made("eth1", "10.0.1.5"),
          made("ib0", "192.168.9.5"), made("eth0", "2001:db8::5", 64)};
}

std::vector<std::string> namesOf(const InterfaceRules& rules,
                                 const std::vector<Interface>& all = machine()) {
  const Result<InterfaceChoice> choice = chooseInterfaces(all, rules);
  std::vector<std::string> names;
  if (!choice.ok()) return names;
  for (const Interface& interface : choice.value().interfaces) names.push_back(interface.name);
  return names;
}

TEST(Interfaces, PrefersInfiniBandThenOrdinaryThenVirtualThenLoopback) {
  EXPECT_THAT(namesOf({}), ElementsAre("ib0", "eth0", "eth1", "docker0", "lo"));
}

TEST(Interfaces, ListsGivePrefixesExactNamesAndExclusions) {
  EXPECT_THAT(namesOf({.names = "eth"}), ElementsAre("eth0", "eth1"));
  EXPECT_THAT(namesOf({.names = "=eth1"}), ElementsAre("eth1"));
  EXPECT_THAT(namesOf({.names = "=eth"}), ElementsAre());
  EXPECT_THAT(namesOf({.names = "^docker,lo,ib"}), ElementsAre("eth0", "eth1"));
  EXPECT_THAT(namesOf({.names = "^=eth0,ib0,docker0"}), ElementsAre("lo", "eth1"));
  EXPECT_THAT(namesOf({.names = "ib,,eth1"}), ElementsAre("eth1", "ib0"));
}

TEST(Interfaces, PrefersTheRootsSubnetUnlessNamesAreGiven) {
  EXPECT_EQ(namesOf({.near = addressOf("10.0.1.77")}).front(), "eth1");
  EXPECT_EQ(namesOf({.near = addressOf("127.0.0.1")}).front(), "lo");
  EXPECT_EQ(namesOf({.near = addressOf("8.8.8.8")}).front(), "ib0");
  EXPECT_EQ(namesOf({.names = "eth0", .near = addressOf("10.0.1.77")}).front(), "eth0");
}

TEST(Interfaces, KeepsToTheFamilyAndPutsRoutableAddressesFirst) {
  const auto choice = chooseInterfaces(machine(), {.family = AF_INET6});
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice.value().interfaces.front().address.hostText(), "2001:db8::5");
  std::vector<Interface> v6 = {made("eth0", "fe80::1%lo", 64), made("eth1", "2001:db8::1", 64)};
  EXPECT_THAT(namesOf({}, v6), ElementsAre("eth1", "eth0"));
}

TEST(Interfaces, SaysWhyItChoseAndWhatItSkipped) {
  std::vector<Interface> all = machine();
  all[4].isUp = false;
  const auto choice = chooseInterfaces(all, {});
  ASSERT_TRUE(choice.ok());
  EXPECT_THAT(choice.value().reason, HasSubstr("eth0 (10.0.0.5): first that is not loopback"));
  EXPECT_THAT(choice.value().reason, HasSubstr("ib0 (192.168.9.5): down"));
}

TEST(Interfaces, WithoutAnyItListsAllAndWhy) {
  const auto choice = chooseInterfaces(machine(), {.names = "wlan"});
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.status().code(), Code::kInvalidUsage);
  EXPECT_THAT(std::string(choice.status().message()),
              HasSubstr("eth1 (10.0.1.5): NCCL_SOCKET_IFNAME=wlan leaves it out"));
  EXPECT_FALSE(chooseInterfaces({}, {}).ok());
}

TEST(Interfaces, ThisHostHasALoopback) {
  const auto choice = chooseInterfaces({.names = "=lo", .family = AF_INET});
  ASSERT_TRUE(choice.ok());
  EXPECT_TRUE(choice.value().interfaces.front().isLoopback);
}

}  // namespace
}  // namespace tutti::bootstrap
