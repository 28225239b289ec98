#include "net/socket/pipe.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"

namespace tutti::net::socket {
namespace {

using bootstrap::IoResult;
using bootstrap::IoState;

UniqueFd nonBlocking(int fd) {
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  const int bytes = 4096;  // so that writes come short
  EXPECT_EQ(::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), 0);
  return UniqueFd(fd);
}

bootstrap::Key keyOf(unsigned char fill) {
  bootstrap::Key key;
  std::ranges::fill(key.bytes(), fill);
  return key;
}

std::vector<iovec> piecesOf(std::span<const std::byte> bytes, size_t most, SeededRng& rng) {
  std::vector<iovec> pieces;
  while (!bytes.empty() && pieces.size() < 5) {
    const size_t some = std::min<size_t>(bytes.size(), 1 + rng.below(most));
    pieces.push_back({.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = some});
    bytes = bytes.subspan(some);
  }
  return pieces;
}

class SealedPipes : public testing::TestWithParam<Cipher> {
 protected:
  void SetUp() override {
    if (!isKnown(GetParam())) GTEST_SKIP() << "this processor has no AES instructions";
    connect(1);
  }
  // Both ends anew, the right one with this key for what comes.
  void connect(unsigned char receiveKey) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    leftFd_ = ends[0];
    rightFd_ = ends[1];
    left_.emplace(nonBlocking(ends[0]), GetParam(),
                  PipeKeys{.send = keyOf(1), .receive = keyOf(2)});
    right_.emplace(nonBlocking(ends[1]), GetParam(),
                   PipeKeys{.send = keyOf(2), .receive = keyOf(receiveKey)});
  }

  void send(std::string_view text) {
    const iovec piece{.iov_base = const_cast<char*>(text.data()), .iov_len = text.size()};
    const IoResult sent = left_->write({&piece, 1});
    ASSERT_EQ(sent.state, IoState::kMoved);
    ASSERT_EQ(sent.count, text.size());
  }
  IoResult receive(std::span<std::byte> into) {
    const iovec piece{.iov_base = into.data(), .iov_len = into.size()};
    return right_->read({&piece, 1});
  }
  // What is on the wire, taken off it.
  std::vector<std::byte> tap() const {
    std::vector<std::byte> bytes(1000);
    const ssize_t count = ::recv(rightFd_, bytes.data(), bytes.size(), 0);
    bytes.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
    return bytes;
  }
  void putBack(std::span<const std::byte> bytes) const {
    ASSERT_EQ(::send(leftFd_, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }

  int leftFd_ = -1;
  int rightFd_ = -1;
  std::optional<Pipe> left_;
  std::optional<Pipe> right_;
};
INSTANTIATE_TEST_SUITE_P(Ciphers, SealedPipes,
                         testing::Values(Cipher::kChaCha20Poly1305, Cipher::kAes256Gcm),
                         [](const auto& cipher) {
                           return std::string(cipher.param == Cipher::kAes256Gcm ? "Aes"
                                                                                 : "ChaCha");
                         });

TEST_P(SealedPipes, BringAllBytesInWhateverPieces) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SeededRng rng(seed);
    const size_t most = seed % 3 == 0 ? 100'000 : 3000;
    std::vector<std::byte> sent(300'000 + rng.below(1000));
    rng.fill(sent);
    std::vector<std::byte> got(sent.size());
    size_t out = 0;
    size_t in = 0;
    for (int idle = 0; in < sent.size() && idle < 1000; ++idle) {
      // Where it would block, the same bytes come first again, in other pieces.
      const IoResult written =
          out == sent.size() ? IoResult{}
                             : left_->write(piecesOf(std::span(sent).subspan(out), most, rng));
      out += written.count;
      const IoResult read = right_->read(piecesOf(std::span(got).subspan(in), most, rng));
      ASSERT_NE(read.state, IoState::kClosed) << "seed " << seed;
      in += read.count;
      if (written.count + read.count > 0) idle = 0;
    }
    ASSERT_EQ(sent, got) << "seed " << seed;
  }
}

TEST_P(SealedPipes, ShowNothingOfThePlainText) {
  const std::string text = "all of this is meant for one reader and for nobody else";
  send(text);
  send(text);
  const std::vector<std::byte> wire = tap();
  ASSERT_EQ(wire.size(), 2 * (text.size() + 20));
  const auto plain = std::as_bytes(std::span(text));
  for (size_t at = 0; at + 4 <= plain.size(); ++at) {
    const std::span part = plain.subspan(at, 4);
    EXPECT_TRUE(std::ranges::search(wire, part).empty()) << "4 bytes from " << at;
  }
  // The same twice looks different.
  EXPECT_FALSE(std::ranges::equal(std::span(wire).first(text.size() + 20),
                                  std::span(wire).subspan(text.size() + 20)));
  putBack(wire);
  std::vector<std::byte> got(2 * text.size());
  EXPECT_EQ(receive(got).count, got.size());
}

TEST_P(SealedPipes, FindAnyChangedBit) {
  for (size_t bit = 0; bit < 8 * (5 + 20); ++bit) {
    connect(1);
    send("hello");
    std::vector<std::byte> wire = tap();
    ASSERT_EQ(wire.size(), 25u);
    wire[bit / 8] ^= std::byte{1} << (bit % 8);
    putBack(wire);
    ::shutdown(leftFd_, SHUT_WR);
    std::array<std::byte, 5> got{};
    const IoResult read = receive(got);
    // A length that has grown within what is allowed waits for bytes that never come.
    ASSERT_EQ(read.state, IoState::kClosed) << "bit " << bit;
    ASSERT_TRUE(read.errnoValue == EBADMSG || (read.errnoValue == 0 && bit < 32)) << "bit " << bit;
  }
}

TEST_P(SealedPipes, RefuseWhatIsRepeatedLeftOutReorderedOrSentBack) {
  for (const std::string_view order : {"11", "2", "21", "1 sent back"}) {
    connect(1);
    send("one");
    const std::vector<std::byte> first = tap();
    send("two");
    const std::vector<std::byte> second = tap();
    std::array<std::byte, 3> got{};
    if (order == "1 sent back") {
      ASSERT_EQ(::send(rightFd_, first.data(), first.size(), 0), std::ssize(first));
      const iovec piece{.iov_base = got.data(), .iov_len = got.size()};
      EXPECT_EQ(left_->read({&piece, 1}).errnoValue, EBADMSG) << order;
      continue;
    }
    IoResult read;
    for (const char which : order) {
      putBack(which == '1' ? first : second);
      read = receive(got);
    }
    EXPECT_EQ(read.state, IoState::kClosed) << order;
    EXPECT_EQ(read.errnoValue, EBADMSG) << order;
  }
}

TEST_P(SealedPipes, WithAnotherKeyDoNotOpen) {
  connect(3);
  send("hello");
  std::array<std::byte, 5> got{};
  EXPECT_EQ(receive(got).errnoValue, EBADMSG);
}

TEST_P(SealedPipes, RefuseALengthBeyondARecordAtOnce) {
  for (const uint32_t length : {0u, (32u << 10) + 1, 0xffffffffu}) {
    connect(1);
    putBack(std::as_bytes(std::span(&length, 1)));
    std::array<std::byte, 5> got{};
    EXPECT_EQ(receive(got).errnoValue, EBADMSG) << length;
  }
}

TEST_P(SealedPipes, GiveWhatCameBeforeTheEndFirst) {
  send("hello");
  left_.reset();
  std::array<std::byte, 9> got{};
  EXPECT_EQ(receive(got).count, 5u);
  const IoResult read = receive(got);
  EXPECT_EQ(read.state, IoState::kClosed);
  EXPECT_EQ(read.errnoValue, 0);
}

}  // namespace
}  // namespace tutti::net::socket
