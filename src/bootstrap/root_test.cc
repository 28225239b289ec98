#include "bootstrap/root.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <optional>

#include "base/descriptor_limit.h"
#include "base/few_descriptors_testing.h"
#include "base/patience_testing.h"
#include "bootstrap/test_client.h"
#include "bootstrap/test_job.h"
#include "bootstrap/test_root.h"

namespace tutti::bootstrap {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// A root that waits for one rank more than the test lets come, unless it says otherwise.
class RootTest : public ::testing::Test {
 protected:
  void SetUp() override {
    key.bytes()[0] = 7;
    open({});
  }

  void open(milliseconds helloTimeout) {
    Root::Options options{.key = key,
                          .job = "test",
                          .timeout = std::chrono::seconds(60),
                          .helloTimeout = std::chrono::seconds(60)};
    if (helloTimeout.count() > 0) options.helloTimeout = helloTimeout;
    auto listener = listenOn(SocketAddress::parse("127.0.0.1:0").value());
    ASSERT_TRUE(listener.ok());
    auto opened = Root::open(std::move(listener).value(), options);
    ASSERT_TRUE(opened.ok());
    root = std::move(opened).value();
  }

  RootCall callOf(int rank, int rankCount) {
    return rootCall(root->address(), key, rank, rankCount);
  }

  // Whatever happened before, the ranks meet.
  void expectThatRanksMeet() {
    std::thread other([&] { EXPECT_TRUE(askRoot(callOf(0, 2)).ok()); });
    const Result<Answer> answer = askRoot(callOf(1, 2));
    other.join();
    EXPECT_TRUE(answer.ok()) << answer.status().message();
  }

  std::vector<std::byte> reportFrame(const ClientHandshake& handshake, int rank, int rankCount) {
    std::vector<std::byte> wire;
    FrameEncoder(handshake.keys().clientToServer)
        .append(FrameType::kReport, encode(callOf(rank, rankCount).report), {}, wire);
    return wire;
  }

  SeededRng rng{4};
  Key key;
  std::shared_ptr<Root> root;
};

TEST_F(RootTest, ScannersDoNotDisturbTheMeeting) {
  const std::vector<std::string> talk = {
      "",  // connects and says nothing
      "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
      std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11),  // TLS hello
      std::string(5000, '\xff'),
      "SSH-2.0-OpenSSH_9.2\r\n",
  };
  std::vector<std::unique_ptr<TestClient>> clients;
  for (const std::string& text : talk) {
    clients.push_back(std::make_unique<TestClient>(root->address()));
    clients.back()->send(text);
  }
  TestClient gone(root->address());
  gone.close();
  expectThatRanksMeet();
  for (size_t i = 1; i < clients.size(); ++i) EXPECT_TRUE(clients[i]->isClosedSilently()) << i;
  EXPECT_EQ(root->counters().refused, talk.size() - 1);
  EXPECT_EQ(root->counters().admitted, 2u);
}

TEST_F(RootTest, AThousandSlowConnectionsNeitherFillItNorStopIt) {
  if (descriptorLimit() < 2500) GTEST_SKIP() << "needs 2500 descriptors";
  ClientHandshake handshake(key, {}, rng);
  std::vector<std::unique_ptr<TestClient>> slow;
  for (int i = 0; i < 1000; ++i) {
    slow.push_back(std::make_unique<TestClient>(root->address()));
    ASSERT_TRUE(slow.back()->isConnected());
    // A good beginning that never ends.
    slow.back()->send(handshake.hello().first(static_cast<size_t>(i % 90)));
  }
  expectThatRanksMeet();
  EXPECT_GE(root->counters().evicted, 1000 - Acceptor::kMaxHalfOpen);
}

TEST_F(RootTest, AHundredPlayersOfAGoodHelloDoNotStopIt) {
  withPatience(milliseconds(500), [&](milliseconds timeout) {
    root.reset();
    open(timeout);
    ClientHandshake recorded(key, {}, rng);
    std::vector<std::unique_ptr<TestClient>> players;
    for (int i = 0; i < 100; ++i) {
      players.push_back(std::make_unique<TestClient>(root->address()));
      players.back()->send(recorded.hello());
    }
    expectThatRanksMeet();
  });
}

TEST_F(RootTest, SaysThatItLackedDescriptorsForThoseWhoCame) {
  withPatience(milliseconds(300), [&](milliseconds timeout) {
    root.reset();
    open({});
    std::optional<FewDescriptors> few(1);
    const TestClient last(root->address());
    RootCall call = callOf(0, 2);
    call.report.timeout = timeout;
    const Result<Answer> answer = root->meet(call.report, {});
    const std::string wanted = fmt::format(
        "could not let in rank 1 of 2 within {} ms: it needs one more file descriptor, but the "
        "limit of process {} is {} (ulimit -n)",
        timeout.count(), ::getpid(), descriptorLimit());
    few.reset();  // a sanitizer's checks need descriptors, too
    ASSERT_FALSE(answer.ok());
    EXPECT_EQ(answer.status().code(), Code::kSystemError);
    EXPECT_THAT(std::string(answer.status().message()), HasSubstr(wanted));
  });
}

TEST_F(RootTest, RefusesWithoutAWord) {
  Key other;
  ClientHandshake stranger(other, {}, rng);
  TestClient wrongSecret(root->address());
  wrongSecret.send(stranger.hello());
  EXPECT_TRUE(wrongSecret.isClosedSilently());

  ClientHandshake good(key, {}, rng);
  std::vector<std::byte> hello(good.hello().begin(), good.hello().end());
  hello[8] = std::byte{9};
  TestClient oldVersion(root->address());
  oldVersion.send(hello);
  EXPECT_TRUE(oldVersion.isClosedSilently());

  ClientHandshake peer(key, {Purpose::kPeer}, rng);
  TestClient wrongPurpose(root->address());
  wrongPurpose.send(peer.hello());
  EXPECT_TRUE(wrongPurpose.isClosedSilently());
  EXPECT_EQ(root->counters().refused, 3u);
}

TEST_F(RootTest, RefusesAReplayedConnection) {
  ClientHandshake good(key, {}, rng);
  TestClient first(root->address());
  ASSERT_EQ(first.greet(good), Refusal::kNone);
  const auto confirm = good.confirm();
  TestClient replay(root->address());
  replay.send(good.hello());
  EXPECT_EQ(replay.receive(kReplyBytes).size(), kReplyBytes);
  replay.send(confirm);
  EXPECT_TRUE(replay.isClosedSilently());
  EXPECT_EQ(root->counters().refused, 1u);
}

TEST_F(RootTest, ClosesConnectionsThatTakeTooLong) {
  withPatience(milliseconds(50), [&](milliseconds timeout) {
    root.reset();
    open(timeout);
    TestClient silent(root->address());
    EXPECT_TRUE(silent.isClosedSilently());
    EXPECT_EQ(root->counters().timedOut, 1u);
    ClientHandshake good(key, {}, rng);
    TestClient mute(root->address());
    ASSERT_EQ(mute.greet(good), Refusal::kNone);
    mute.send(good.confirm());
    EXPECT_TRUE(mute.isClosedSilently());
  });
}

TEST_F(RootTest, TakesEverythingByteByByte) {
  ClientHandshake handshake(key, {}, rng);
  TestClient client(root->address());
  client.sendByteWise(handshake.hello());
  ASSERT_EQ(handshake.feed(client.receive(kReplyBytes)), Refusal::kNone);
  client.sendByteWise(handshake.confirm());
  client.sendByteWise(reportFrame(handshake, 0, 1));
  std::vector<Frame> frames;
  FrameDecoder decoder(handshake.keys().serverToClient);
  ASSERT_EQ(decoder.feed(client.receive(1000), frames), FrameFault::kNone);
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0].type, FrameType::kAnswer);
}

TEST_F(RootTest, AReportCutAtAnyByteIsNoReport) {
  ClientHandshake size(key, {}, rng);
  for (size_t cut = 0;; cut += 7) {
    ClientHandshake handshake(key, {}, rng);
    TestClient client(root->address());
    ASSERT_EQ(client.greet(handshake), Refusal::kNone);
    const std::vector<std::byte> report = reportFrame(handshake, 0, 2);
    if (cut >= report.size()) break;
    client.send(handshake.confirm());
    client.send(std::span(report).first(cut));
  }
  EXPECT_EQ(root->presentCount(), 0u);
  expectThatRanksMeet();
}

TEST_F(RootTest, DropsBadFramesOfGoodRanks) {
  const auto spoil = [](size_t at, unsigned char value) {
    return [at, value](std::vector<std::byte>& frame) { frame[at] = std::byte{value}; };
  };
  const std::vector<std::function<void(std::vector<std::byte>&)>> damages = {
      spoil(3, 0xff),                                                    // a huge length
      [](auto& frame) { std::fill_n(frame.begin(), 4, std::byte{0}); },  // a length of zero
      spoil(4, 4),                                        // a type that no rank sends to the root
      spoil(8, 1),                                        // the counter
      [](auto& frame) { frame.back() ^= std::byte{1}; },  // the MAC
  };
  for (size_t i = 0; i < damages.size(); ++i) {
    ClientHandshake handshake(key, {}, rng);
    TestClient client(root->address());
    ASSERT_EQ(client.greet(handshake), Refusal::kNone);
    client.send(handshake.confirm());
    std::vector<std::byte> frame = reportFrame(handshake, 0, 2);
    damages[i](frame);
    client.send(frame);
    EXPECT_TRUE(client.isClosedSilently()) << i;
  }
  EXPECT_EQ(root->presentCount(), 0u);
  expectThatRanksMeet();
}

TEST_F(RootTest, NoRankReportsForAnother) {
  ClientHandshake handshake(key, {Purpose::kReport, Rank{1}}, rng);
  TestClient client(root->address());
  ASSERT_EQ(client.greet(handshake), Refusal::kNone);
  client.send(handshake.confirm());
  client.send(reportFrame(handshake, 0, 2));
  EXPECT_TRUE(client.isClosedSilently());
  expectThatRanksMeet();
}

TEST_F(RootTest, ARankThatDiesWhileItWaitsIsNamedToTheOthers) {
  ClientHandshake handshake(key, {}, rng);
  TestClient client(root->address());
  ASSERT_EQ(client.greet(handshake), Refusal::kNone);
  client.send(handshake.confirm());
  client.send(reportFrame(handshake, 0, 3));
  std::thread dying([&] {
    while (root->presentCount() < 2) pauseFor(milliseconds(1));
    client.close();
  });
  const Result<Answer> answer = askRoot(callOf(1, 3));
  dying.join();
  EXPECT_EQ(answer.status().code(), Code::kRemoteError);
  EXPECT_THAT(std::string(answer.status().message()),
              HasSubstr("rank 0 (t:1) closed its connection before all 3 ranks"));
}

TEST_F(RootTest, ARankThatEndsItsHalfOfTheConnectionHearsHowTheMeetingEnded) {
  ClientHandshake handshake(key, {}, rng);
  TestClient client(root->address());
  ASSERT_EQ(client.greet(handshake), Refusal::kNone);
  client.send(handshake.confirm());
  client.send(reportFrame(handshake, 0, 2));
  client.endHalf();
  FrameDecoder decoder(handshake.keys().serverToClient);
  std::vector<Frame> frames;
  ASSERT_EQ(decoder.feed(client.receive(4096), frames), FrameFault::kNone);
  ASSERT_EQ(frames.size(), 1u);
  ASSERT_EQ(frames[0].type, FrameType::kFailure);
  EXPECT_THAT(std::string(decodeFailure(frames[0].payload).message()),
              HasSubstr("rank 0 (t:1) closed its connection before all 2 ranks"));
}

// A root that has heard the last report, or has not, when the one rank it has ends its half of the
// connection.
void serveOneThatLeaves(int listener, const Key& key, bool hasMet, std::atomic<bool>& abort) {
  const auto waitFor = [](int fd) {
    pollfd entry{fd, POLLIN, 0};
    ::poll(&entry, 1, 60'000);
  };
  waitFor(listener);
  const UniqueFd client(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  SeededRng rng{5};
  ServerHandshake handshake(key, Purpose::kReport);
  std::array<std::byte, 1024> buffer{};
  while (!handshake.isDone()) {
    waitFor(client.get());
    const auto wanted = std::span(buffer).first(handshake.wantedBytes());
    const IoResult read = readSome(client.get(), wanted);
    if (handshake.feed(wanted.first(read.count), rng) != Refusal::kNone) return;
    writeSome(client.get(), handshake.takeReply());
  }
  waitFor(client.get());
  abort = true;  // its report has come
  while (readSome(client.get(), buffer).state != IoState::kClosed) waitFor(client.get());
  if (!hasMet) return;
  std::vector<std::byte> wire;
  FrameEncoder(handshake.keys().serverToClient)
      .append(FrameType::kAnswer, encode(Answer{.epoch = 1, .peers = {}}), {}, wire);
  writeSome(client.get(), wire);
}

TEST_F(RootTest, ARankThatIsAbortedHearsWhetherTheOthersGoOn) {
  for (const bool hasMet : {true, false}) {
    SCOPED_TRACE(hasMet);
    auto listener = listenOn(SocketAddress::parse("127.0.0.1:0").value());
    ASSERT_TRUE(listener.ok());
    std::atomic<bool> abort{false};
    std::thread server([&] { serveOneThatLeaves(listener.value().get(), key, hasMet, abort); });
    RootCall call = callOf(0, 2);
    call.address = localAddress(listener.value().get());
    call.abort = &abort;
    const auto start = steadyClock().now();
    const Result<Answer> answer = askRoot(call);
    server.join();
    EXPECT_LT(steadyClock().now() - start, std::chrono::seconds(30));
    EXPECT_EQ(answer.ok(), hasMet);
    if (!answer.ok()) {
      EXPECT_THAT(std::string(answer.status().message()), HasSubstr("was aborted"));
    }
  }
}

TEST_F(RootTest, ServesAHundredRanksThatComeAtOnce) {
  std::vector<std::thread> ranks;
  std::atomic<int> good{0};
  for (int rank = 0; rank < 100; ++rank) {
    ranks.emplace_back([&, rank] { good += askRoot(callOf(rank, 100)).ok() ? 1 : 0; });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(good, 100);
}

TEST_F(RootTest, TellsWaitingRanksWhenItsProcessEnds) {
  std::thread ending([&] {
    while (root->presentCount() < 1) pauseFor(milliseconds(1));
    root.reset();
  });
  const Result<Answer> answer = askRoot(callOf(0, 2));
  ending.join();
  EXPECT_EQ(answer.status().code(), Code::kRemoteError);
  EXPECT_THAT(std::string(answer.status().message()), HasSubstr("the process of its root ended"));
}

TEST_F(RootTest, AServerWithoutTheSecretIsFoundOut) {
  auto listener = listenOn(SocketAddress::parse("127.0.0.1:0").value());
  ASSERT_TRUE(listener.ok());
  const SocketAddress address = localAddress(listener.value().get());
  std::thread impostor([&] {
    pollfd entry{listener.value().get(), POLLIN, 0};
    ::poll(&entry, 1, 60'000);
    const UniqueFd client(::accept4(listener.value().get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::vector<std::byte> reply(kReplyBytes, std::byte{1});
    writeSome(client.get(), reply);
  });
  RootCall call = callOf(0, 2);
  call.address = address;
  call.maker = makerOn("node7");
  const Result<Answer> answer = askRoot(call);
  impostor.join();
  EXPECT_EQ(answer.status().code(), Code::kRemoteError);
  EXPECT_THAT(std::string(answer.status().message()), HasSubstr("does not know the secret"));
  EXPECT_THAT(std::string(answer.status().message()),
              HasSubstr(describe(call.maker) + ", which opened the meeting, has ended"));
}

TEST(Stagger, LetsLargeJobsComeOneAfterAnother) {
  EXPECT_EQ(staggerOf(Rank{255}, 256).count(), 0);
  constexpr int32_t kCount = 1000;
  std::vector<int> inEach10Ms(20);
  for (int32_t rank = 0; rank < kCount; ++rank)
    ++inEach10Ms.at(static_cast<size_t>(staggerOf(Rank{rank}, kCount).count() / 10'000));
  for (const int ranks : inEach10Ms) EXPECT_LE(ranks, 71);
  EXPECT_LT(staggerOf(Rank{kCount - 1}, kCount), std::chrono::milliseconds(150));
  EXPECT_LT(staggerOf(Rank{(1 << 20) - 1}, 1 << 20), std::chrono::seconds(150));
}

}  // namespace
}  // namespace tutti::bootstrap
