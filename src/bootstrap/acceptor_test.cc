#include "bootstrap/acceptor.h"

#include <gtest/gtest.h>

#include "bootstrap/test_client.h"

namespace tutti::bootstrap {
namespace {

class AcceptorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    key.bytes()[0] = 7;
    poller = Poller::open().value();
    acceptor =
        Acceptor::open(
            listenOn(SocketAddress::parse("127.0.0.1:0").value()).value(),
            {.key = key, .helloTimeout = kTimeout, .who = "test", .clock = &clock, .rng = &rng},
            *poller)
            .value();
  }

  // Until there is an event, which the acceptor hears of.
  void serve() {
    for (const Poller::Event& event : poller->wait(steadyClock(), std::nullopt))
      acceptor->onEvent(event.key, accepted);
  }

  static constexpr std::chrono::milliseconds kTimeout{5'000};
  Key key;
  SeededRng rng{4};
  ManualClock clock;
  std::unique_ptr<Poller> poller;
  std::unique_ptr<Acceptor> acceptor;
  std::vector<Accepted> accepted;
};

TEST_F(AcceptorTest, GivesUpNobodyWhoseBytesItHasNotRead) {
  ClientHandshake handshake(key, {Purpose::kReport, Rank{3}}, rng);
  TestClient client(acceptor->address());
  client.send(handshake.hello());
  serve();  // takes the connection
  serve();  // reads the hello
  ASSERT_EQ(handshake.feed(client.receive(kReplyBytes)), Refusal::kNone);
  client.send(handshake.confirm());
  ASSERT_FALSE(poller->wait(steadyClock(), std::nullopt).empty());  // it has come
  clock.advance(kTimeout);
  acceptor->onTime(accepted);
  ASSERT_EQ(accepted.size(), 1u);
  EXPECT_EQ(accepted[0].introduction.rank, Rank{3});
  EXPECT_EQ(acceptor->counters().timedOut, 0u);
}

TEST_F(AcceptorTest, GivesUpWhoIsSilentForLong) {
  ClientHandshake handshake(key, {Purpose::kReport, Rank{3}}, rng);
  TestClient client(acceptor->address());
  client.send(handshake.hello());
  serve();
  serve();
  EXPECT_EQ(client.receive(kReplyBytes).size(), kReplyBytes);
  clock.advance(kTimeout);
  acceptor->onTime(accepted);
  EXPECT_TRUE(accepted.empty());
  EXPECT_EQ(acceptor->counters().timedOut, 1u);
  EXPECT_TRUE(client.isClosedSilently());
}

TEST_F(AcceptorTest, LeavesAMomentToClientsAfterItWasStoppedItself) {
  ClientHandshake handshake(key, {Purpose::kReport, Rank{3}}, rng);
  TestClient client(acceptor->address());
  client.send(handshake.hello());
  serve();
  serve();
  ASSERT_EQ(handshake.feed(client.receive(kReplyBytes)), Refusal::kNone);
  clock.advance(3 * kTimeout);
  acceptor->onTime(accepted);
  EXPECT_EQ(acceptor->counters().timedOut, 0u);
  client.send(handshake.confirm());
  serve();
  EXPECT_EQ(accepted.size(), 1u);
}

}  // namespace
}  // namespace tutti::bootstrap
