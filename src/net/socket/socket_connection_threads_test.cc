// Connections whose streams threads move.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "base/few_descriptors_testing.h"
#include "base/rng.h"
#include "base/units.h"
#include "bootstrap/poller.h"
#include "net/socket/socket_connection.h"
#include "net/socket/tcp_ends_testing.h"

namespace tutti::net::socket {
namespace {

struct Setting {
  size_t streams = 2;
  size_t threads = 2;
  bool isChecked = false;
  bool isSealed = false;
};
void PrintTo(const Setting& setting, std::ostream* out) {
  *out << setting.streams << "streams" << setting.threads << "threads"
       << (setting.isChecked ? "Checked" : "") << (setting.isSealed ? "Sealed" : "");
}

// Both ends, over TCP, and each side's threads.
struct Ends {
  std::unique_ptr<StreamThreads> leftThreads, rightThreads;
  std::unique_ptr<SocketConnection> left, right;
  std::vector<int> leftFds, rightFds;
};

Ends connect(const Setting& setting) {
  bootstrap::Key forth, back;
  SeededRng(1).fill(std::as_writable_bytes(forth.bytes()));
  SeededRng(2).fill(std::as_writable_bytes(back.bytes()));
  const Cipher cipher = setting.isSealed ? Cipher::kChaCha20Poly1305 : Cipher::kNone;
  Ends made;
  std::vector<Pipe> left, right;
  for (size_t i = 0; i < setting.streams; ++i) {
    TcpEnds ends = connectOverTcp();
    made.leftFds.push_back(ends.sender.get());
    made.rightFds.push_back(ends.receiver.get());
    left.emplace_back(std::move(ends.sender), cipher, PipeKeys{.send = forth, .receive = back});
    right.emplace_back(std::move(ends.receiver), cipher, PipeKeys{.send = back, .receive = forth});
    left.back().boundSendBuffer(0);
  }
  made.leftThreads = std::make_unique<StreamThreads>(setting.threads);
  made.rightThreads = std::make_unique<StreamThreads>(setting.threads);
  made.left = std::make_unique<SocketConnection>(std::move(left), "rank 1 at nowhere:1",
                                                 made.leftThreads.get(), setting.isChecked);
  made.right = std::make_unique<SocketConnection>(std::move(right), "rank 0 at nowhere:0",
                                                  made.rightThreads.get(), setting.isChecked);
  return made;
}

using Bytes = std::vector<std::byte>;

Bytes bytesOf(uint64_t seed, size_t count) {
  Bytes bytes(count);
  SeededRng(seed).fill(bytes);
  return bytes;
}

// Sleeps until one of these is ready; fails when none is for long: a wake-up was lost.
void sleepAt(std::span<const SocketConnection::Watched> watched) {
  std::vector<pollfd> polled;
  for (const auto& each : watched) {
    const short events = each.toSend ? POLLIN | POLLOUT : POLLIN;
    polled.push_back({.fd = each.fd, .events = events, .revents = 0});
  }
  ASSERT_GT(::poll(polled.data(), polled.size(), 20'000), 0);
}

// Gives a connection messages as it takes them, each of its own memory.
class Sender {
 public:
  explicit Sender(SocketConnection& connection) : connection_(connection) {}
  // True: something was taken, or is through.
  bool go(std::span<const Bytes> messages) {
    const uint64_t before = connection_.sentCount() + given_;
    for (; given_ < messages.size(); ++given_) {
      const Label label{.bytes = static_cast<uint32_t>(messages[given_].size()),
                        .signature = static_cast<uint32_t>(given_)};
      if (connection_.send(label, messages[given_]) == Progress::kIdle) break;
    }
    EXPECT_TRUE(connection_.flush().ok());
    return connection_.sentCount() + given_ != before;
  }

 private:
  SocketConnection& connection_;
  size_t given_ = 0;
};

class Receiver {
 public:
  explicit Receiver(SocketConnection& connection) : connection_(connection) {}
  bool go(std::span<const Bytes> messages) {
    if (!hasLabel_) {
      if (connection_.receiveLabel(label_).value() == Progress::kIdle) return false;
      EXPECT_EQ(label_.bytes, messages[got_].size());
      EXPECT_EQ(label_.signature, got_);
      into_.assign(label_.bytes, std::byte{0});
      hasLabel_ = true;
    }
    if (connection_.receivePayload(into_).value() == Progress::kIdle) return false;
    EXPECT_TRUE(into_ == messages[got_]) << got_;
    hasLabel_ = false;
    ++got_;
    return true;
  }
  size_t got() const { return got_; }

 private:
  SocketConnection& connection_;
  Label label_;
  Bytes into_;
  bool hasLabel_ = false;
  size_t got_ = 0;
};

std::vector<Bytes> messagesOf(const std::vector<size_t>& sizes, size_t count) {
  std::vector<Bytes> messages;
  for (size_t i = 0; i < count; ++i) messages.push_back(bytesOf(i, sizes[i % sizes.size()]));
  return messages;
}

const std::vector<size_t> kSizes = {262'144, 0,         8,       131'072, 131'071, 1'000'003,
                                    3,       2'000'001, 100'000, 400'001, 40,      128'000};

class ThreadedConnections : public testing::TestWithParam<Setting> {};
INSTANTIATE_TEST_SUITE_P(Of, ThreadedConnections,
                         testing::Values(Setting{2, 1}, Setting{2, 2}, Setting{3, 2}, Setting{8, 3},
                                         Setting{16, 4}, Setting{2, 2, true}, Setting{5, 2, true},
                                         Setting{2, 2, false, true}, Setting{6, 3, true, true}),
                         testing::PrintToStringParamName());

TEST_P(ThreadedConnections, BringMessagesOfAnySizeWhole) {
  Ends ends = connect(GetParam());
  const auto messages = messagesOf(kSizes, 60);
  Sender sender(*ends.left);
  Receiver receiver(*ends.right);
  while (receiver.got() < messages.size()) {
    sender.go(messages);
    receiver.go(messages);
  }
  while (ends.left->flush().value() == Progress::kIdle) {
  }
  EXPECT_EQ(ends.left->sentCount(), messages.size());
}

// As ranks do that sleep: each side looks only when something it watches is ready.
TEST_P(ThreadedConnections, WakeWhoeverSleeps) {
  Ends ends = connect(GetParam());
  const auto messages = messagesOf(kSizes, 60);
  std::thread sending([&] {
    for (Sender sender(*ends.left); ends.left->sentCount() < messages.size();) {
      if (sender.go(messages)) continue;
      sleepAt(ends.left->toWatch({.toSend = true}));
    }
  });
  for (Receiver receiver(*ends.right); receiver.got() < messages.size();) {
    if (receiver.go(messages)) continue;
    sleepAt(ends.right->toWatch({.toReceive = true}));
  }
  sending.join();
}

// What is not out yet goes out as a copy, whoever was writing it.
TEST_P(ThreadedConnections, SendCopiesOfWhatGoesAway) {
  Ends ends = connect(GetParam());
  const auto wanted = messagesOf({1'000'003, 262'144, 9}, 8);
  auto sent = std::make_unique<std::vector<Bytes>>(wanted);
  Sender sender(*ends.left);
  while (sender.go(*sent)) {
  }
  ends.left->keepCopies({});
  for (Bytes& each : *sent) std::ranges::fill(each, std::byte{0xEE});
  sent.reset();
  for (Receiver receiver(*ends.right); receiver.got() < wanted.size();) {
    ASSERT_TRUE(ends.left->flush().ok());
    receiver.go(wanted);
  }
}

// Nothing of what was posted is touched after stop(), and the end waits for nothing.
TEST_P(ThreadedConnections, TouchNoMemoryOnceStopped) {
  for (int round = 0; round < 10; ++round) {
    Ends ends = connect(GetParam());
    auto sent = std::make_unique<Bytes>(bytesOf(1, 3'000'000));
    auto into = std::make_unique<Bytes>(3'000'000);
    ASSERT_EQ(ends.left->send({.bytes = 3'000'000, .signature = 1}, *sent), Progress::kAdvanced);
    ASSERT_TRUE(ends.left->flush().ok());
    Label label;
    while (ends.right->receiveLabel(label).value() == Progress::kIdle)
      ASSERT_TRUE(ends.left->flush().ok());
    for (int looks = 0; looks <= 3 * round; ++looks) {
      ASSERT_TRUE(ends.right->receivePayload(*into).ok());
      ASSERT_TRUE(ends.left->flush().ok());
    }
    ends.right->stop();
    const Bytes then = *into;
    std::this_thread::yield();
    EXPECT_TRUE(then == *into);
    into.reset();
    ends.left->stop();
    sent.reset();
    // A receiver that has stopped still says why it leaves.
    ASSERT_EQ(ends.right->send({.bytes = kNotice, .signature = 2}, {}), Progress::kAdvanced);
    ASSERT_EQ(ends.right->flush().value(), Progress::kDone);
    while (ends.left->receiveLabel(label).value() == Progress::kIdle) {
    }
    EXPECT_EQ(label.signature, 2u);
  }
}

// What becomes of a message whose sender goes, or resets its connections, while threads move it.
Result<Progress> receiveOfWhoGoes(const Setting& setting, bool isReset) {
  const Bytes sent = bytesOf(1, 8'000'000);  // outlives the threads that read it
  Bytes into(sent.size());
  Ends ends = connect(setting);
  EXPECT_EQ(ends.left->send({.bytes = 8'000'000, .signature = 1}, sent), Progress::kAdvanced);
  EXPECT_TRUE(ends.left->flush().ok());
  Label label;
  while (ends.right->receiveLabel(label).value() == Progress::kIdle)
    EXPECT_TRUE(ends.left->flush().ok());
  EXPECT_TRUE(ends.right->receivePayload(into).ok());
  const linger none{.l_onoff = 1, .l_linger = 0};
  for (const int fd : isReset ? ends.leftFds : std::vector<int>())
    EXPECT_EQ(::setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none), 0);
  ends.left.reset();
  for (;;) {
    Result<Progress> received = ends.right->receivePayload(into);
    if (!received.ok() || *received == Progress::kDone) return received;
    sleepAt(ends.right->toWatch({.toReceive = true}));
  }
}

TEST_P(ThreadedConnections, SayWhoWentAway) {
  for (const bool isReset : {false, true}) {
    Result<Progress> received = Progress::kDone;  // if the threads were faster
    for (int tries = 0; tries < 50 && received.ok(); ++tries)
      received = receiveOfWhoGoes(GetParam(), isReset);
    ASSERT_FALSE(received.ok());
    EXPECT_EQ(received.status().code(), Code::kRemoteError);
    EXPECT_NE(received.status().message().find("rank 0 at nowhere:0"), std::string_view::npos);
  }
}

TEST_P(ThreadedConnections, SayWhoTakesNothingAnyMore) {
  const Bytes sent = bytesOf(1, 32_MiB);
  Ends ends = connect(GetParam());
  ASSERT_EQ(ends.left->send({.bytes = 32_MiB, .signature = 1}, sent), Progress::kAdvanced);
  ASSERT_TRUE(ends.left->flush().ok());
  ends.right.reset();
  Result<Progress> flushed = Progress::kIdle;
  while (flushed.ok()) {
    flushed = ends.left->flush();
    ASSERT_FALSE(flushed.ok() && *flushed == Progress::kDone);
    if (flushed.ok()) sleepAt(ends.left->toWatch({.toSend = true}));
  }
  EXPECT_NE(flushed.status().message().find("rank 1 at nowhere:1"), std::string_view::npos);
}

// Several connections share their process's threads, each of which has a caller of its own.
TEST(ThreadsOfConnections, ServeSeveralAtOnce) {
  StreamThreads leftThreads(2), rightThreads(2);
  const auto messages = messagesOf({262'144, 40, 500'001}, 60);
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&] {
      std::vector<Pipe> left, right;
      for (int stream = 0; stream < 3; ++stream) {
        TcpEnds ends = connectOverTcp();
        left.emplace_back(std::move(ends.sender));
        right.emplace_back(std::move(ends.receiver));
      }
      SocketConnection from(std::move(left), "rank 1 at nowhere:1", &leftThreads);
      SocketConnection to(std::move(right), "rank 0 at nowhere:0", &rightThreads);
      Sender sender(from);
      for (Receiver receiver(to); receiver.got() < messages.size();) {
        sender.go(messages);
        receiver.go(messages);
      }
    });
  }
  for (std::thread& each : callers) each.join();
}

TEST(ThreadsOfConnections, AreDoneWithoutWhereThereAreNone) {
  const auto messages = messagesOf({262'144, 40, 500'001}, 20);
  for (const size_t spare : {0, 1}) {
    // No thread; or threads, and no descriptor for the bell of the second connection.
    std::optional<Ends> ends;
    ends = connect({.streams = 3, .threads = spare == 0 ? 0u : 2u});
    std::vector<Pipe> left, right;
    for (int stream = 0; stream < 3; ++stream) {
      TcpEnds more = connectOverTcp();
      left.emplace_back(std::move(more.sender));
      right.emplace_back(std::move(more.receiver));
    }
    const FewDescriptors few(spare);
    ends->left = std::make_unique<SocketConnection>(std::move(left), "rank 1 at nowhere:1",
                                                    ends->leftThreads.get());
    ends->right = std::make_unique<SocketConnection>(std::move(right), "rank 0 at nowhere:0",
                                                     ends->rightThreads.get());
    Sender sender(*ends->left);
    for (Receiver receiver(*ends->right); receiver.got() < messages.size();) {
      sender.go(messages);
      receiver.go(messages);
    }
  }
}

}  // namespace
}  // namespace tutti::net::socket
