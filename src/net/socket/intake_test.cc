#include "net/socket/intake.h"

#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/rng.h"
#include "net/socket/pipe.h"
#include "net/socket/tcp_ends_testing.h"

namespace tutti::net::socket {
namespace {

using bootstrap::IoResult;
using bootstrap::IoState;

class Intakes : public testing::Test {
 protected:
  void SetUp() override {
    TcpEnds ends = connectOverTcp();
    sender_ = std::move(ends.sender);
    receiver_ = std::move(ends.receiver);
    ASSERT_TRUE(sender_ && receiver_);
  }

  static bool canPeek() {
    const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int zero = 0;
    return ::setsockopt(fd.get(), SOL_SOCKET, SO_PEEK_OFF, &zero, sizeof zero) == 0;
  }
  static tcp_info infoOf(const UniqueFd& fd) {
    tcp_info info{};
    socklen_t size = sizeof info;
    EXPECT_EQ(::getsockopt(fd.get(), IPPROTO_TCP, TCP_INFO, &info, &size), 0);
    return info;
  }
  bool isReadable() const {
    pollfd entry{.fd = receiver_.get(), .events = POLLIN, .revents = 0};
    return ::poll(&entry, 1, 0) != 0;
  }
  size_t send(std::span<const std::byte> bytes) const {
    const ssize_t count = ::send(sender_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    return static_cast<size_t>(std::max<ssize_t>(count, 0));
  }
  IoResult read(std::span<std::byte> into) {
    const iovec piece{.iov_base = into.data(), .iov_len = into.size()};
    return intake_.read(receiver_.get(), {&piece, 1});
  }
  // Until so many bytes have come; the reads that follow find nothing.
  void pass(size_t bytes, int emptyReads) {
    const std::vector<std::byte> message(bytes);
    ASSERT_EQ(send(message), bytes);
    for (size_t got = 0; got < bytes;) {
      const IoResult result = read(buffer_);
      ASSERT_NE(result.state, IoState::kClosed);
      got += result.count;
    }
    for (int i = 0; i < emptyReads; ++i) ASSERT_EQ(read(buffer_).state, IoState::kWouldBlock);
  }

  UniqueFd sender_;
  UniqueFd receiver_;
  Intake intake_;
  std::array<std::byte, 4096> buffer_{};
};

TEST_F(Intakes, BringAllBytesInTheirOrder) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SeededRng rng(seed);
    std::vector<std::byte> sent(100'000);
    rng.fill(sent);
    std::vector<std::byte> got(sent.size());
    size_t out = 0;
    for (size_t in = 0; in < sent.size();) {
      // Phases of short messages, between others.
      const size_t most = out / 20'000 % 2 == 0 ? 60 : 8000;
      const size_t some = std::min<size_t>(sent.size() - out, rng.below(most));
      if (some > 0 && rng.below(3) > 0) out += send(std::span(sent).subspan(out, some));
      const size_t first = std::min<size_t>(1 + rng.below(most), got.size() - in);
      const size_t second = std::min<size_t>(rng.below(100), got.size() - in - first);
      const std::array pieces = {iovec{.iov_base = got.data() + in, .iov_len = first},
                                 iovec{.iov_base = got.data() + in + first, .iov_len = second}};
      const IoResult result =
          intake_.read(receiver_.get(), std::span(pieces).first(second > 0 ? 2 : 1));
      ASSERT_NE(result.state, IoState::kClosed) << "seed " << seed;
      in += result.count;
      if (rng.below(20) == 0) intake_.settle(receiver_.get());
    }
    ASSERT_EQ(sent, got) << "seed " << seed;
  }
}

TEST_F(Intakes, AcknowledgeShortMessagesThreeAtATime) {
  if (!canPeek()) GTEST_SKIP() << "this system does not peek beyond what was peeked";
  for (int i = 0; i < 40; ++i) pass(16, 1);
  const uint32_t before = infoOf(receiver_).tcpi_segs_out;
  for (int i = 0; i < 300; ++i) pass(16, 1);
  EXPECT_LE(infoOf(receiver_).tcpi_segs_out - before, 110u);
}

TEST_F(Intakes, AcknowledgeASingleMessageWhenNoneFollows) {
  for (int i = 0; i < 40; ++i) pass(16, 1);
  intake_.settle(receiver_.get());
  pass(16, 100);
  EXPECT_EQ(infoOf(sender_).tcpi_unacked, 0u);
}

TEST_F(Intakes, LeaveNothingReadableOnceSettled) {
  for (int i = 0; i < 50; ++i) {
    pass(16, i % 2);
    intake_.settle(receiver_.get());
    EXPECT_FALSE(isReadable());
  }
}

TEST_F(Intakes, TellTheEndOfAConnectionAgainAndAgain) {
  for (int i = 0; i < 20; ++i) pass(16, i % 2);
  sender_ = UniqueFd();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(read(buffer_).state, IoState::kClosed);
}

TEST_F(Intakes, LetAPipeEndInOrder) {
  Pipe pipe(std::move(receiver_));
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(send(std::vector<std::byte>(16)), 16u);
    const iovec piece{.iov_base = buffer_.data(), .iov_len = buffer_.size()};
    for (size_t got = 0; got < 16;) {
      const IoResult result = pipe.read({&piece, 1});
      ASSERT_NE(result.state, IoState::kClosed);
      got += result.count;
    }
  }
  std::exchange(pipe, Pipe(UniqueFd()));
  std::byte byte{};
  EXPECT_EQ(::recv(sender_.get(), &byte, 1, 0), 0) << errno;  // and not reset
}

}  // namespace
}  // namespace tutti::net::socket
