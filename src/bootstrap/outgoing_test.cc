#include "bootstrap/outgoing.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "bootstrap/acceptor.h"
#include "bootstrap/deaf_listener_testing.h"

namespace tutti::bootstrap {
namespace {

using std::chrono::milliseconds;

// Driven as the endpoint does it, by a clock that the test sets.
class OutgoingTest : public ::testing::Test {
 protected:
  Outgoing::Options options() {
    return {.address = localAddress(listener.get()),
            .introduction = {Purpose::kPeer, Rank{3}, Rank{1}, 5},
            .key = &key,
            .clock = &clock,
            .rng = &rng,
            .poller = poller.get(),
            .pollerKey = 7,
            .timeout = std::chrono::seconds(60)};
  }

  // Time goes on to when it wants to be called next, and what happens meanwhile is told.
  void goOn(Outgoing& outgoing) {
    ASSERT_TRUE(outgoing.nextTime());
    clock.advance(*outgoing.nextTime() - clock.now());
    outgoing.onTime(clock.now());
    hearAll(outgoing);
  }
  void hearAll(Outgoing& outgoing) {
    for (;;) {
      const auto events = poller->wait(clock, clock.now() + milliseconds(10));
      if (events.empty()) return;
      for (const Poller::Event& event : events) outgoing.onEvent(event);
    }
  }

  Key key;
  SeededRng rng{4};
  ManualClock clock;
  std::unique_ptr<Poller> poller = Poller::open().value();
  UniqueFd listener = listenWithPlacesFor(8);
};

TEST_F(OutgoingTest, ComesAnewWhereItIsNotHeard) {
  OnlyBeginnings dropping(listener.get());
  Outgoing outgoing(options());
  ASSERT_TRUE(outgoing.send(FrameType::kMessage, 1, {}));
  hearAll(outgoing);
  for (int i = 0; i < 3; ++i) goOn(outgoing);
  dropping.end();
  goOn(outgoing);
  // Connections that it has given up stand in the queue, too.
  const auto serverPoller = Poller::open().value();
  const auto acceptor =
      Acceptor::open(std::move(listener), {.key = key, .purpose = Purpose::kPeer, .who = "test"},
                     *serverPoller)
          .value();
  std::vector<Accepted> accepted;
  while (accepted.empty()) {
    for (const Poller::Event& event : serverPoller->wait(steadyClock(), std::nullopt))
      acceptor->onEvent(event.key, accepted);
    hearAll(outgoing);
  }
  EXPECT_EQ(accepted[0].introduction.rank, Rank{3});
  EXPECT_TRUE(outgoing.isFlushed());
  EXPECT_EQ(outgoing.whyUnreached(), "");
  EXPECT_LT(clock.now() - Instant{1}, std::chrono::seconds(4));
}

TEST_F(OutgoingTest, SaysThatItWasNotHeardInTime) {
  const OnlyBeginnings dropping(listener.get());
  Outgoing outgoing(options());
  while (outgoing.fault().empty()) goOn(outgoing);
  EXPECT_EQ(outgoing.fault(), fmt::format("could not be reached at {} within 60000 ms; "
                                          "TUTTI_TIMEOUT_MS changes this limit",
                                          localAddress(listener.get()).text()));
}

}  // namespace
}  // namespace tutti::bootstrap
