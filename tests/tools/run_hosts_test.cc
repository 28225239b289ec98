#include <gtest/gtest.h>

#include "tools/host_list.h"
#include "tools/remote_rank.h"

namespace tutti::tools {
namespace {

using Hosts = std::vector<HostSlots>;

TEST(HostList, HasHostsAndTheirSlots) {
  EXPECT_EQ(parseHosts("a:2,b").value(), (Hosts{{"a", 2}, {"b", 1}}));
  EXPECT_EQ(parseHosts("me@a:3,10.0.0.7:2").value(), (Hosts{{"me@a", 3}, {"10.0.0.7", 2}}));
  EXPECT_EQ(parseHosts("a:1,b:1,a:2").value(), (Hosts{{"a", 3}, {"b", 1}}));
}

TEST(HostList, HasIpv6AddressesInBracketsWhereSlotsFollow) {
  EXPECT_EQ(parseHosts("[fd00::1]:2,fd00::2,[fd00::3]").value(),
            (Hosts{{"fd00::1", 2}, {"fd00::2", 1}, {"fd00::3", 1}}));
}

TEST(HostList, IsRefusedWithTheEntryThatIsWrong) {
  for (const char* wrong :
       {"", "a,,b", "a:", "a:0", "a:x", "a:99999", ":2", "-oProxyCommand=x:1"}) {
    const Status status = parseHosts(wrong).takeStatus();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << wrong;
  }
  EXPECT_NE(parseHosts("a:2,b:x").takeStatus().message().find("'b:x'"), std::string_view::npos);
}

TEST(HostFile, HasAHostALineInAnyOfThreeForms) {
  EXPECT_EQ(parseHostFile("# two racks\na slots=2 max_slots=4\n\nb:3  # the big one\nc 4\nd\n", "f")
                .value(),
            (Hosts{{"a", 2}, {"b", 3}, {"c", 4}, {"d", 1}}));
  EXPECT_EQ(parseHostFile("# nobody\n", "f").status().message(), "f: names no hosts");
  EXPECT_EQ(parseHostFile("b\n\na slots=many\n", "f").status().message(),
            "f:3: 'a' has 'many' slots, wanted 1 to 4096");
  EXPECT_EQ(parseHostFile("node1:2:3\n", "f").status().message(), "f:1: 'node1:2:3' names no host");
}

TEST(PlaceRanks, FillsOneHostAfterTheOther) {
  const auto places = placeRanks({{"a", 2}, {"b", 3}}, 4).value();
  ASSERT_EQ(places.size(), 4u);
  EXPECT_EQ(places[1].host, "a");
  EXPECT_EQ(places[1].localRank, 1);
  EXPECT_EQ(places[3].host, "b");
  EXPECT_EQ(places[3].localRank, 1);
  EXPECT_EQ(places[3].localCount, 2) << "of b's three slots two are taken";
  EXPECT_EQ(placeRanks({{"a", 2}, {"b", 3}}, 0)->size(), 5u);
  EXPECT_FALSE(placeRanks({{"a", 2}}, 3).ok());
}

TEST(RemoteRank, QuotesWhateverShellsCouldTakeForTheirs) {
  EXPECT_EQ(quoted("plain"), "'plain'");
  EXPECT_EQ(quoted("it's $HOME; rm"), "'it'\\''s $HOME; rm'");
  const auto words = sshCommand({.host = "b",
                                 .folder = "/tmp",
                                 .variables = {},
                                 .libraryFolder = {},
                                 .command = {"echo", "a b"}});
  ASSERT_EQ(words.size(), 4u);
  EXPECT_EQ(words[0], "ssh");
  EXPECT_EQ(words[2], "b");
  EXPECT_TRUE(words[3].ends_with("tutti-run 'echo' 'a b'")) << words[3];
}

}  // namespace
}  // namespace tutti::tools
