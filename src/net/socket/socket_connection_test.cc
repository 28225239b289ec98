#include "net/socket/socket_connection.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "base/rng.h"
#include "base/units.h"

namespace tutti::net::socket {
namespace {

UniqueFd nonBlocking(int fd) {
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  return UniqueFd(fd);
}

class SocketConnections : public testing::Test {
 protected:
  SocketConnections() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    const int bytes = 4096;  // so that writes come short
    EXPECT_EQ(::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), 0);
    left_ = std::make_unique<SocketConnection>(nonBlocking(ends[0]), "rank 1 at nowhere:1");
    right_ = std::make_unique<SocketConnection>(nonBlocking(ends[1]), "rank 0 at nowhere:0");
  }

  // What the other end would write if it did not speak the protocol.
  void writeRaw(const void* bytes, size_t count) {
    ASSERT_EQ(::write(left_->fd(), bytes, count), static_cast<ssize_t>(count));
  }

  std::unique_ptr<SocketConnection> left_;
  std::unique_ptr<SocketConnection> right_;
};

std::vector<std::byte> bytesOf(uint64_t seed, size_t count) {
  std::vector<std::byte> bytes(count);
  SeededRng(seed).fill(bytes);
  return bytes;
}

TEST_F(SocketConnections, BringMessagesOfAnySizeWhole) {
  const std::vector<size_t> sizes = {0, 1, 7, 8, 40, 4095, 16_KiB - 8, 16_KiB, 100'000, 0, 3};
  std::vector<std::vector<std::byte>> messages;
  for (size_t i = 0; i < 200; ++i) messages.push_back(bytesOf(i, sizes[i % sizes.size()]));
  size_t given = 0;
  size_t got = 0;
  bool hasLabel = false;
  Label label;
  std::vector<std::byte> into;
  while (got < messages.size()) {
    while (given < messages.size()) {
      const Label next{.bytes = static_cast<uint32_t>(messages[given].size()),
                       .signature = static_cast<uint32_t>(given)};
      if (left_->send(next, messages[given]) == Progress::kIdle) break;
      ++given;
    }
    ASSERT_TRUE(left_->flush().ok());
    ASSERT_LE(left_->sentCount(), given);
    if (!hasLabel) {
      if (right_->receiveLabel(label).value() == Progress::kIdle) continue;
      ASSERT_EQ(label.bytes, messages[got].size());
      ASSERT_EQ(label.signature, got);
      into.assign(label.bytes, std::byte{0});
      hasLabel = true;
    }
    if (right_->receivePayload(into).value() == Progress::kIdle) continue;
    ASSERT_EQ(into, messages[got]) << got;
    hasLabel = false;
    ++got;
  }
  EXPECT_EQ(left_->sentCount(), messages.size());
  EXPECT_EQ(right_->receiveLabel(label).value(), Progress::kIdle);
}

TEST_F(SocketConnections, TakeWhatComesByteByByte) {
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

TEST_F(SocketConnections, TakeOnlySoManyMessagesAtATime) {
  const auto payload = bytesOf(1, 100'000);
  int taken = 0;
  while (left_->send({.bytes = 100'000, .signature = 0}, payload) != Progress::kIdle) ++taken;
  EXPECT_GT(taken, 1);
  EXPECT_LT(taken, 1000);
  EXPECT_EQ(left_->flush().value(), Progress::kIdle);
  EXPECT_EQ(left_->sentCount(), 0u);
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
