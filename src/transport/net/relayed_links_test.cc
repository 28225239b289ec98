// Links that another process of the sender's host carries: three processes' parts in one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <functional>
#include <thread>

#include "base/char_field.h"
#include "base/segment.h"
#include "bootstrap/poller.h"
#include "observe/trace.h"
#include "transport/net/exchange_testing.h"
#include "transport/net/relay_wire.h"
#include "transport/net/relayed_links_testing.h"

namespace tutti::transport::net {
namespace {

wire::LinkFault awaitFault(LinkEnd& end, std::atomic<uint32_t>& word) {
  for (int i = 0; i < 5000 && word.load() == 0; ++i) {
    end.motor()->run();
    bootstrap::pauseFor(milliseconds(1));
  }
  return static_cast<wire::LinkFault>(word.load());
}

bool awaitMessage(LinkEnd& end, const wire::LinkPort& port) {
  for (int i = 0; i < 5000 && !wire::hasMessage(port); ++i) {
    end.motor()->run();
    bootstrap::pauseFor(milliseconds(1));
  }
  return wire::hasMessage(port);
}

void publishHello(LinkEnd& end) {
  wire::LinkPort port{.view = end.view()};
  std::memcpy(port.view.payload(0, 5), "hello", 5);
  wire::publish(port, 5, 42);
}

LinkOptions ofTwoHosts() {
  LinkOptions options(kGeometry);
  options.hostCount = 2;
  return options;
}

// By which its pump judges how slow its way is.
int32_t knownHosts(LinkEnd& end) {
  const auto* pump = dynamic_cast<const Pump*>(end.motor());
  return pump == nullptr ? -1 : pump->hostCount();
}

TEST_F(RelayedLinks, CarryMessages) {
  Listening back = listen(sender_, receiver_);
  const auto out = connect(sender_, receiver_, listening_.offer).value();
  EXPECT_EQ(out->carrier(), 1);
  EXPECT_EQ(out->carrierReach(), wire::CarrierReach::kLinkOnly);
  const auto backOut = awaitEnd(receiver_.transport().connect(receiver_.info(), sender_.info(),
                                                              kGeometry, back.offer))
                           .value();
  EXPECT_EQ(backOut->carrier(), -1);
  Status partner = Status(Code::kInternalError, "never ran");
  std::thread thread([&] {
    partner = exchange(*backOut, *listening_.end, {.first = false, .rounds = 300, .burst = 5});
  });
  const Status status = exchange(*out, *back.end, {.first = true, .rounds = 300, .burst = 5});
  thread.join();
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(partner.ok()) << partner.message();
  EXPECT_EQ(listening_.end->motor()->carried().messages, 1500u);
  for (int i = 0; i < 1000 && out->motor()->carried().messages < 1500; ++i)
    bootstrap::pauseFor(milliseconds(1));
  EXPECT_EQ(out->motor()->carried().messages, 1500u);
}

// More messages than the ring has slots, each with when the other process gave it to the network.
TEST_F(RelayedLinks, TellTheSendersProfilerOfEachMessage) {
  auto sink = std::make_unique<observe::Trace>(64);
  const observe::Trace& trace = *sink;
  std::vector<std::unique_ptr<observe::ProfilerSink>> sinks;
  sinks.push_back(std::move(sink));
  observe::Profiler profiler(std::move(sinks));
  const auto out = connect(sender_, receiver_, listening_.offer).value();
  Motor& motor = *out->motor();
  motor.profile(profiler);
  constexpr uint64_t kCount = 10;
  motor.beginTransfer({}, {.peer = 2, .isSend = true, .messageCount = kCount});
  wire::LinkPort port{.view = out->view()}, in{.view = listening_.end->view()};
  const Instant began = steadyClock().now();
  for (uint64_t number = 0; number < kCount; ++number) {
    while (!wire::hasFreeSlot(port, 0)) bootstrap::pauseFor(milliseconds(1));
    wire::publish(port, static_cast<uint32_t>(100 + number), 42);
    motor.run();
    ASSERT_TRUE(awaitMessage(*listening_.end, in));
    wire::release(in);
    wire::releaseAll(in);
  }
  const auto messages = [&] {
    std::vector<observe::TraceRecord> found;
    for (const observe::TraceRecord& record : trace.records()) {
      if (record.kind == observe::EventKind::kMessage) found.push_back(record);
    }
    return found;
  };
  motor.endTransfer(kCount);
  ASSERT_EQ(messages().size(), kCount);
  const Instant ended = steadyClock().now();
  Instant last = began;
  for (const observe::TraceRecord& message : messages()) {
    EXPECT_EQ(message.bytes, 100 + message.first);
    EXPECT_EQ(message.stage, observe::TraceStage::kEnded);
    EXPECT_TRUE(message.isSend);
    EXPECT_LE(last, message.moved);
    EXPECT_LE(message.began, message.moved);
    EXPECT_LE(message.moved, ended);
    last = message.moved;
  }
}

TEST_F(RelayedLinks, AreNotTimedWhereNobodyAsks) {
  const auto out = connect(sender_, receiver_, listening_.offer).value();
  publishHello(*out);
  ASSERT_TRUE(awaitMessage(*listening_.end, {.view = listening_.end->view()}));
  const size_t page = relayPageOffset(kGeometry);
  auto* segment = reinterpret_cast<std::byte*>(out->view().control);
  EXPECT_EQ(reinterpret_cast<RelayPage*>(segment + page)->takenCount.load(), 0u);
}

TEST_F(RelayedLinks, GoDirectlyWhereRoutesLeadThereAndNobodyInsists) {
  const auto out = connect(sender_, receiver_, listening_.offer, false).value();
  EXPECT_EQ(out->carrier(), -1);
}

TEST_F(RelayedLinks, GoDirectlyWhereTheCarrierHasGone) {
  carrier_.end();
  auto out = connect(sender_, receiver_, listening_.offer);
  ASSERT_TRUE(out.ok()) << out.status().message();
  EXPECT_EQ((*out)->carrier(), -1);
}

TEST_F(RelayedLinks, AreNotCarriedForWhoDoesNotKnowTheToken) {
  PeerInfo stranger = carrier_.info();
  stranger.relayToken[0] ^= std::byte{1};
  auto out = awaitEnd(sender_.transport().connectOver({.carrier = stranger, .isForced = true},
                                                      sender_.info(), receiver_.info(),
                                                      ofTwoHosts(), listening_.offer));
  ASSERT_TRUE(out.ok()) << out.status().message();
  EXPECT_EQ((*out)->carrier(), -1);
  EXPECT_EQ(knownHosts(**out), 2);
}

// Who knows the token may still ask for anything: numbers are looked at before they are used.
TEST_F(RelayedLinks, AreNotCarriedForRequestsOfNonsense) {
  const wire::LinkGeometry& geometry = kGeometry;
  bootstrap::Handoff handoff;
  const Segment segment =
      createSegment(relaySegmentBytes(geometry), {"tutti-test", "a test", "none"}).value();
  const auto answerTo = [&](const std::function<void(RelayRequest&)>& change) {
    RelayRequest request{.sender = 0,
                         .receiver = 2,
                         .slotCount = geometry.slotCount,
                         .slotBytes = geometry.slotBytes,
                         .offer = listening_.offer};
    request.segmentToken = handoff.offer(segment.fd.get(), 1).value();
    setText(request.senderHandoff, handoff.name());
    change(request);
    const UniqueFd channel = bootstrap::Handoff::take(textOf(carrier_.info().handoffName),
                                                      carrier_.info().relayToken, seconds(5))
                                 .value();
    EXPECT_EQ(::send(channel.get(), &request, sizeof request, MSG_NOSIGNAL),
              static_cast<ssize_t>(sizeof request));
    RelayAnswer answer;
    EXPECT_TRUE(receiveRecord(channel.get(), answer, {steadyClock(), seconds(5)}).ok());
    return answer;
  };
  const std::vector<std::pair<std::function<void(RelayRequest&)>, std::string>> cases = {
      {[](RelayRequest& request) { request.magic ^= 1; }, "no such link"},
      {[](RelayRequest& request) { request.slotCount = 0; }, "a link of 0 slots"},
      {[](RelayRequest& request) { request.slotCount = 3; }, "a link of 3 slots"},
      {[](RelayRequest& request) { request.slotCount = ~0u; }, "no such link"},
      {[](RelayRequest& request) { request.slotBytes = ~0u; }, "no such link"},
      {[](RelayRequest& request) { request.slotBytes = 65; }, "no such link"},
      // Within bounds, and another's: the ring that was offered is smaller than it says.
      {[](RelayRequest& request) { request.slotCount = 8; }, "rank 2 offers a link of 4 slots"},
      {[](RelayRequest& request) {
         request.slotCount = 8;
         const uint32_t slotCount = 8;
         std::memcpy(request.offer.data() + offsetof(NetOffer, slotCount), &slotCount,
                     sizeof slotCount);
       },
       "bytes"},
      {[](RelayRequest& request) { request.offer.fill(std::byte{0xff}); }, "garbled"},
      {[](RelayRequest& request) { request.senderHandoff.fill('x'); }, ""},
      {[](RelayRequest& request) { request.segmentToken[0] ^= std::byte{1}; }, ""}};
  for (size_t i = 0; i < cases.size(); ++i) {
    const RelayAnswer answer = answerTo(cases[i].first);
    EXPECT_EQ(answer.outcome, RelayAnswer::Outcome::kRefused) << i;
    EXPECT_THAT(readAnswer(answer).value(), testing::HasSubstr(cases[i].second)) << i;
  }
  const auto out = connect(sender_, receiver_, listening_.offer).value();
  EXPECT_EQ(out->carrier(), 1) << "for others it goes on";
}

TEST_F(RelayedLinks, GoDirectlyWhereTheAnswerIsNone) {
  RelayAnswer answer{.outcome = RelayAnswer::Outcome::kCarried, .bytes = 0, .why = {}};
  std::vector<UniqueFd> channels;
  bootstrap::Handoff handoff;
  handoff.addSource([&](const bootstrap::HandoffToken&) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
    channels.emplace_back(ends[0]);
    EXPECT_GT(::send(ends[0], &answer, sizeof answer, MSG_NOSIGNAL), 0);
    return UniqueFd(ends[1]);
  });
  PeerInfo liar = carrier_.info();
  setText(liar.handoffName, handoff.name());
  const auto ask = [&] {
    return awaitEnd(sender_.transport().connectOver({.carrier = liar, .isForced = true},
                                                    sender_.info(), receiver_.info(), ofTwoHosts(),
                                                    listening_.offer))
        .value();
  };
  EXPECT_EQ(ask()->carrier(), 1) << "as far as it can tell";
  RelayRequest asked;
  ASSERT_TRUE(tryReceiveRecord(channels.front().get(), asked).ok());
  EXPECT_EQ(asked.hostCount, 2);
  answer.outcome = RelayAnswer::Outcome{3};
  const auto out = ask();
  EXPECT_EQ(out->carrier(), -1) << "no such outcome";
  EXPECT_EQ(knownHosts(*out), 2);
  answer = {.outcome = RelayAnswer::Outcome::kUnreachable, .bytes = 1017, .why = {}};
  EXPECT_EQ(ask()->carrier(), -1) << "more words than there is room for";
}

TEST_F(RelayedLinks, NameWhomTheCarrierCannotReach) {
  listening_.end.reset();
  receiver_.end();
  auto out = connect(sender_, receiver_, listening_.offer);
  ASSERT_FALSE(out.ok());
  EXPECT_EQ(out.status().code(), Code::kRemoteError);
  EXPECT_THAT(std::string(out.status().message()),
              testing::ContainsRegex("rank 1, which is to carry what rank 0 sends to rank 2: rank "
                                     "0 cannot connect to rank 2 at 127.0.0.1:"));
}

TEST_F(RelayedLinks, BringTheSendersLastWords) {
  const auto out = connect(sender_, receiver_, listening_.offer).value();
  out->view().control->senderFault.store(static_cast<uint32_t>(wire::LinkFault::kAborted));
  out->motor()->leave({.guilty = 7, .text = "rank 7 died"});
  auto& fault = listening_.end->view().control->senderFault;
  EXPECT_EQ(awaitFault(*listening_.end, fault), wire::LinkFault::kAborted);
  EXPECT_EQ(listening_.end->motor()->parting().text, "rank 7 died");
  EXPECT_EQ(listening_.end->motor()->parting().guilty, 7);
}

TEST_F(RelayedLinks, BringTheReceiversLastWords) {
  const auto out = connect(sender_, receiver_, listening_.offer).value();
  publishHello(*out);  // who has heard nothing yet may leave without a connection to say so over
  ASSERT_TRUE(awaitMessage(*listening_.end, {.view = listening_.end->view()}));
  listening_.end->view().control->receiverFault.store(
      static_cast<uint32_t>(wire::LinkFault::kAborted));
  listening_.end->motor()->leave({.guilty = 8, .text = "rank 8 died"});
  listening_.end.reset();
  EXPECT_EQ(awaitFault(*out, out->view().control->receiverFault), wire::LinkFault::kAborted);
  EXPECT_EQ(out->motor()->parting().text, "rank 8 died");
  EXPECT_EQ(out->motor()->parting().guilty, 8);
}

TEST_F(RelayedLinks, NameASenderThatDies) {
  auto out = connect(sender_, receiver_, listening_.offer).value();
  out.reset();  // without a fault word: as a process that dies
  auto& fault = listening_.end->view().control->senderFault;
  EXPECT_EQ(awaitFault(*listening_.end, fault), wire::LinkFault::kLost);
  EXPECT_EQ(listening_.end->motor()->parting().guilty, 0);
  EXPECT_EQ(listening_.end->motor()->parting().text, "the process of rank 0 has gone");
}

TEST_F(RelayedLinks, NameACarrierThatLeaves) {
  const auto out = connect(sender_, receiver_, listening_.offer).value();
  carrier_.end();
  EXPECT_EQ(awaitFault(*out, out->view().control->receiverFault), wire::LinkFault::kAborted);
  EXPECT_EQ(out->motor()->parting().guilty, 1);
  EXPECT_THAT(out->motor()->parting().text,
              testing::HasSubstr("whose process carries what rank 0 sends to rank 2"));
  auto& fault = listening_.end->view().control->senderFault;
  EXPECT_EQ(awaitFault(*listening_.end, fault), wire::LinkFault::kLost);
  EXPECT_EQ(listening_.end->motor()->parting().guilty, -1) << "the link knows none";
}

TEST_F(RelayedLinks, AreCarriedOnAfterTheSenderHasLeft) {
  auto out = connect(sender_, receiver_, listening_.offer).value();
  wire::LinkPort port{.view = out->view()};
  for (int i = 0; i < 4; ++i) {
    std::memset(port.view.payload(port.next, kGeometry.slotBytes), i + 1, kGeometry.slotBytes);
    wire::publish(port, kGeometry.slotBytes, 0);
  }
  out->view().control->senderFault.store(static_cast<uint32_t>(wire::LinkFault::kDestroyed));
  out->motor()->leave({});
  out.reset();
  std::thread ending([&] { carrier_.transport().awaitOwners(std::chrono::seconds(5)); });
  wire::LinkPort in{.view = listening_.end->view()};
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(awaitMessage(*listening_.end, in)) << i;
    EXPECT_EQ(in.view.payload(in.next, kGeometry.slotBytes)[kGeometry.slotBytes - 1],
              std::byte{static_cast<unsigned char>(i + 1)});
    wire::release(in);
  }
  ending.join();
  auto& fault = listening_.end->view().control->senderFault;
  EXPECT_EQ(awaitFault(*listening_.end, fault), wire::LinkFault::kDestroyed);
}

// Two processes that both end, and carry for each other.
TEST_F(RelayedLinks, EndWithTheirOwnersProcess) {
  const auto out = connect(sender_, receiver_, listening_.offer).value();
  sender_.transport().awaitOwners(std::chrono::seconds(5));
  const Instant start = steadyClock().now();
  carrier_.transport().awaitOwners(std::chrono::seconds(5));
  EXPECT_LT(steadyClock().now() - start, std::chrono::seconds(4));  // of 5
}

// A message that names memory would have the carrier send its own.
TEST_F(RelayedLinks, TakeNoReferences) {
  const auto out = connect(sender_, receiver_, listening_.offer).value();
  wire::LinkPort port{.view = out->view()};
  wire::publishReference(port, &port, 64, 0);
  EXPECT_EQ(awaitFault(*out, out->view().control->receiverFault), wire::LinkFault::kLost);
  EXPECT_THAT(out->motor()->parting().text, testing::HasSubstr("is none for a network"));
  listening_.end->motor()->run();
  EXPECT_FALSE(wire::hasMessage(wire::LinkPort{.view = listening_.end->view()}));
}

TEST_F(RelayedLinks, AreManyForOneCarrier) {
  constexpr int kLinks = 80;  // more than words that a thread can sleep on
  std::vector<Listening> ends;
  std::vector<std::unique_ptr<LinkEnd>> outs;
  for (int i = 0; i < kLinks; ++i) {
    ends.push_back(listen(receiver_, sender_));
    outs.push_back(connect(sender_, receiver_, ends.back().offer).value());
  }
  bootstrap::pauseFor(milliseconds(20));  // all is asleep
  for (auto& out : outs) {
    publishHello(*out);
  }
  for (const Listening& each : ends) {
    ASSERT_TRUE(awaitMessage(*each.end, {.view = each.end->view()}));
  }
}

}  // namespace
}  // namespace tutti::transport::net
