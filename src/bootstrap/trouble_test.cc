#include "bootstrap/trouble.h"

#include <gmock/gmock.h>

#include <cerrno>

namespace tutti::bootstrap {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

TEST(Trouble, NamesTheRangeWhereNoPortIsLeft) {
  EXPECT_THAT(connectTrouble(EADDRNOTAVAIL),
              MatchesRegex(".*no free port for it .net.ipv4.ip_local_port_range, [0-9]+ to "
                           "[0-9]+.$"));
}

TEST(Trouble, ListsTheInterfacesWhereNoWayLeadsThere) {
  for (const int error : {ENETDOWN, ENETUNREACH, EHOSTUNREACH})
    EXPECT_THAT(connectTrouble(error), HasSubstr("lo (127.0.0.1) is "));
}

TEST(Trouble, IsOtherwiseWhatTheSystemSays) {
  EXPECT_EQ(connectTrouble(ECONNREFUSED), "Connection refused");
  EXPECT_EQ(connectTrouble(0), "it closed the connection");
}

}  // namespace
}  // namespace tutti::bootstrap
