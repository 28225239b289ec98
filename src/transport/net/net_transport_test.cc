// Links over real sockets, on the loopback interface.
#include "transport/net/net_transport.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "bootstrap/poller.h"
#include "bootstrap/socket.h"
#include "net/registry.h"
#include "transport/connect_testing.h"
#include "transport/net/exchange_testing.h"

namespace tutti::transport::net {
namespace {

using bootstrap::PeerInfo;
using std::chrono::milliseconds;

constexpr wire::LinkGeometry kGeometry{.slotCount = 2, .slotBytes = 4096};

NetTransport openTransport(milliseconds timeout) {
  return NetTransport({.provider = tutti::net::openNetwork(
                           {.interfaces = "lo", .family = AF_INET, .timeout = milliseconds(2000)}),
                       .timeout = timeout});
}

PeerInfo rank(int32_t number) {
  PeerInfo info;
  info.rank = number;
  info.hostHash = static_cast<uint64_t>(number);
  return info;
}

class NetLinks : public testing::Test {
 protected:
  Listening listen() { return there_.listen(rank(0), rank(1), kGeometry).value(); }
  Result<std::unique_ptr<LinkEnd>> connect(const Offer& offer) {
    return awaitEnd(here_.connect(rank(0), rank(1), kGeometry, offer));
  }
  // Runs the motor until the other side's fault word is set, for 10 s at most.
  static wire::LinkFault awaitFault(LinkEnd& end, std::atomic<uint32_t>& word) {
    for (int i = 0; i < 1000 && word.load() == 0; ++i) {
      for (int j = 0; j < 100; ++j) end.motor()->run();
      bootstrap::pauseFor(milliseconds(10));
    }
    return static_cast<wire::LinkFault>(word.load());
  }

  NetTransport here_ = openTransport(milliseconds(2000));
  NetTransport there_ = openTransport(milliseconds(2000));
};

TEST_F(NetLinks, CarryMessagesBothWays) {
  Listening forth = listen();
  Listening back = here_.listen(rank(1), rank(0), kGeometry).value();
  auto forthOut = connect(forth.offer).value();
  auto backOut = awaitEnd(there_.connect(rank(1), rank(0), kGeometry, back.offer)).value();
  Status partner = Status(Code::kInternalError, "never ran");
  std::thread thread([&] {
    partner = exchange(*backOut, *forth.end, {.first = false, .rounds = 200, .burst = 3});
  });
  const Status status = exchange(*forthOut, *back.end, {.first = true, .rounds = 200, .burst = 3});
  thread.join();
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(partner.ok()) << partner.message();
}

TEST_F(NetLinks, TakeMessagesBeforeTheReceiverHasHeardOfTheConnection) {
  Listening listening = listen();
  auto out = connect(listening.offer).value();
  wire::LinkPort port{.view = out->view()};
  std::memcpy(port.view.payload(0, 5), "hello", 5);
  wire::publish(port, 5, 42);
  out->motor()->settle();
  wire::LinkPort in{.view = listening.end->view()};
  for (int i = 0; i < 1000 && !wire::hasMessage(in); ++i) {
    listening.end->motor()->run();
    bootstrap::pauseFor(milliseconds(1));
  }
  ASSERT_TRUE(wire::hasMessage(in));
  EXPECT_EQ(in.view.message(0).signature, 42u);
  EXPECT_EQ(std::memcmp(in.view.payload(0, 5), "hello", 5), 0);
}

TEST_F(NetLinks, CarryFromTheSendersMemoryIntoTheReceivers) {
  constexpr uint32_t kBytes = 64_KiB;
  const wire::LinkGeometry geometry{.slotCount = 8, .slotBytes = kBytes};
  Listening listening = there_.listen(rank(0), rank(1), geometry).value();
  auto out = awaitEnd(here_.connect(rank(0), rank(1), geometry, listening.offer)).value();
  ASSERT_EQ(out->carrierReach(), wire::CarrierReach::kAnything);
  wire::LinkPort sender{.view = out->view()};
  wire::LinkPort receiver{.view = listening.end->view()};
  receiver.landing = listening.end->landing();
  ASSERT_NE(receiver.landing, nullptr);
  std::vector<std::byte> source(kBytes);
  std::vector<std::byte> target(kBytes);
  int landed = 0;
  for (uint32_t round = 0; round < 40; ++round) {
    for (uint32_t i = 0; i < kBytes; ++i) source[i] = static_cast<std::byte>(i * 7 + round);
    wire::publishReference(sender, source.data(), kBytes, round);
    wire::offerLanding(receiver, target.data(), kBytes, round);
    for (int i = 0; i < 5000 && !(wire::hasMessage(receiver) && wire::isDrained(sender)); ++i) {
      const bool sent = out->motor()->run();
      if (!listening.end->motor()->run() && !sent) bootstrap::pauseFor(milliseconds(1));
    }
    ASSERT_TRUE(wire::hasMessage(receiver) && wire::isDrained(sender)) << round;
    const wire::MessageHead& message = receiver.view.message(round);
    const bool hasLanded = message.kind == wire::MessageKind::kLanded;
    landed += hasLanded ? 1 : 0;
    const std::byte* payload = hasLanded ? target.data() : receiver.view.payload(round, kBytes);
    ASSERT_EQ(std::memcmp(payload, source.data(), kBytes), 0) << round;
    wire::release(receiver);
  }
  EXPECT_EQ(landed, 40);
}

TEST_F(NetLinks, SayWhyTheOtherSideLeft) {
  Listening listening = listen();
  auto out = connect(listening.offer).value();
  out->view().control->senderFault.store(static_cast<uint32_t>(wire::LinkFault::kAborted));
  out->motor()->leave({.guilty = 7, .text = "rank 7 died"});
  EXPECT_EQ(awaitFault(*listening.end, listening.end->view().control->senderFault),
            wire::LinkFault::kAborted);
  EXPECT_EQ(listening.end->motor()->parting().text, "rank 7 died");
  EXPECT_EQ(listening.end->motor()->parting().guilty, 7);
}

TEST_F(NetLinks, NameTheAddressWhenTheOtherSideVanishes) {
  Listening listening = listen();
  auto out = connect(listening.offer).value();
  out.reset();  // without a fault word: as a process that dies
  EXPECT_EQ(awaitFault(*listening.end, listening.end->view().control->senderFault),
            wire::LinkFault::kLost);
  const std::string text = listening.end->motor()->parting().text;
  EXPECT_NE(text.find("rank 0 at 127.0.0.1:"), std::string::npos) << text;
}

TEST_F(NetLinks, AnOfferIsGoodForOneConnection) {
  Listening listening = listen();
  const auto first = connect(listening.offer).value();
  auto second = connect(listening.offer);
  if (!second.ok()) return;
  EXPECT_EQ(awaitFault(**second, (*second)->view().control->receiverFault), wire::LinkFault::kLost);
  EXPECT_EQ(listening.end->view().control->senderFault.load(), 0u);
}

TEST_F(NetLinks, AWithdrawnOfferLeadsNowhere) {
  Listening listening = listen();
  listening.end.reset();
  auto out = connect(listening.offer);
  if (!out.ok()) return;
  EXPECT_EQ(awaitFault(**out, (*out)->view().control->receiverFault), wire::LinkFault::kLost);
}

TEST_F(NetLinks, RefuseAWrongSecretInTime) {
  NetTransport hasty = openTransport(milliseconds(300));
  Listening listening = listen();
  Offer offer = listening.offer;
  offer[50] ^= std::byte{1};
  const auto out = awaitEnd(hasty.connect(rank(0), rank(1), kGeometry, offer));
  ASSERT_FALSE(out.ok());
  const std::string text(out.status().message());
  EXPECT_EQ(out.status().code(), Code::kRemoteError);
  EXPECT_NE(text.find("rank 0 cannot connect to rank 1 at 127.0.0.1:"), std::string::npos) << text;
  EXPECT_TRUE(connect(listening.offer).ok());
}

// Of an offer of sockets: family, port, address.
constexpr size_t kAddressAt = 48;

// Where an offer's listener is.
bootstrap::SocketAddress addressIn(const Offer& offer) {
  bootstrap::EncodedAddress encoded{};
  std::memcpy(encoded.data(), offer.data() + kAddressAt, 4);
  std::memcpy(encoded.data() + 8, offer.data() + kAddressAt + 4, 16);
  auto address = bootstrap::decodeAddress(encoded);
  EXPECT_TRUE(address.ok()) << address.status().message();
  return address.ok() ? *address : bootstrap::SocketAddress();
}

// Nobody listens there, and nobody else's listener gets the port meanwhile.
UniqueFd keepPort(const bootstrap::SocketAddress& address) {
  UniqueFd socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::bind(socket.get(), address.data(), address.size()), 0) << std::strerror(errno);
  return socket;
}

TEST_F(NetLinks, RefuseAnAddressWhereNobodyListensInTime) {
  NetTransport hasty = openTransport(milliseconds(300));
  Offer offer;
  {
    NetTransport gone = openTransport(milliseconds(300));
    offer = gone.listen(rank(0), rank(1), kGeometry).value().offer;
  }
  const UniqueFd port = keepPort(addressIn(offer));
  const auto out = awaitEnd(hasty.connect(rank(0), rank(1), kGeometry, offer));
  ASSERT_FALSE(out.ok());
  const std::string text(out.status().message());
  EXPECT_NE(text.find("interface lo (127.0.0.1) cannot reach it: Connection refused"),
            std::string::npos)
      << text;
}

TEST_F(NetLinks, RefuseGarbledOffers) {
  Listening listening = listen();
  for (const size_t byte : {0u, 12u}) {  // kind, zero
    Offer offer = listening.offer;
    offer[byte] ^= std::byte{1};
    EXPECT_EQ(connect(offer).takeStatus().code(), Code::kRemoteError) << byte;
  }
  Offer noAddress = listening.offer;
  std::memset(noAddress.data() + kAddressAt, 0, 20);
  EXPECT_EQ(connect(noAddress).takeStatus().code(), Code::kRemoteError);
  const wire::LinkGeometry larger{.slotCount = 4, .slotBytes = 4096};
  EXPECT_EQ(awaitEnd(here_.connect(rank(0), rank(1), larger, listening.offer)).takeStatus().code(),
            Code::kRemoteError);
  const wire::LinkGeometry impossible{.slotCount = 3, .slotBytes = 128};
  EXPECT_EQ(there_.listen(rank(0), rank(1), impossible).takeStatus().code(), Code::kInternalError);
}

TEST_F(NetLinks, AreMadeWhileStrangersCrowdTheListener) {
  Listening listening = listen();
  const bootstrap::SocketAddress address = addressIn(listening.offer);
  std::vector<UniqueFd> strangers;
  const std::string_view request = "GET / HTTP/1.1\r\n\r\n";
  for (int i = 0; i < 100; ++i) {
    strangers.push_back(std::move(bootstrap::startConnect(address).fd));
    ASSERT_GE(strangers.back().get(), 0) << address.text();
    // Every other one is silent.
    if (i % 2 == 0) bootstrap::writeSome(strangers.back().get(), std::as_bytes(std::span(request)));
  }
  Listening back = here_.listen(rank(1), rank(0), kGeometry).value();
  auto out = connect(listening.offer);
  ASSERT_TRUE(out.ok()) << out.status().message();
  auto backOut = awaitEnd(there_.connect(rank(1), rank(0), kGeometry, back.offer)).value();
  bool isPartnerOk = false;
  std::thread thread([&] {
    isPartnerOk =
        exchange(*backOut, *listening.end, {.first = false, .rounds = 10, .burst = 3}).ok();
  });
  EXPECT_TRUE(exchange(**out, *back.end, {.first = true, .rounds = 10, .burst = 3}).ok());
  thread.join();
  EXPECT_TRUE(isPartnerOk);
}

TEST_F(NetLinks, WhatWasSentArrivesAlthoughTheSenderLeaves) {
  constexpr wire::LinkGeometry kLarge{.slotCount = 4, .slotBytes = 1u << 20};
  Listening listening = there_.listen(rank(0), rank(1), kLarge).value();
  auto out = awaitEnd(here_.connect(rank(0), rank(1), kLarge, listening.offer)).value();
  wire::LinkPort port{.view = out->view()};
  for (int i = 0; i < 4; ++i) {
    std::memset(port.view.payload(port.next, kLarge.slotBytes), i + 1, kLarge.slotBytes);
    wire::publish(port, kLarge.slotBytes, 0);
  }
  std::thread leaving([&] {
    out->view().control->senderFault.store(static_cast<uint32_t>(wire::LinkFault::kDestroyed));
    out->motor()->leave({});
    out.reset();
  });
  wire::LinkPort in{.view = listening.end->view()};
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 5000 && !wire::hasMessage(in); ++j) {
      listening.end->motor()->run();
      bootstrap::pauseFor(milliseconds(1));
    }
    ASSERT_TRUE(wire::hasMessage(in)) << i;
    EXPECT_EQ(in.view.payload(in.next, kLarge.slotBytes)[kLarge.slotBytes - 1],
              std::byte{static_cast<unsigned char>(i + 1)});
    wire::release(in);
  }
  leaving.join();
  EXPECT_EQ(awaitFault(*listening.end, listening.end->view().control->senderFault),
            wire::LinkFault::kDestroyed);
}

}  // namespace
}  // namespace tutti::transport::net
