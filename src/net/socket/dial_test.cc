#include "net/socket/dial.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bootstrap/deaf_listener_testing.h"
#include "bootstrap/key.h"
#include "bootstrap/poller.h"

namespace tutti::net::socket {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// One's own clock, so that nothing that takes no time of it has waited for anything.
class Dialing : public testing::Test {
 protected:
  DialOptions options(const bootstrap::SocketAddress& address) {
    return {.address = address,
            .key = &key_,
            .introduction = {.purpose = bootstrap::Purpose::kData,
                             .rank = Rank{3},
                             .target = Rank{5},
                             .epoch = 77},
            .timeout = milliseconds(1000),
            .clock = &clock_};
  }

  ManualClock clock_;
  const bootstrap::Key key_;
};

TEST_F(Dialing, WaitsForNobodyWhileTheOtherIsSilent) {
  const UniqueFd listener = bootstrap::listenWithPlacesFor(8);  // which nobody accepts from
  Dialer dialer(options(bootstrap::localAddress(listener.get())));
  for (int looks = 0; looks < 100; ++looks) {
    Result<bool> isThere = dialer.poll();
    ASSERT_TRUE(isThere.ok()) << isThere.status().message();
    ASSERT_FALSE(*isThere);
    bootstrap::pauseFor(milliseconds(1));
  }
  clock_.advance(milliseconds(1001));
  const Result<bool> late = dialer.poll();
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.status().code(), Code::kRemoteError);
  EXPECT_THAT(std::string(late.status().message()),
              HasSubstr("rank 3 cannot connect to rank 5 at 127.0.0.1:"));
  EXPECT_THAT(std::string(late.status().message()), HasSubstr("silent in the handshake"));
}

TEST_F(Dialing, TriesAgainWhereNobodyListensYet) {
  UniqueFd listener = bootstrap::listenWithPlacesFor(8);
  const bootstrap::SocketAddress address = bootstrap::localAddress(listener.get());
  listener.reset();
  Dialer dialer(options(address));
  for (int tries = 0; tries < 3; ++tries) {
    for (int looks = 0; looks < 20; ++looks) {
      ASSERT_TRUE(dialer.poll().ok());
      bootstrap::pauseFor(milliseconds(1));
    }
    clock_.advance(milliseconds(100));
  }
  clock_.advance(milliseconds(1000));
  Result<bool> late = false;
  for (int looks = 0; looks < 5000 && late.ok(); ++looks) {
    late = dialer.poll();
    bootstrap::pauseFor(milliseconds(1));
  }
  ASSERT_FALSE(late.ok());
  EXPECT_THAT(std::string(late.status().message()),
              HasSubstr("interface lo (127.0.0.1) cannot reach it: Connection refused"));
}

}  // namespace
}  // namespace tutti::net::socket
