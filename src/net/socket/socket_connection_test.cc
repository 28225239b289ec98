#include "net/socket/socket_connection.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/futex.h"
#include "base/rng.h"
#include "base/units.h"
#include "bootstrap/socket.h"
#include "bootstrap/socket_address.h"
#include "net/socket/tcp_ends_testing.h"

namespace tutti::net::socket {
namespace {

UniqueFd nonBlocking(int fd) {
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  return UniqueFd(fd);
}

// Both ends, over so many streams.
struct Ends {
  std::unique_ptr<SocketConnection> left, right;
  std::vector<int> leftFds, rightFds;
};
Ends connect(size_t streams, StreamThreads* threads = nullptr, bool isChecked = false) {
  std::vector<Pipe> left, right;
  Ends made;
  for (size_t i = 0; i < streams; ++i) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    const int bytes = 4096;  // so that writes come short
    EXPECT_EQ(::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), 0);
    made.leftFds.push_back(ends[0]);
    made.rightFds.push_back(ends[1]);
    left.emplace_back(nonBlocking(ends[0]));
    right.emplace_back(nonBlocking(ends[1]));
  }
  made.left = std::make_unique<SocketConnection>(std::move(left), "rank 1 at nowhere:1", threads,
                                                 isChecked);
  made.right = std::make_unique<SocketConnection>(std::move(right), "rank 0 at nowhere:0", threads,
                                                  isChecked);
  return made;
}

class SocketConnections : public testing::Test {
 protected:
  // What the other end would write if it did not speak the protocol.
  void writeRaw(const void* bytes, size_t count) {
    ASSERT_EQ(::write(ends_.leftFds[0], bytes, count), static_cast<ssize_t>(count));
  }

  Ends ends_ = connect(1);
  std::unique_ptr<SocketConnection>& left_ = ends_.left;
  std::unique_ptr<SocketConnection>& right_ = ends_.right;
};

std::vector<std::byte> bytesOf(uint64_t seed, size_t count) {
  std::vector<std::byte> bytes(count);
  SeededRng(seed).fill(bytes);
  return bytes;
}

// Gives the left end all messages as it takes them, and reads them at the right.
void expectAllWhole(Ends& ends, const std::vector<std::vector<std::byte>>& messages) {
  size_t given = 0;
  size_t got = 0;
  bool hasLabel = false;
  Label label;
  std::vector<std::byte> into;
  while (got < messages.size()) {
    while (given < messages.size()) {
      const Label next{.bytes = static_cast<uint32_t>(messages[given].size()),
                       .signature = static_cast<uint32_t>(given)};
      if (ends.left->send(next, messages[given]) == Progress::kIdle) break;
      ++given;
    }
    ASSERT_TRUE(ends.left->flush().ok());
    ASSERT_LE(ends.left->sentCount(), given);
    if (!hasLabel) {
      if (ends.right->receiveLabel(label).value() == Progress::kIdle) continue;
      ASSERT_EQ(label.bytes, messages[got].size());
      ASSERT_EQ(label.signature, got);
      into.assign(label.bytes, std::byte{0});
      hasLabel = true;
    }
    if (ends.right->receivePayload(into).value() == Progress::kIdle) continue;
    ASSERT_EQ(into, messages[got]) << got;
    hasLabel = false;
    ++got;
  }
  while (ends.left->flush().value() == Progress::kIdle) {  // a thread may not have said so yet
  }
  EXPECT_EQ(ends.left->sentCount(), messages.size());
  EXPECT_EQ(ends.right->receiveLabel(label).value(), Progress::kIdle);
}

std::vector<std::vector<std::byte>> messagesOf(const std::vector<size_t>& sizes, size_t count) {
  std::vector<std::vector<std::byte>> messages;
  for (size_t i = 0; i < count; ++i) messages.push_back(bytesOf(i, sizes[i % sizes.size()]));
  return messages;
}

TEST_F(SocketConnections, BringMessagesOfAnySizeWhole) {
  expectAllWhole(ends_, messagesOf({0, 1, 7, 8, 40, 4095, 16_KiB - 8, 16_KiB, 100'000, 0, 3}, 200));
}

TEST_F(SocketConnections, BringThemOverSeveralStreamsToo) {
  const std::vector<size_t> sizes = {0, 65'535, 65'536, 65'537, 3, 100'003, 262'144, 40, 400'001};
  for (const size_t streams : {2, 3, 5, 16}) {
    SCOPED_TRACE(streams);
    Ends ends = connect(streams);
    expectAllWhole(ends, messagesOf(sizes, 60));
  }
}

TEST_F(SocketConnections, AreMovedByThreadsWithSeveralStreams) {
  StreamThreads threads(2);
  Ends ends = connect(4, &threads);
  expectAllWhole(ends, messagesOf({262'144, 8, 1 << 20, 100'000}, 60));
}

TEST_F(SocketConnections, BringThemWithChecksumsToo) {
  StreamThreads threads(2);
  for (const size_t streams : {1, 3}) {
    SCOPED_TRACE(streams);
    Ends ends = connect(streams, &threads, true);
    expectAllWhole(ends, messagesOf({0, 1, 8, 16_KiB - 16, 16_KiB, 100'003, 262'144, 3}, 60));
  }
}

// So that the next message's head is as short as heads are: the first's is a filler longer.
void begin(Ends& ends) { expectAllWhole(ends, {{}, {}}); }

// What the right end makes of a message of which one bit was changed on its way.
Status receiveChanged(size_t payloadBytes, size_t bit) {
  Ends ends = connect(1, nullptr, true);
  begin(ends);
  const auto payload = bytesOf(1, payloadBytes);
  const Label sent{.bytes = static_cast<uint32_t>(payloadBytes), .signature = 5};
  EXPECT_EQ(ends.left->send(sent, payload), Progress::kAdvanced);
  EXPECT_TRUE(ends.left->flush().ok());
  std::vector<std::byte> wire(payloadBytes + 16);
  EXPECT_EQ(::read(ends.rightFds[0], wire.data(), wire.size()), ssize_t(wire.size()));
  wire[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
  EXPECT_EQ(::write(ends.leftFds[0], wire.data(), wire.size()), ssize_t(wire.size()));
  Label label;
  TUTTI_TRY(ends.right->receiveLabel(label).takeStatus());
  std::vector<std::byte> into(label.bytes);
  TUTTI_TRY(ends.right->receivePayload(into).takeStatus());
  return {};
}

TEST_F(SocketConnections, FindAnyChangedBitByChecksums) {
  for (const size_t bytes : {0, 5, 40, 1000}) {
    for (size_t bit = 0; bit < 8 * (bytes + 16); ++bit) {
      const Status found = receiveChanged(bytes, bit);
      ASSERT_FALSE(found.ok()) << bytes << " bytes, bit " << bit;
      EXPECT_EQ(found.code(), Code::kRemoteError);
      const std::string what =
          bit < 128 ? "the head of a message" : fmt::format("a message of {} bytes", bytes);
      EXPECT_TRUE(found.message().starts_with(what + " from rank 0 at nowhere:0 was changed"))
          << found.message();
    }
  }
}

TEST_F(SocketConnections, WaitAtTheStreamsThatStillOweSomething) {
  Ends ends = connect(2);
  const auto payload = bytesOf(1, 256_KiB);
  ASSERT_EQ(ends.left->send({.bytes = 256_KiB, .signature = 0}, payload), Progress::kAdvanced);
  ASSERT_EQ(ends.left->flush().value(), Progress::kIdle);
  EXPECT_EQ(ends.left->toWatch({.toSend = true}).size(), 2u);
  EXPECT_EQ(ends.right->toWatch({.toReceive = true}).size(), 1u)
      << "the label comes over the first";
  Label label;
  ASSERT_EQ(ends.right->receiveLabel(label).value(), Progress::kDone);
  std::vector<std::byte> into(label.bytes);
  ASSERT_EQ(ends.right->receivePayload(into).value(), Progress::kIdle);
  EXPECT_EQ(ends.right->toWatch({.toReceive = true}).size(), 2u);
}

// The pipe has read further than the label: no more will come to wake the reader.
TEST(SealedConnections, AreReadyWhileTheirPipeHasMore) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const auto made = [](int fd) {
    std::vector<Pipe> pipes;
    pipes.emplace_back(nonBlocking(fd), Cipher::kChaCha20Poly1305, PipeKeys{});
    return SocketConnection(std::move(pipes), "a peer", nullptr, false);
  };
  SocketConnection left = made(ends[0]);
  SocketConnection right = made(ends[1]);
  const auto sent = bytesOf(7, 20'000);
  ASSERT_EQ(left.send({.bytes = 20'000, .signature = 1}, sent), Progress::kAdvanced);
  ASSERT_EQ(left.flush().value(), Progress::kDone);
  Label label;
  ASSERT_EQ(right.receiveLabel(label).value(), Progress::kDone);
  EXPECT_TRUE(right.toWatch({.toReceive = true}).at(0).toSend);
  std::vector<std::byte> received(sent.size());
  ASSERT_EQ(right.receivePayload(received).value(), Progress::kDone);
  EXPECT_EQ(received, sent);
  EXPECT_FALSE(right.toWatch({.toReceive = true}).at(0).toSend);
}

TEST_F(SocketConnections, LoadEachStreamAlike) {
  Ends ends = connect(4);
  std::array<size_t, 4> bytes{};
  std::vector<std::byte> sink(1_MiB);
  const auto payload = bytesOf(1, 128_KiB);
  for (int message = 0; message < 100; ++message) {
    ASSERT_EQ(ends.left->send({.bytes = 128_KiB, .signature = 0}, payload), Progress::kAdvanced);
    while (ends.left->flush().value() == Progress::kIdle) {
      for (size_t i = 0; i < bytes.size(); ++i) {
        const ssize_t read = ::read(ends.rightFds[i], sink.data(), sink.size());
        if (read > 0) bytes[i] += static_cast<size_t>(read);
      }
    }
  }
  const auto [least, most] = std::ranges::minmax(bytes);
  EXPECT_GT(static_cast<double>(least), 0.95 * static_cast<double>(most));
}

TEST_F(SocketConnections, TakeWhatComesByteByByte) {
  begin(ends_);
  const Label label{.bytes = 5, .signature = 9};
  std::array<std::byte, 13> wire{};
  std::memcpy(wire.data(), &label, sizeof label);
  std::memcpy(wire.data() + sizeof label, "hello", 5);
  Label got;
  std::array<std::byte, 5> payload{};
  for (size_t i = 0; i < wire.size(); ++i) {
    writeRaw(&wire[i], 1);
    if (i < 8) {
      EXPECT_EQ(right_->receiveLabel(got).value(), i < 7 ? Progress::kIdle : Progress::kDone);
    } else {
      EXPECT_EQ(right_->receivePayload(payload).value(),
                i < 12 ? Progress::kIdle : Progress::kDone);
    }
  }
  EXPECT_EQ(got.bytes, 5u);
  EXPECT_EQ(got.signature, 9u);
  EXPECT_EQ(std::memcmp(payload.data(), "hello", 5), 0);
}

// Its head is a cache line, of which all has to be there before its payload is.
TEST_F(SocketConnections, TakeTheHeadOfALongMessageByteByByte) {
  const auto payload = bytesOf(3, 8_KiB);
  const Label label{.bytes = 8_KiB, .signature = 9};
  std::array<std::byte, kCacheLineBytes> head{};
  std::memcpy(head.data(), &label, sizeof label);
  Label got;
  for (size_t i = 0; i < head.size(); ++i) {
    writeRaw(&head[i], 1);
    const auto wanted = i + 1 < head.size() ? Progress::kIdle : Progress::kDone;
    EXPECT_EQ(right_->receiveLabel(got).value(), wanted) << i;
  }
  EXPECT_EQ(got.bytes, label.bytes);
  std::vector<std::byte> into(payload.size());
  constexpr size_t kSome = 512;
  for (size_t at = 0; at < payload.size(); at += kSome) {
    ASSERT_EQ(right_->receivePayload(into).value(), Progress::kIdle);
    writeRaw(&payload[at], kSome);
  }
  ASSERT_EQ(right_->receivePayload(into).value(), Progress::kDone);
  EXPECT_EQ(into, payload);
}

TEST_F(SocketConnections, TakeOnlySoManyMessagesAtATime) {
  const auto payload = bytesOf(1, 100'000);
  int taken = 0;
  while (left_->send({.bytes = 100'000, .signature = 0}, payload) != Progress::kIdle) ++taken;
  EXPECT_GT(taken, 1);
  EXPECT_LT(taken, 1000);
  EXPECT_EQ(left_->flush().value(), Progress::kIdle);
  EXPECT_EQ(left_->sentCount(), 0u);
}

// Packets that the receiver's end of a TCP connection has sent.
uint32_t segmentsFrom(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  EXPECT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size), 0);
  return info.tcpi_segs_out;
}

class SocketConnectionsOverTcp : public testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Bytes, SocketConnectionsOverTcp, testing::Values(8, 300, 1024, 4096),
                         testing::PrintToStringParamName());

TEST_P(SocketConnectionsOverTcp, AnswerShortMessagesWithFewerPacketsThanMessages) {
  const uint32_t bytes = GetParam();
  TcpEnds ends = connectOverTcp();
  ASSERT_TRUE(ends.sender && ends.receiver);
  const int receiver = ends.receiver.get();
  std::vector<Pipe> left, right;
  left.emplace_back(std::move(ends.sender));
  right.emplace_back(std::move(ends.receiver));
  SocketConnection sending(std::move(left), "rank 1 at nowhere:1");
  SocketConnection receiving(std::move(right), "rank 0 at nowhere:0");
  constexpr uint32_t kMessages = 60;
  const std::vector<std::byte> payload = bytesOf(1, bytes);
  const uint32_t before = segmentsFrom(receiver);
  for (uint32_t i = 0; i < kMessages; ++i) {
    ASSERT_EQ(sending.send({.bytes = bytes, .signature = i}, payload), Progress::kAdvanced);
    ASSERT_EQ(sending.flush().value(), Progress::kDone);
    Label label;
    while (receiving.receiveLabel(label).value() != Progress::kDone) {
    }
    std::vector<std::byte> into(bytes);
    ASSERT_EQ(receiving.receivePayload(into).value(), Progress::kDone);
    ASSERT_EQ(into, payload);
    // Two looks find nothing, the first of them without a system call.
    for (int look = 0; look < 2; ++look)
      ASSERT_EQ(receiving.receiveLabel(label).value(), Progress::kIdle);
  }
  const int place = 0;
  const bool canPeek = ::setsockopt(receiver, SOL_SOCKET, SO_PEEK_OFF, &place, sizeof place) == 0;
  EXPECT_LE(segmentsFrom(receiver) - before, kMessages / (canPeek ? 3 : 2) + 4);
}

TEST(SocketConnectionOverTcp, CountsWhatHasArrivedOfAMessageInPart) {
  TcpEnds ends = connectOverTcp();
  ASSERT_TRUE(ends.sender && ends.receiver);
  const int raw = ends.sender.get();
  std::vector<Pipe> left, right;
  left.emplace_back(std::move(ends.sender));
  right.emplace_back(std::move(ends.receiver));
  SocketConnection sending(std::move(left), "rank 1 at nowhere:1");
  SocketConnection receiving(std::move(right), "rank 0 at nowhere:0");
  const uint64_t sentBefore = sending.arrivedBytes();
  const uint64_t receivedBefore = receiving.arrivedBytes();
  constexpr size_t kPart = 100;
  const std::vector<std::byte> part = bytesOf(1, kPart);
  ASSERT_EQ(::send(raw, part.data(), part.size(), 0), static_cast<ssize_t>(part.size()));
  const auto isThere = [&] {
    return sending.arrivedBytes() - sentBefore == kPart &&
           receiving.arrivedBytes() - receivedBefore == kPart;
  };
  for (int looks = 0; looks < 10'000 && !isThere(); ++looks)
    sleepFor(std::chrono::microseconds(100));
  EXPECT_TRUE(isThere());
}

TEST_F(SocketConnections, SayWhoseConnectionEnded) {
  left_.reset();
  Label label;
  const Result<Progress> progress = right_->receiveLabel(label);
  ASSERT_FALSE(progress.ok());
  EXPECT_EQ(progress.status().code(), Code::kRemoteError);
  EXPECT_NE(progress.status().message().find("rank 0 at nowhere:0"), std::string_view::npos);
  ASSERT_EQ(right_->send({}, {}), Progress::kAdvanced);
  EXPECT_FALSE(right_->flush().ok());
}

TEST_F(SocketConnections, EndInTheMiddleOfAMessageToo) {
  begin(ends_);
  const Label label{.bytes = 5, .signature = 9};
  writeRaw(&label, sizeof label);
  writeRaw("he", 2);
  left_.reset();
  Label got;
  ASSERT_EQ(right_->receiveLabel(got).value(), Progress::kDone);
  std::array<std::byte, 5> payload{};
  EXPECT_FALSE(right_->receivePayload(payload).ok());
}

}  // namespace
}  // namespace tutti::net::socket
