#include "bootstrap/approach.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "base/few_descriptors_testing.h"
#include "base/log.h"
#include "base/log_setup.h"
#include "bootstrap/deaf_listener_testing.h"

namespace tutti::bootstrap {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using State = Approach::State;

constexpr milliseconds kFirst = Approach::kFirstPatience;

class ApproachTest : public ::testing::Test {
 protected:
  Approach::Options options(const SocketAddress& address) {
    return {.address = address,
            .introduction = {Purpose::kReport, Rank{3}},
            .key = &key,
            .clock = &clock,
            .rng = &rng,
            .timeout = std::chrono::seconds(60)};
  }
  Approach::Options options() { return options(localAddress(listener.get())); }

  // What comes to the listener's queue, and its hello.
  UniqueFd acceptOne() {
    pollfd entry{.fd = listener.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&entry, 1, 60'000), 1);
    return UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }

  // Looks until there is something, without the clock going on.
  State settle(Approach& approach) {
    for (int i = 0; i < 1'000; ++i) {
      if (const State state = approach.look(); state != State::kPending) return state;
      approach.await(clock.now() + milliseconds(10));
    }
    return State::kPending;
  }
  // Nothing comes of it now; what is there to be seen has been.
  void expectPending(Approach& approach) {
    EXPECT_EQ(approach.look(), State::kPending);
    approach.await(clock.now() + milliseconds(10));
    EXPECT_EQ(approach.look(), State::kPending);
  }

  Key key;
  SeededRng rng{4};
  ManualClock clock;
  UniqueFd listener = listenWithPlacesFor(8);
};

TEST_F(ApproachTest, IsHeardByAnAnswer) {
  Approach approach(options());
  const UniqueFd server = acceptOne();
  approach.look();  // sends the hello
  ServerHandshake handshake(key, Purpose::kReport);
  std::array<std::byte, kHelloBytes> hello;
  ASSERT_EQ(::recv(server.get(), hello.data(), hello.size(), MSG_WAITALL), kHelloBytes);
  ASSERT_EQ(handshake.feed(hello, rng), Refusal::kNone);
  ASSERT_EQ(writeSome(server.get(), handshake.takeReply()).count, kReplyBytes);
  ASSERT_EQ(settle(approach), State::kHeard);
  EXPECT_EQ(approach.connectionCount(), 1u);
  Approach::Line line = approach.take();
  std::array<std::byte, kReplyBytes> reply;
  ASSERT_EQ(readSome(line.fd.get(), reply).count, kReplyBytes);
  EXPECT_EQ(line.handshake.feed(reply), Refusal::kNone);
}

TEST_F(ApproachTest, WaitsForASystemThatHasTakenItsHello) {
  Approach approach(options());
  EXPECT_EQ(approach.look(), State::kPending);
  EXPECT_TRUE(approach.isConnected());
  const int first = approach.firstFd();
  clock.advance(kFirst);
  ASSERT_EQ(settle(approach), State::kHeard);  // nobody has accepted it
  EXPECT_EQ(approach.connectionCount(), 1u);
  EXPECT_EQ(approach.take().fd.get(), first);
}

TEST_F(ApproachTest, ComesAnewToAFullQueue) {
  listener = listenWithPlacesFor(0);
  const Strangers strangers(listener.get());
  Approach approach(options());
  expectPending(approach);
  EXPECT_FALSE(approach.isConnected());
  clock.advance(kFirst);
  expectPending(approach);
  EXPECT_EQ(approach.connectionCount(), 2u);
  const int first = approach.firstFd();
  const UniqueFd stranger = acceptOne();  // there is room again
  clock.advance(2 * kFirst);
  expectPending(approach);  // a fresh one is through, and greets
  EXPECT_TRUE(approach.isConnected());
  clock.advance(4 * kFirst);
  ASSERT_EQ(settle(approach), State::kHeard);
  EXPECT_NE(approach.take().fd.get(), first);
}

// The system repeats what was dropped after 0.2, 0.4, 0.8 s and so on.
TEST_F(ApproachTest, ComesAnewWhereTheLastStepWasDropped) {
  OnlyBeginnings dropping(listener.get());
  Approach approach(options());
  const int first = approach.firstFd();
  expectPending(approach);
  EXPECT_TRUE(approach.isConnected());  // as far as it can see
  clock.advance(kFirst);
  expectPending(approach);
  EXPECT_EQ(approach.connectionCount(), 2u);
  dropping.end();
  clock.advance(2 * kFirst);
  expectPending(approach);
  clock.advance(4 * kFirst);
  ASSERT_EQ(settle(approach), State::kHeard);
  EXPECT_NE(approach.take().fd.get(), first);
}

TEST_F(ApproachTest, KeepsItsFirstConnectionForSlowWays) {
  const OnlyBeginnings dropping(listener.get());
  Approach approach(options());
  const int first = approach.firstFd();
  for (int i = 0; i < 20; ++i) {
    clock.advance(Approach::kLongestPatience);
    expectPending(approach);
    EXPECT_EQ(approach.firstFd(), first);
    EXPECT_EQ(approach.connectionCount(), 2u);
    EXPECT_LE(approach.nextLook(), clock.now() + Approach::kLongestPatience);
  }
}

TEST_F(ApproachTest, GoesOnWithItsFirstConnectionWithoutDescriptors) {
  OnlyBeginnings dropping(listener.get());
  Approach approach(options());
  expectPending(approach);
  {
    const FewDescriptors none(0);
    clock.advance(kFirst);
    expectPending(approach);
    EXPECT_EQ(approach.connectionCount(), 1u);
  }
  dropping.end();
  const UniqueFd repeated = acceptOne();
  clock.advance(2 * kFirst);
  EXPECT_EQ(settle(approach), State::kHeard);
}

TEST_F(ApproachTest, FailsAtOnceWhereNobodyListens) {
  const SocketAddress address = localAddress(listener.get());
  listener.reset();
  Approach approach(options(address));
  EXPECT_EQ(settle(approach), State::kFailed);
  EXPECT_EQ(approach.failure().errnoValue, ECONNREFUSED);
  EXPECT_FALSE(approach.failure().wasConnected);
}

TEST_F(ApproachTest, TellsOnceThatItIsNotHeard) {
  const OnlyBeginnings dropping(listener.get());
  Approach approach(options());
  log::configure({.level = log::Level::kWarn, .timestampLevels = 0});
  const auto toldBy = [&](milliseconds time) {
    ::testing::internal::CaptureStdout();
    clock.advance(time);
    expectPending(approach);
    return ::testing::internal::GetCapturedStdout();
  };
  EXPECT_EQ(toldBy(milliseconds(999)), "");
  EXPECT_THAT(toldBy(milliseconds(501)),
              HasSubstr(fmt::format("rank 3 has not been heard at {} for 1500 ms: ",
                                    localAddress(listener.get()).text())));
  EXPECT_EQ(toldBy(Approach::kLongestPatience), "");
  log::configure({});
}

}  // namespace
}  // namespace tutti::bootstrap
