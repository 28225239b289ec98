// Two processes' providers in one, over loopback sockets and the plug-in of tests/fakes/net.c.
#include "net/fabric_provider.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "net/connect_testing.h"
#include "net/registry.h"

namespace tutti::net {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr uint64_t kNumber = 42;

// The receiving end of a link: takes each message where it comes, in the provider's thread.
class Receiver final : public Worker, public std::enable_shared_from_this<Receiver> {
 public:
  explicit Receiver(Provider& provider) : provider_(provider) {}
  void arrived(std::unique_ptr<Connection> connection) override {
    std::lock_guard lock(mutex_);
    if (isClosed_) return;
    connection_ = std::move(connection);
    watchAgain();
  }
  void work(uint64_t watch) override {
    std::lock_guard lock(mutex_);
    if (watch != watch_) return;
    watch_ = 0;
    while (takeOne()) {
    }
    if (connection_) watchAgain();
  }
  // Before its provider goes: what arrives later is let go.
  void close() {
    std::lock_guard lock(mutex_);
    isClosed_ = true;
    if (watch_ != 0) provider_.unwatch(std::exchange(watch_, 0));
    connection_.reset();
  }
  size_t count() const { return count_.load(); }
  bool hasEnded() const { return hasEnded_.load(); }
  // REQUIRES: hasEnded().
  const std::string& ended() const { return ended_; }

 private:
  bool takeOne() {
    if (!hasLabel_) {
      const Result<Progress> progress = connection_->receiveLabel(label_);
      if (!progress.ok()) return end(progress.status().message());
      if (progress.value() == Progress::kIdle) return false;
      hasLabel_ = true;
      payload_.resize(label_.bytes & ~kNotice);
    }
    const Result<Progress> progress = connection_->receivePayload(payload_);
    if (!progress.ok()) return end(progress.status().message());
    if (progress.value() == Progress::kIdle) return false;
    hasLabel_ = false;
    if ((label_.bytes & kNotice) != 0) return end("the sender has left");
    EXPECT_EQ(label_.signature, count_.load());
    for (const std::byte each : payload_) EXPECT_EQ(each, static_cast<std::byte>(count_.load()));
    ++count_;
    return true;
  }
  bool end(std::string_view why) {
    ended_ = why;
    connection_.reset();
    hasEnded_ = true;
    return false;
  }
  void watchAgain() {
    watch_ = provider_.watch(*connection_, {.toReceive = true}, shared_from_this()).value();
  }

  Provider& provider_;
  std::mutex mutex_;  // guards all below but the atomics
  std::unique_ptr<Connection> connection_;
  bool isClosed_ = false;
  uint64_t watch_ = 0;
  Label label_;
  bool hasLabel_ = false;
  std::vector<std::byte> payload_;
  std::string ended_;
  std::atomic<size_t> count_{0};
  std::atomic<bool> hasEnded_{false};
};

class FabricProviders : public testing::Test {
 protected:
  void TearDown() override { ::unsetenv("FAKE_NET"); }

  static std::unique_ptr<Provider> open(const std::string& network = "", bool hasPlugin = true,
                                        milliseconds timeout = milliseconds(20'000)) {
    return openNetwork({.interfaces = "lo",
                        .family = AF_INET,
                        .network = network,
                        .plugins = hasPlugin ? TUTTI_FAKE_NETS "/libnccl-net-fake11.so" : "none",
                        .timeout = timeout});
  }

  static Result<std::unique_ptr<Connection>> connect(Provider& from, Provider& to,
                                                     const std::shared_ptr<Receiver>& receiver) {
    TUTTI_TRY_ASSIGN(const Provider::Contact contact, to.contact());
    to.expect(kNumber, receiver);
    return connectNow(from, contact, {.number = kNumber, .self = Rank{0}, .peer = Rank{1}},
                      milliseconds(4000));
  }

  // Short and long ones; then the notice.
  static void sendAll(Connection& connection, size_t count) {
    std::vector<std::vector<std::byte>> messages;
    for (size_t i = 0; i < count; ++i)
      messages.emplace_back(i * 977 % 50'000, static_cast<std::byte>(i));
    for (size_t i = 0; i < count;) {
      const Label label{.bytes = static_cast<uint32_t>(messages[i].size()),
                        .signature = static_cast<uint32_t>(i)};
      if (connection.send(label, messages[i]) == Progress::kAdvanced) ++i;
      ASSERT_TRUE(connection.flush().ok());
    }
    while (connection.sentCount() < count) {
      ASSERT_TRUE(connection.flush().ok());
      std::this_thread::yield();
    }
    const std::byte text{};
    EXPECT_EQ(connection.send({.bytes = kNotice | 1, .signature = 2}, {&text, 1}),
              Progress::kAdvanced);
    for (;;) {
      const Result<Progress> flushed = connection.flush();
      ASSERT_TRUE(flushed.ok()) << flushed.status().message();
      if (flushed.value() == Progress::kDone) return;
      std::this_thread::yield();
    }
  }

  static void expectAll(Provider& from, Provider& to) {
    const auto receiver = std::make_shared<Receiver>(to);
    auto connection = connect(from, to, receiver);
    ASSERT_TRUE(connection.ok()) << connection.status().message();
    sendAll(*connection.value(), 100);
    while (!receiver->hasEnded()) std::this_thread::yield();
    EXPECT_EQ(receiver->count(), 100u) << receiver->ended();
    receiver->close();
  }
};

TEST_F(FabricProviders, BringMessagesOverTheFabric) {
  const auto here = open("Fake"), there = open("Fake");
  expectAll(*here, *there);
  expectAll(*there, *here);
}

TEST_F(FabricProviders, GoOverSocketsWhereOneSideHasNoFabric) {
  const auto with = open(), without = open("", false);
  expectAll(*with, *without);
  expectAll(*without, *with);
}

TEST_F(FabricProviders, GoOverSocketsWhereTheFabricFails) {
  for (const char* what : {"fail-listen", "fail-connect", "fail-accept"}) {
    ::setenv("FAKE_NET", what, 1);
    const auto here = open(), there = open();
    expectAll(*here, *there);
  }
}

TEST_F(FabricProviders, GoOverSocketsWhereTheFabricHangs) {
  ::setenv("FAKE_NET", "hang-connect", 1);
  const auto here = open(), there = open();
  expectAll(*here, *there);
  const Instant begin = steadyClock().now();
  expectAll(*here, *there);  // which does not wait for it again
  EXPECT_LT(steadyClock().now() - begin, milliseconds(1000));
}

TEST_F(FabricProviders, ArePreparedWithoutWaitingForTheFabric) {
  ::setenv("FAKE_NET", "hang-init", 1);
  const auto hanging = open("", true, milliseconds(500));
  const Instant begin = steadyClock().now();
  EXPECT_EQ(hanging->prepare().value(), Progress::kIdle);
  EXPECT_EQ(hanging->prepare().value(), Progress::kIdle);
  hanging->forget(kNumber);  // nor does anything else wait for it
  EXPECT_LT(steadyClock().now() - begin, milliseconds(400));
  while (hanging->prepare().value() == Progress::kIdle) std::this_thread::yield();
  EXPECT_GE(steadyClock().now() - begin, milliseconds(500));
  const auto forced = open("Fake", true, milliseconds(500));
  EXPECT_EQ(
      forced->contact().status().message(),
      "NCCL_NET=Fake: this network cannot be used: network plug-in Fake has not returned from "
      "init within 500 ms (see TUTTI_TIMEOUT_MS)");
  ::unsetenv("FAKE_NET");
  const auto other = open("", false);
  expectAll(*hanging, *other);
}

TEST_F(FabricProviders, MakeNoLinkWithoutTheFabricThatIsAskedFor) {
  const auto here = open("Fake"), there = open("Fake"), sockets = open("Socket");
  ::setenv("FAKE_NET", "fail-connect", 1);
  const auto receiver = std::make_shared<Receiver>(*there);
  const auto failed = connect(*here, *there, receiver);
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(std::string(failed.status().message()),
              HasSubstr("rank 0 to rank 1 over the network that NCCL_NET=Fake asks for: network "
                        "plug-in Fake: connect returned 2"));
  receiver->close();
  const auto late = std::make_shared<Receiver>(*sockets);
  const auto none = connect(*here, *sockets, late);
  late->close();
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("rank 1 links by sockets"));
  EXPECT_THAT(std::string(open("Other")->contact().status().message()),
              HasSubstr("NCCL_NET=Other: there is no such network"));
}

TEST_F(FabricProviders, LearnOfAPeerThatLeavesWithoutAWord) {
  const auto here = open("Fake"), there = open("Fake");
  const auto receiver = std::make_shared<Receiver>(*there);
  auto connection = connect(*here, *there, receiver);
  ASSERT_TRUE(connection.ok()) << connection.status().message();
  connection.value().reset();
  while (!receiver->hasEnded()) std::this_thread::yield();
  EXPECT_EQ(receiver->count(), 0u);
  receiver->close();
}

TEST_F(FabricProviders, LetGoOfAConnectionThatIsOnItsWay) {
  const auto here = open("Fake"), there = open("Fake");
  const Provider::Contact contact = there->contact().value();
  const auto receiver = std::make_shared<Receiver>(*there);
  there->expect(kNumber, receiver);
  ::setenv("FAKE_NET", "never-connect", 1);
  auto pending = here->connect(contact, {.number = kNumber, .self = Rank{0}, .peer = Rank{1}},
                               milliseconds(60'000));
  ASSERT_TRUE(pending.ok()) << pending.status().message();
  const Instant end = steadyClock().now() + milliseconds(200);
  while (steadyClock().now() < end) {  // the control connection first, then the meeting
    auto connection = (*pending)->poll();
    ASSERT_TRUE(connection.ok()) << connection.status().message();
    ASSERT_EQ(*connection, nullptr);
    std::this_thread::yield();
  }
  pending->reset();
  EXPECT_LT(steadyClock().now() - end, milliseconds(10'000)) << "nobody waits for the time limit";
  ::unsetenv("FAKE_NET");
  there->forget(kNumber);
  receiver->close();
  expectAll(*here, *there);
}

TEST_F(FabricProviders, ForgetAMeetingThatNobodyWaitsForAnyMore) {
  ::setenv("FAKE_NET", "never-connect", 1);
  const auto here = open("Fake"), there = open("Fake");
  const auto receiver = std::make_shared<Receiver>(*there);
  std::thread forgetter([&there] { there->forget(kNumber); });
  EXPECT_FALSE(connect(*here, *there, receiver).ok());
  forgetter.join();
  there->forget(kNumber);
}

}  // namespace
}  // namespace tutti::net
