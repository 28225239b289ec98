// What carriers do where a sender is stopped while its link is being made.
#include "transport/net/relay_service.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "base/char_field.h"
#include "base/segment.h"
#include "bootstrap/poller.h"
#include "transport/net/bare_provider_testing.h"
#include "transport/net/relay_wire.h"
#include "transport/net/relayed_links_testing.h"

namespace tutti::transport::net {
namespace {

// The hand-off service of a process that is stopped: whoever calls hears nothing.
class SilentHandoff {
 public:
  SilentHandoff() : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name_.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name_.size());
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), bytes), 0);
    EXPECT_EQ(::listen(socket_.get(), 1), 0);
  }
  const std::string& name() const { return name_; }
  void awaitCaller() const {
    pollfd caller{socket_.get(), POLLIN, 0};
    ASSERT_EQ(::poll(&caller, 1, 5000), 1);
  }

 private:
  const std::string name_ = fmt::format("tutti-test-stopped-{}", ::getpid());
  const UniqueFd socket_;
};

// A network whose connections are on their way for ever.
class SilentNetwork final : public BareProvider {
 public:
  SilentNetwork() : BareProvider({.name = "silent"}) {}
  Result<std::unique_ptr<tutti::net::PendingConnection>> connect(const Contact&,
                                                                 const tutti::net::Caller&,
                                                                 milliseconds) override {
    class Pending final : public tutti::net::PendingConnection {
      Result<std::unique_ptr<tutti::net::Connection>> poll() override {
        return std::unique_ptr<tutti::net::Connection>();
      }
    };
    isAsked_.store(true);
    return std::unique_ptr<tutti::net::PendingConnection>(std::make_unique<Pending>());
  }
  const std::atomic<bool>& isAsked() const { return isAsked_; }

 private:
  std::atomic<bool> isAsked_{false};
};

// A carrier with much patience, and senders that stop while their links are being made.
class RelayedLinksOfStoppedSenders : public RelayedLinks {
 protected:
  static constexpr seconds kPatience{60};
  static constexpr seconds kSoon{20};

  UniqueFd channelTo(const Process& carrier) {
    return bootstrap::Handoff::take(textOf(carrier.info().handoffName), carrier.info().relayToken,
                                    seconds(5))
        .value();
  }
  // As a sender that hands its ring over at this name, which may be nobody's.
  void ask(int channel, const std::string& handoffName, const bootstrap::HandoffToken& token = {}) {
    RelayRequest request{.sender = 0,
                         .receiver = 2,
                         .slotCount = kGeometry.slotCount,
                         .slotBytes = kGeometry.slotBytes,
                         .offer = listening_.offer};
    request.segmentToken = token;
    setText(request.senderHandoff, handoffName);
    ASSERT_EQ(::send(channel, &request, sizeof request, MSG_NOSIGNAL),
              static_cast<ssize_t>(sizeof request));
  }
  template <typename Call>
  void expectSoon(Call call) {
    const Instant start = steadyClock().now();
    call();
    EXPECT_LT(steadyClock().now() - start, kSoon);
  }

  Process patient_{1, kPatience};
};

TEST_F(RelayedLinksOfStoppedSenders, KeepNoEndWaitingForTheirRequest) {
  const UniqueFd channel = channelTo(patient_);
  expectSoon([&] { patient_.transport().awaitOwners(kPatience); });
  pollfd closed{channel.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&closed, 1, 5000), 1);
  EXPECT_TRUE(hasGone(channel.get()));
}

TEST_F(RelayedLinksOfStoppedSenders, KeepNoEndWaitingForTheirRing) {
  const SilentHandoff stopped;
  const UniqueFd channel = channelTo(patient_);
  ask(channel.get(), stopped.name());
  stopped.awaitCaller();
  expectSoon([&] { patient_.transport().awaitOwners(kPatience); });
  RelayAnswer answer;
  ASSERT_TRUE(receiveRecord(channel.get(), answer, {steadyClock(), seconds(5)}).ok());
  EXPECT_EQ(answer.outcome, RelayAnswer::Outcome::kRefused);
  EXPECT_EQ(readAnswer(answer).value(), "its process ends");
}

TEST_F(RelayedLinksOfStoppedSenders, KeepNoOtherLinkWaiting) {
  const SilentHandoff stopped;
  const UniqueFd silent = channelTo(patient_), asking = channelTo(patient_);
  ask(asking.get(), stopped.name());
  stopped.awaitCaller();
  expectSoon([&] {
    const auto out = awaitEnd(sender_.transport().connectOver(
                                  {.carrier = patient_.info(), .isForced = true}, sender_.info(),
                                  receiver_.info(), kGeometry, listening_.offer))
                         .value();
    EXPECT_EQ(out->carrier(), 1);
  });
}

TEST_F(RelayedLinksOfStoppedSenders, AreNotTakenOnByAProcessThatEnds) {
  patient_.transport().awaitOwners(seconds(0));
  EXPECT_FALSE(bootstrap::Handoff::take(textOf(patient_.info().handoffName),
                                        patient_.info().relayToken, seconds(5))
                   .ok());
  const auto out = awaitEnd(sender_.transport().connectOver(
                                {.carrier = patient_.info(), .isForced = true}, sender_.info(),
                                receiver_.info(), kGeometry, listening_.offer))
                       .value();
  EXPECT_EQ(out->carrier(), -1);
}

// Whose receiver is stopped, too.
TEST_F(RelayedLinksOfStoppedSenders, KeepNoCarrierThatGoesAwayWaiting) {
  auto network = std::make_unique<SilentNetwork>();
  const std::atomic<bool>& isAsked = network->isAsked();
  Process carrier(1, kPatience, std::move(network));
  bootstrap::Handoff handoff;
  const Segment segment =
      createSegment(relaySegmentBytes(kGeometry), {"tutti-test", "a test", "none"}).value();
  const UniqueFd channel = channelTo(carrier);
  ask(channel.get(), handoff.name(), handoff.offer(segment.fd.get(), 1).value());
  while (!isAsked.load()) bootstrap::pauseFor(milliseconds(1));
  expectSoon([&] { carrier.end(); });
  RelayAnswer answer;
  ASSERT_TRUE(receiveRecord(channel.get(), answer, {steadyClock(), seconds(5)}).ok());
  EXPECT_EQ(answer.outcome, RelayAnswer::Outcome::kUnreachable);
}

}  // namespace
}  // namespace tutti::transport::net
