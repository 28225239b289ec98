// Links between hosts with TUTTI_SECURE=encrypt, as a user sets it.
#include <gmock/gmock.h>

#include <string>

#include "network_ranks.h"

namespace tutti::conformance {
namespace {

class Encryption : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Hosts, Encryption, testing::Values("01", "0110", "0123"),
                         [](const auto& hosts) { return "h" + hosts.param; });

TEST_P(Encryption, CarriesAllCollectives) {
  const Outcome outcome = run(kAllCollectives, GetParam(), {"TUTTI_SECURE=encrypt"});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
  EXPECT_EQ(outcome.count("encrypted (TUTTI_SECURE=encrypt)"), GetParam().size()) << outcome.log;
}

TEST(EncryptionOfLinks, SpreadsOverSeveralSockets) {
  const Outcome outcome =
      run(kAllReduce, "01",
          {"TUTTI_SECURE=encrypt", "NCCL_SOCKET_NTHREADS=2", "NCCL_NSOCKS_PERTHREAD=2"});
  EXPECT_TRUE(outcome.isGood()) << outcome.log;
}

TEST(EncryptionOfLinks, IsAgreedByAllRanks) {
  const Outcome outcome = run(kAllReduce, "012", {"TEST_ANYTHING=1"}, {"TUTTI_SECURE=encrypt"});
  for (const int code : outcome.codes) EXPECT_NE(code, 0);
  EXPECT_GE(outcome.count("TUTTI_SECURE differs between ranks: rank "), 3u) << outcome.log;
  EXPECT_EQ(outcome.count("links to other hosts over"), 0u) << outcome.log;
}

TEST(EncryptionOfLinks, LeavesNoOtherNetwork) {
  const std::string plugin = "NCCL_NET_PLUGIN=" TUTTI_FAKE_NETS "/libnccl-net-fake11.so";
  const Outcome sockets = run(kAllReduce, "01", {plugin, "TUTTI_SECURE=encrypt"});
  EXPECT_TRUE(sockets.isGood()) << sockets.log;
  EXPECT_EQ(sockets.count("over Fake"), 0u) << sockets.log;
  const Outcome forced = run(kFailingInit, "01",
                             {plugin, "NCCL_NET=fake", "TUTTI_SECURE=encrypt",
                              "TEST_MESSAGE=NCCL_NET=fake does not encrypt"});
  EXPECT_TRUE(forced.isGood()) << forced.log;
}

}  // namespace
}  // namespace tutti::conformance
