#include "comm/host_identity.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace tutti::comm {
namespace {

TEST(HostHash, IsOneForProcessesThatCanShareMemoryAndAnotherForAllElse) {
  const uint64_t here = hashOfHost("node1", "boot", 7);
  EXPECT_EQ(here, hashOfHost("node1", "boot", 7));
  EXPECT_NE(here, hashOfHost("node2", "boot", 7)) << "two hosts of one image";
  EXPECT_NE(here, hashOfHost("node1", "other", 7)) << "two hosts of one name";
  EXPECT_NE(here, hashOfHost("node1", "boot", 8)) << "two containers of one host";
}

TEST(HostHash, TakesTheNameThatTheUserGives) {
  EXPECT_EQ(hostHash("rack1").value(), hostHash("rack1").value());
  EXPECT_NE(hostHash("rack1").value(), hostHash("rack2").value());
  EXPECT_NE(hostHash("rack1").value(), hostHash("").value());
}

TEST(HostHash, IsNoGuessWhereNothingCanBeRead) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const Status status = hostHash("").takeStatus();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(status.code(), Code::kSystemError);
  EXPECT_NE(status.message().find("ulimit -n"), std::string_view::npos) << status.message();
}

}  // namespace
}  // namespace tutti::comm
