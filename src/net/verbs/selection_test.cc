#include "net/verbs/selection.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::net::verbs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

AdapterRules rules(std::string_view text) { return AdapterRules::parse(text).value(); }

TEST(AdapterRules, WithoutAnyAdmitAll) { EXPECT_TRUE(rules("").admits("mlx5_0", 1)); }

TEST(AdapterRules, NamesArePrefixes) {
  EXPECT_TRUE(rules("mlx5_1").admits("mlx5_1", 1));
  EXPECT_TRUE(rules("mlx5_1").admits("mlx5_10", 2));
  EXPECT_FALSE(rules("mlx5_1").admits("mlx5_2", 1));
  EXPECT_TRUE(rules("bnxt,mlx5").admits("mlx5_3", 1));
}

TEST(AdapterRules, AnEqualsSignMakesThemExact) {
  EXPECT_TRUE(rules("=mlx5_1,mlx5_3").admits("mlx5_3", 1));
  EXPECT_FALSE(rules("=mlx5_1").admits("mlx5_10", 1));
}

TEST(AdapterRules, ACaretTurnsThemRound) {
  EXPECT_FALSE(rules("^mlx5_1").admits("mlx5_10", 1));
  EXPECT_TRUE(rules("^=mlx5_1").admits("mlx5_10", 1));
  EXPECT_FALSE(rules("^=mlx5_1").admits("mlx5_1", 1));
}

TEST(AdapterRules, APortBelongsToItsName) {
  EXPECT_TRUE(rules("mlx5_0:2,mlx5_1").admits("mlx5_0", 2));
  EXPECT_FALSE(rules("mlx5_0:2,mlx5_1").admits("mlx5_0", 1));
  EXPECT_TRUE(rules("mlx5_0:2,mlx5_1").admits("mlx5_1", 1));
  EXPECT_FALSE(rules("^mlx5_0:2").admits("mlx5_0", 2));
  EXPECT_TRUE(rules("^mlx5_0:2").admits("mlx5_0", 1));
}

TEST(AdapterRules, APortThatIsNoneIsRefused) {
  for (const char* text : {"mlx5_0:", "mlx5_0:x", "mlx5_0:0", "mlx5_0:1x"}) {
    const auto parsed = AdapterRules::parse(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("ends in no port"));
  }
}

TEST(PortSpeed, IsLanesTimesRate) {
  EXPECT_EQ(portSpeed(32, 2), 100);   // EDR x4
  EXPECT_EQ(portSpeed(64, 2), 200);   // HDR x4
  EXPECT_EQ(portSpeed(128, 2), 400);  // NDR x4
  EXPECT_EQ(portSpeed(16, 1), 14);
  EXPECT_EQ(portSpeed(1, 8), 30);
  EXPECT_EQ(portSpeed(2, 4), 40);
  EXPECT_EQ(portSpeed(4, 16), 20);
  EXPECT_EQ(portSpeed(8, 1), 10);
  EXPECT_EQ(portSpeed(0, 2), 0);
  EXPECT_EQ(portSpeed(32, 0), 0);
}

const std::vector<Place> kPlaces = {{.address = "0000:17:00.0"}, {.address = "0000:17:00.1"},
                                    {.address = "0000:3b:00.0"}, {},
                                    {.address = "0000:17:01.2"}, {}};

TEST(MergePorts, PutsThePortsOfACardTogether) {
  EXPECT_THAT(mergePorts(kPlaces, {}),
              ElementsAre(ElementsAre(0, 1, 4), ElementsAre(2), ElementsAre(3), ElementsAre(5)));
}

TEST(MergePorts, LeavesVirtualFunctionsAloneWhereAsked) {
  EXPECT_THAT(mergePorts(kPlaces, {.virtualFunctions = false}),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2), ElementsAre(3), ElementsAre(4),
                          ElementsAre(5)));
}

TEST(MergePorts, MergesNothingWhereAsked) {
  EXPECT_EQ(mergePorts(kPlaces, {.ports = false}).size(), kPlaces.size());
}

TEST(MergePorts, KeepsKindsOfNetworksApartAndGroupsSmall) {
  const std::vector<Place> mixed = {{.address = "0000:17:00.0"},
                                    {.address = "0000:17:00.1", .isEthernet = true}};
  EXPECT_EQ(mergePorts(mixed, {}).size(), 2u);
  EXPECT_THAT(mergePorts(kPlaces, {.mostTogether = 2})[0], ElementsAre(0, 1));
}

Gid gid(uint32_t index, Gid::Kind kind, const char* address) {
  Gid made{.index = index, .kind = kind};
  EXPECT_EQ(::inet_pton(AF_INET6, address, made.bytes.data()), 1);
  return made;
}

using enum Gid::Kind;
const std::vector<Gid> kTable = {gid(0, kRoceV1, "fe80::1"),
                                 gid(1, kRoceV2, "fe80::1"),
                                 gid(2, kRoceV1, "::ffff:10.0.0.7"),
                                 gid(3, kRoceV2, "::ffff:10.0.0.7"),
                                 gid(4, kRoceV2, "2001:db8::7"),
                                 gid(5, kRoceV2, "::ffff:10.1.0.7"),
                                 gid(6, kRoceV2, "::")};

uint32_t chosen(const GidWish& wish) {
  const auto result = chooseRoceGid(kTable, wish);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? result.value().index : 99;
}

TEST(RoceGid, IsTheFirstIpv4OfVersion2) { EXPECT_EQ(chosen({}), 3u); }
TEST(RoceGid, IsTheOneThatIsAskedFor) { EXPECT_EQ(chosen({.index = 0}), 0u); }
TEST(RoceGid, GoesByVersion) { EXPECT_EQ(chosen({.roceVersion = 1}), 2u); }
TEST(RoceGid, GoesByFamily) { EXPECT_EQ(chosen({.family = AF_INET6}), 4u); }
TEST(RoceGid, GoesByRange) {
  EXPECT_EQ(chosen({.range = "10.1.0.0/16"}), 5u);
  EXPECT_EQ(chosen({.range = "2001:db8::/32"}), 4u);
  EXPECT_EQ(chosen({.range = "10.0.0.7"}), 3u);
}

TEST(RoceGid, OfALinkIsBetterThanNone) {
  EXPECT_EQ(chooseRoceGid(std::span(kTable).first(2), {}).value().index, 1u);
}

TEST(RoceGid, ThatIsNotThereIsToldWithWhatIs) {
  for (const GidWish& wish :
       {GidWish{.index = 6}, GidWish{.index = 40}, GidWish{.range = "192.168.0.0/16"}}) {
    const auto result = chooseRoceGid(kTable, wish);
    ASSERT_FALSE(result.ok());
    EXPECT_THAT(std::string(result.status().message()), HasSubstr("3: 10.0.0.7 (RoCE v2)"));
  }
  EXPECT_THAT(std::string(chooseRoceGid({}, {}).status().message()), HasSubstr("table is empty"));
}

TEST(RoceGid, ARangeThatIsNoneIsRefused) {
  for (const char* range : {"10.0.0.0/33", "x/8", "10.0.0.0/", "fe80::/129"}) {
    const auto result = chooseRoceGid(kTable, {.range = range});
    ASSERT_FALSE(result.ok()) << range;
    EXPECT_EQ(result.status().code(), Code::kInvalidUsage);
  }
}

}  // namespace
}  // namespace tutti::net::verbs
