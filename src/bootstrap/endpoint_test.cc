#include "bootstrap/endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <thread>

#include "base/descriptor_limit.h"
#include "base/patience_testing.h"
#include "bootstrap/bytes.h"
#include "bootstrap/test_client.h"

namespace tutti::bootstrap {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr uint64_t kEpoch = 99;

// Rank 0 lives here; rank 1 is played by hand.
class EndpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    key.bytes()[0] = 7;
    endpoint = std::make_unique<Endpoint>(Endpoint::Options{.key = key,
                                                            .job = "test",
                                                            .processHash = 1,
                                                            .rootAddress = {},
                                                            .interfaces = "lo",
                                                            .family = AF_INET,
                                                            .timeout = std::chrono::seconds(60)});
    const auto listening = endpoint->listen();
    ASSERT_TRUE(listening.ok());
    address = listening.value();
    ASSERT_TRUE(endpoint->attach(Rank{0}));
    endpoint->learn(Rank{1}, {.processHash = 2, .who = "other:5"});
  }
  void TearDown() override { endpoint->detach(Rank{0}, true); }

  struct Peer {
    Peer(const SocketAddress& to, const Key& key, const Introduction& who, Rng& rng)
        : handshake(key, who, rng), client(to) {
      if (client.greet(handshake) != Refusal::kNone) return;
      client.send(handshake.confirm());
      encoder.emplace(handshake.keys().clientToServer);
    }
    std::vector<std::byte> frame(const std::string& text, FrameType type = FrameType::kMessage) {
      std::vector<std::byte> wire;
      std::array<std::byte, 8> tag{std::byte{5}};
      encoder->append(type, tag, std::as_bytes(std::span(text)), wire);
      return wire;
    }
    ClientHandshake handshake;
    TestClient client;
    std::optional<FrameEncoder> encoder;
  };
  Peer peer(uint64_t epoch = kEpoch, Rank rank = Rank{1}, Rank target = Rank{0}) {
    return Peer(address, key, {Purpose::kPeer, rank, target, epoch}, rng);
  }

  Status receive() {
    return endpoint->receive(slot, {std::chrono::seconds(60), nullptr, "the test"}, message);
  }
  std::string text() const {
    return {reinterpret_cast<const char*>(message.data()), message.size()};
  }

  SeededRng rng{8};
  Key key;
  std::unique_ptr<Endpoint> endpoint;
  SocketAddress address;
  Endpoint::Slot slot{Rank{0}, Rank{1}, FrameType::kMessage, 5};
  std::vector<std::byte> message;
};

TEST_F(EndpointTest, TakesMessagesByteByByte) {
  endpoint->setEpoch(kEpoch);
  Peer other = peer();
  other.client.sendByteWise(other.frame("slowly"));
  ASSERT_TRUE(receive().ok());
  EXPECT_EQ(text(), "slowly");
}

// What waits for rank 1 ends no sooner than rank 1's own wait, which began at the same time.
TEST_F(EndpointTest, HearsWhomALivingPeerMissedItself) {
  withPatience(milliseconds(2'000), [&](milliseconds timeout) {
    SetUp();
    endpoint->setEpoch(kEpoch);
    Peer other = peer();
    std::thread playing([&] {
      pauseFor(timeout * 3 / 4);
      other.client.send(other.frame("", FrameType::kSign));
      pauseFor(timeout / 4 + milliseconds(200));
      ByteWriter cause;
      cause.putText("rank 2 is missing", 100);
      const std::string text(reinterpret_cast<const char*>(cause.bytes().data()),
                             cause.bytes().size());
      other.client.send(other.frame(text, FrameType::kFarewell));
    });
    const Status status = endpoint->receive(slot, {timeout, nullptr, "the test"}, message);
    playing.join();
    EXPECT_EQ(status.code(), Code::kRemoteError);
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 2 is missing, so rank 1"));
  });
}

TEST_F(EndpointTest, WaitsNoLongerForAPeerThatGivesNoSign) {
  withPatience(milliseconds(800), [&](milliseconds timeout) {
    SetUp();
    endpoint->setEpoch(kEpoch);
    Peer other = peer();
    other.client.send(other.frame("", FrameType::kSign));  // too early to say that it lives
    const Instant began = steadyClock().now();
    const Status status = endpoint->receive(slot, {timeout, nullptr, "the test"}, message);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(fmt::format("sent nothing to rank 0 within {} ms", timeout.count())));
    // For the word of one that lives it would be half of the time-out more, or a second.
    const auto more = std::min(timeout / 2, milliseconds(1'000));
    EXPECT_LT(steadyClock().now() - began, Nanoseconds(timeout + more * 3 / 4));
  });
}

TEST_F(EndpointTest, KeepsEarlyConnectionsUntilTheRootHasAnswered) {
  Peer other = peer();
  other.client.send(other.frame("early"));
  const Result<Progress> before = endpoint->tryReceive(slot, message);
  ASSERT_TRUE(before.ok());
  EXPECT_EQ(before.value(), Progress::kIdle);
  endpoint->setEpoch(kEpoch);
  ASSERT_TRUE(receive().ok());
  EXPECT_EQ(text(), "early");
}

TEST_F(EndpointTest, DoesNotHearAnotherSession) {
  Peer early = peer(kEpoch + 1);
  endpoint->setEpoch(kEpoch);
  Peer late = peer(kEpoch + 1);
  EXPECT_TRUE(early.client.isClosedSilently());
  EXPECT_TRUE(late.client.isClosedSilently());
}

TEST_F(EndpointTest, LooksUpBothRanksBeforeItUsesThem) {
  endpoint->setEpoch(kEpoch);
  for (Rank bad : {Rank{-1}, Rank{1 << 30}}) {
    Peer strangeSender = peer(kEpoch, bad);
    EXPECT_TRUE(strangeSender.client.isClosedSilently());
    Peer strangeTarget = peer(kEpoch, Rank{1}, bad);
    EXPECT_TRUE(strangeTarget.client.isClosedSilently());
  }
  Peer notHere = peer(kEpoch, Rank{1}, Rank{1});
  EXPECT_TRUE(notHere.client.isClosedSilently());
}

TEST_F(EndpointTest, GivesWhatCameBeforeTheEndAndThenNamesWhoLeft) {
  endpoint->setEpoch(kEpoch);
  Peer other = peer();
  other.client.send(other.frame("last words"));
  other.client.close();
  ASSERT_TRUE(receive().ok());
  EXPECT_EQ(text(), "last words");
  const Status status = receive();
  EXPECT_EQ(status.code(), Code::kRemoteError);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("rank 1 (other:5) closed its connection; rank 0 still waited for it in the test"));
}

UniqueFd acceptOne(int listener) {
  pollfd entry{listener, POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, 60'000), 1);
  return UniqueFd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
}

// Reads until the client has shown a good hello, or has confirmed it, too.
void shakeHands(int fd, ServerHandshake& handshake, bool isWhole, Rng& rng) {
  std::array<std::byte, kHelloBytes> buffer;
  while (isWhole ? !handshake.isDone() : !handshake.isHelloGood()) {
    const auto wanted = std::span(buffer).first(handshake.wantedBytes());
    const IoResult read = readSome(fd, wanted);
    ASSERT_EQ(read.state, IoState::kMoved);
    ASSERT_EQ(handshake.feed(wanted.first(read.count), rng), Refusal::kNone);
    const auto reply = handshake.takeReply();
    if (!reply.empty()) writeSome(fd, reply);
  }
}

// Accepts one connection, goes through the handshake and hangs up.
void hangUpAfterHandshake(int listener, const Key& key, Rng& rng) {
  const UniqueFd fd = acceptOne(listener);
  ServerHandshake handshake(key, Purpose::kPeer);
  shakeHands(fd.get(), handshake, true, rng);
}

// A peer that gave up a connection while ours had no CPU to go on with it: reply and end are there
// at once.
TEST_F(EndpointTest, GoesOnOverAnotherConnectionWhereOneWasGivenUpBeforeItWasOpen) {
  auto listener = listenOn(SocketAddress::parse("127.0.0.1:0").value());
  ASSERT_TRUE(listener.ok());
  const int fd = listener.value().get();
  endpoint->setEpoch(kEpoch);
  endpoint->learn(Rank{1}, {.address = localAddress(fd), .processHash = 2, .who = "other:5"});
  ASSERT_TRUE(endpoint->send(slot, std::as_bytes(std::span("kept"))).ok());
  {
    const UniqueFd first = acceptOne(fd);
    const int cork = 1;  // the last bytes leave with the end
    ASSERT_EQ(::setsockopt(first.get(), IPPROTO_TCP, TCP_CORK, &cork, sizeof cork), 0);
    ServerHandshake handshake(key, Purpose::kPeer);
    shakeHands(first.get(), handshake, false, rng);
  }
  const UniqueFd second = acceptOne(fd);
  ServerHandshake handshake(key, Purpose::kPeer);
  shakeHands(second.get(), handshake, true, rng);
  FrameDecoder decoder(handshake.keys().clientToServer);
  std::vector<Frame> frames;
  while (frames.empty()) {
    std::array<std::byte, 256> buffer;
    const IoResult read = readSome(second.get(), buffer);
    ASSERT_EQ(read.state, IoState::kMoved);
    ASSERT_EQ(decoder.feed(std::span(buffer).first(read.count), frames), FrameFault::kNone);
  }
  const auto body = std::span(frames[0].payload).subspan(sizeof(uint64_t));
  EXPECT_STREQ(reinterpret_cast<const char*>(body.data()), "kept");
}

TEST_F(EndpointTest, TheEndOfOneDirectionDoesNotCutOffTheOther) {
  auto listener = listenOn(SocketAddress::parse("127.0.0.1:0").value());
  ASSERT_TRUE(listener.ok());
  endpoint->setEpoch(kEpoch);
  endpoint->learn(
      Rank{1},
      {.address = localAddress(listener.value().get()), .processHash = 2, .who = "other:5"});
  Peer other = peer();
  other.client.send(other.frame("first"));
  ASSERT_TRUE(receive().ok());
  ASSERT_TRUE(endpoint->send(slot, {}).ok());
  hangUpAfterHandshake(listener.value().get(), key, rng);
  while (endpoint->send(slot, {}).ok()) pauseFor(milliseconds(1));
  const Result<Progress> nothing = endpoint->tryReceive(slot, message);
  EXPECT_TRUE(nothing.ok()) << nothing.status().message();
  other.client.send(other.frame("still on its way"));
  ASSERT_TRUE(receive().ok());
  EXPECT_EQ(text(), "still on its way");
}

TEST_F(EndpointTest, AFrameCutAtAnyByteIsAnErrorAndNoMessage) {
  endpoint->setEpoch(kEpoch);
  Peer other = peer();
  const std::vector<std::byte> wire = other.frame("cut");
  other.client.send(std::span(wire).first(wire.size() - 1));
  other.client.close();
  const Status status = receive();
  EXPECT_THAT(std::string(status.message()), HasSubstr("in the middle of a message"));
}

TEST_F(EndpointTest, AChangedFrameEndsTheConnectionAndIsNamed) {
  endpoint->setEpoch(kEpoch);
  Peer other = peer();
  std::vector<std::byte> wire = other.frame("changed");
  wire[20] ^= std::byte{1};
  other.client.send(wire);
  const Status status = receive();
  EXPECT_EQ(status.code(), Code::kRemoteError);
  EXPECT_THAT(std::string(status.message()), HasSubstr("sent a frame changed on its way"));
  EXPECT_TRUE(other.client.isClosedSilently());
}

TEST_F(EndpointTest, ARepeatedFrameIsNotHeardTwice) {
  endpoint->setEpoch(kEpoch);
  Peer other = peer();
  const std::vector<std::byte> wire = other.frame("once");
  other.client.send(wire);
  other.client.send(wire);
  ASSERT_TRUE(receive().ok());
  EXPECT_THAT(std::string(receive().message()), HasSubstr("a repeated or missing frame"));
}

TEST_F(EndpointTest, FramesOfTheRootAreRefusedFromAPeer) {
  endpoint->setEpoch(kEpoch);
  Peer other = peer();
  std::vector<std::byte> wire;
  other.encoder->append(FrameType::kAnswer, std::vector<std::byte>(100), {}, wire);
  other.client.send(wire);
  EXPECT_THAT(std::string(receive().message()), HasSubstr("no rank sends to another"));
}

TEST_F(EndpointTest, APeerThatLeavesBecauseOfAnotherNamesTheOther) {
  endpoint->setEpoch(kEpoch);
  Peer other = peer();
  std::vector<std::byte> wire;
  const std::string cause = "rank 7 (far:3) closed its connection";
  other.encoder->append(FrameType::kFarewell, std::array<std::byte, 8>{},
                        std::as_bytes(std::span(cause)), wire);
  other.client.send(wire);
  EXPECT_THAT(std::string(receive().message()),
              HasSubstr("rank 7 (far:3) closed its connection, so rank 1 (other:5) left"));
}

TEST_F(EndpointTest, AFarewellOfNothingIsHarmless) {
  endpoint->setEpoch(kEpoch);
  Peer other = peer();
  std::vector<std::byte> wire;
  other.encoder->append(FrameType::kFarewell, std::array<std::byte, 1>{}, {}, wire);
  other.client.send(wire);
  other.client.send(other.frame("still here"));
  ASSERT_TRUE(receive().ok());
  EXPECT_EQ(text(), "still here");
}

TEST_F(EndpointTest, AProbeHearsOfThePeerAsSoonAsItSaysAnything) {
  endpoint->setEpoch(kEpoch);
  const UniqueFd silent = listenOn(SocketAddress::parse("127.0.0.1:0").value()).value();
  endpoint->learn(Rank{1},
                  {.address = localAddress(silent.get()), .processHash = 2, .who = "other:5"});
  auto before = endpoint->probe(Rank{0}, Rank{1});
  ASSERT_TRUE(before.ok());
  EXPECT_FALSE(before.value().has_value());
  Peer other = peer();
  std::vector<std::byte> wire;
  other.encoder->append(FrameType::kSign, std::array<std::byte, 8>{}, {}, wire);
  other.client.send(wire);
  other.client.send(other.frame("and more"));
  ASSERT_TRUE(receive().ok());
  EXPECT_TRUE(endpoint->probe(Rank{0}, Rank{1}).value().has_value());
}

TEST_F(EndpointTest, SignsBringWhatARankSaysAlsoOnceItHasLeft) {
  endpoint->setEpoch(kEpoch);
  const UniqueFd silent = listenOn(SocketAddress::parse("127.0.0.1:0").value()).value();
  endpoint->learn(Rank{1},
                  {.address = localAddress(silent.get()), .processHash = 2, .who = "other:5"});
  {
    Peer other = peer();
    std::vector<std::byte> wire;
    const std::array<std::byte, 3> words{std::byte{1}, std::byte{2}, std::byte{3}};
    std::array<std::byte, 8> never{};
    never.fill(std::byte{0xff});
    other.encoder->append(FrameType::kSign, never, words, wire);
    other.client.send(wire);
    other.client.send(other.frame("", FrameType::kSign));  // says nothing, and takes nothing back
    other.client.send(other.frame("and more"));
    ASSERT_TRUE(receive().ok());
  }
  EXPECT_FALSE(receive().ok());
  const auto sign = endpoint->lastSign(Rank{0}, Rank{1});
  ASSERT_TRUE(sign);
  EXPECT_FALSE(sign->askedAt) << "nobody has asked";
  EXPECT_EQ(sign->words.size(), 3u);
  EXPECT_EQ(sign->words.back(), std::byte{3});
}

TEST_F(EndpointTest, ARankOfThisProcessIsAlive) {
  ASSERT_TRUE(endpoint->attach(Rank{2}));
  EXPECT_TRUE(endpoint->probe(Rank{0}, Rank{2}).value().has_value());
  endpoint->detach(Rank{2}, true);
}

TEST_F(EndpointTest, AThousandSlowConnectionsDoNotKeepAPeerOut) {
  if (descriptorLimit() < 2500) GTEST_SKIP() << "needs 2500 descriptors";
  endpoint->setEpoch(kEpoch);
  std::vector<std::unique_ptr<TestClient>> slow;
  for (int i = 0; i < 1000; ++i) slow.push_back(std::make_unique<TestClient>(address));
  Peer other = peer();
  other.client.send(other.frame("through"));
  ASSERT_TRUE(receive().ok());
  EXPECT_EQ(text(), "through");
}

TEST_F(EndpointTest, APeerThatCannotBeReachedIsNamed) {
  auto closed = listenOn(SocketAddress::parse("127.0.0.1:0").value());
  ASSERT_TRUE(closed.ok());
  const SocketAddress nobody = localAddress(closed.value().get());
  closed.value().reset();
  endpoint->setEpoch(kEpoch);
  endpoint->learn(Rank{1}, {.address = nobody, .processHash = 2, .who = "other:5"});
  ASSERT_TRUE(endpoint->send(slot, {}).ok());
  const Status status = receive();
  EXPECT_EQ(status.code(), Code::kRemoteError);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("rank 1 (other:5) could not be reached at " + nobody.text()));
  EXPECT_EQ(endpoint->send(slot, {}).code(), Code::kRemoteError);
}

}  // namespace
}  // namespace tutti::bootstrap
