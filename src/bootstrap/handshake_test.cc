#include "bootstrap/handshake.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "bootstrap/bytes.h"

namespace tutti::bootstrap {
namespace {

constexpr size_t kVersionAt = 8;

Key keyOf(unsigned char fill) {
  Key key;
  std::fill(key.bytes().begin(), key.bytes().end(), fill);
  return key;
}

bool equalKeys(const Key& a, const Key& b) {
  return std::equal(a.bytes().begin(), a.bytes().end(), b.bytes().begin());
}

const Introduction kIntroduction{Purpose::kPeer, Rank{3}, Rank{5}, 77};

class HandshakeTest : public ::testing::Test {
 protected:
  // Feeds `bytes` in pieces; the first refusal, if any.
  Refusal feedServer(std::span<const std::byte> bytes, size_t piece) {
    while (!bytes.empty()) {
      const size_t count = std::min(piece, bytes.size());
      const Refusal refusal = server.feed(bytes.first(count), rng);
      if (refusal != Refusal::kNone) return refusal;
      bytes = bytes.subspan(count);
    }
    return Refusal::kNone;
  }

  SeededRng rng{1};
  Key key = keyOf(7);
  ClientHandshake client{key, kIntroduction, rng};
  ServerHandshake server{key, Purpose::kPeer};
};

TEST_F(HandshakeTest, AdmitsAClientWithTheSecretAndTellsWhoItIs) {
  ASSERT_EQ(feedServer(client.hello(), kHelloBytes), Refusal::kNone);
  ASSERT_EQ(client.feed(server.takeReply()), Refusal::kNone);
  ASSERT_TRUE(client.isDone());
  ASSERT_FALSE(server.isDone());
  ASSERT_EQ(feedServer(client.confirm(), kConfirmBytes), Refusal::kNone);
  ASSERT_TRUE(server.isDone());
  EXPECT_EQ(server.introduction().rank, Rank{3});
  EXPECT_EQ(server.introduction().target, Rank{5});
  EXPECT_EQ(server.introduction().epoch, 77u);
}

TEST_F(HandshakeTest, TakesItsBytesOneByOne) {
  ASSERT_EQ(feedServer(client.hello(), 1), Refusal::kNone);
  const std::span<const std::byte> reply = server.takeReply();
  for (size_t i = 0; i < reply.size(); ++i) {
    ASSERT_FALSE(client.isDone());
    ASSERT_EQ(client.wantedBytes(), kReplyBytes - i);
    ASSERT_EQ(client.feed(reply.subspan(i, 1)), Refusal::kNone);
  }
  ASSERT_EQ(feedServer(client.confirm(), 1), Refusal::kNone);
  EXPECT_TRUE(server.isDone());
}

TEST_F(HandshakeTest, BothSidesDeriveTheSameKeysAndOneForEachDirection) {
  feedServer(client.hello(), kHelloBytes);
  client.feed(server.takeReply());
  feedServer(client.confirm(), kConfirmBytes);
  EXPECT_TRUE(equalKeys(client.keys().clientToServer, server.keys().clientToServer));
  EXPECT_TRUE(equalKeys(client.keys().serverToClient, server.keys().serverToClient));
  EXPECT_FALSE(equalKeys(client.keys().clientToServer, client.keys().serverToClient));
}

TEST_F(HandshakeTest, TwoConnectionsOfOneRankHaveDifferentKeys) {
  feedServer(client.hello(), kHelloBytes);
  client.feed(server.takeReply());
  ClientHandshake otherClient(key, kIntroduction, rng);
  ServerHandshake otherServer(key, Purpose::kPeer);
  otherServer.feed(otherClient.hello(), rng);
  otherClient.feed(otherServer.takeReply());
  EXPECT_FALSE(equalKeys(client.keys().clientToServer, otherClient.keys().clientToServer));
}

TEST_F(HandshakeTest, RefusesAnotherMagicAtItsFirstByte) {
  const std::array<std::byte, 1> get{std::byte{'G'}};
  EXPECT_EQ(server.feed(get, rng), Refusal::kMagic);
  EXPECT_EQ(server.wantedBytes(), 0u);
}

TEST_F(HandshakeTest, RefusesAnotherVersionBeforeTheHelloIsComplete) {
  std::array<std::byte, kHelloBytes> hello;
  std::copy(client.hello().begin(), client.hello().end(), hello.begin());
  storeLittle(&hello[kVersionAt], static_cast<uint16_t>(kProtocolVersion + 1));
  EXPECT_EQ(feedServer(std::span(hello).first(10), 10), Refusal::kVersion);
}

TEST_F(HandshakeTest, RefusesARankWithAnotherSecret) {
  const Key other = keyOf(8);
  ClientHandshake stranger(other, kIntroduction, rng);
  EXPECT_EQ(feedServer(stranger.hello(), kHelloBytes), Refusal::kSecret);
  EXPECT_TRUE(server.takeReply().empty());
}

TEST_F(HandshakeTest, RefusesAnotherPurpose) {
  ServerHandshake root(key, Purpose::kReport);
  EXPECT_EQ(root.feed(client.hello(), rng), Refusal::kPurpose);
}

TEST_F(HandshakeTest, RefusesAReplayedHelloAndConfirm) {
  ASSERT_EQ(feedServer(client.hello(), kHelloBytes), Refusal::kNone);
  client.feed(server.takeReply());
  const auto recorded = client.confirm();
  ServerHandshake later(key, Purpose::kPeer);
  ASSERT_EQ(later.feed(client.hello(), rng), Refusal::kNone);
  EXPECT_EQ(later.feed(recorded, rng), Refusal::kConfirmation);
  EXPECT_FALSE(later.isDone());
}

TEST_F(HandshakeTest, AnyChangedBitOfTheHelloIsRefused) {
  for (size_t bit = 0; bit < kHelloBytes * 8; ++bit) {
    std::array<std::byte, kHelloBytes> hello;
    std::copy(client.hello().begin(), client.hello().end(), hello.begin());
    hello[bit / 8] ^= std::byte{1} << (bit % 8);
    ServerHandshake fresh(key, Purpose::kPeer);
    EXPECT_NE(fresh.feed(hello, rng), Refusal::kNone) << "bit " << bit;
  }
}

TEST_F(HandshakeTest, TheClientRefusesAServerWithoutTheSecret) {
  feedServer(client.hello(), kHelloBytes);
  std::array<std::byte, kReplyBytes> reply;
  const std::span<const std::byte> good = server.takeReply();
  std::copy(good.begin(), good.end(), reply.begin());
  reply[5] ^= std::byte{1};
  EXPECT_EQ(client.feed(reply), Refusal::kReply);
  EXPECT_FALSE(client.isDone());
}

TEST_F(HandshakeTest, AReplyCannotBeReflectedAsAHello) {
  feedServer(client.hello(), kHelloBytes);
  client.feed(server.takeReply());
  ServerHandshake other(key, Purpose::kPeer);
  EXPECT_EQ(other.feed(client.confirm(), rng), Refusal::kMagic);
}

TEST(HandshakeFuzz, RandomBytesNeverPass) {
  SeededRng rng(20);
  const Key key = keyOf(1);
  for (int round = 0; round < 2'000; ++round) {
    ServerHandshake server(key, Purpose::kReport);
    ClientHandshake client(key, kIntroduction, rng);
    std::vector<std::byte> bytes(rng.below(300));
    rng.fill(bytes);
    // Half of the rounds start like a real hello, so that the later checks are reached.
    const size_t good = std::min(bytes.size(), static_cast<size_t>(rng.below(kHelloBytes)));
    if (round % 2 == 0) std::copy_n(client.hello().begin(), good, bytes.begin());
    std::span<const std::byte> rest = bytes;
    while (!rest.empty()) {
      const size_t count = std::min(rest.size(), static_cast<size_t>(1 + rng.below(64)));
      static_cast<void>(server.feed(rest.first(count), rng));
      static_cast<void>(client.feed(rest.first(count)));
      rest = rest.subspan(count);
    }
    ASSERT_FALSE(server.isHelloGood());
    ASSERT_FALSE(client.isDone());
  }
}

}  // namespace
}  // namespace tutti::bootstrap
