#include "net/socket/socket_connection.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/units.h"
#include "bootstrap/socket.h"

namespace tutti::net::socket {
namespace {

using bootstrap::IoState;

constexpr size_t kStageBytes = 16_KiB;

}  // namespace

static_assert(sizeof(Label) == 8);

SocketConnection::SocketConnection(UniqueFd fd, std::string peer)
    : fd_(std::move(fd)), peer_(std::move(peer)), stage_(kStageBytes) {}

Progress SocketConnection::send(const Label& label, std::span<const std::byte> payload) {
  if (takenCount_ - sentCount_ == kMaxOutgoing) return Progress::kIdle;
  outgoing_[takenCount_ % kMaxOutgoing] = {.label = label, .payload = payload};
  ++takenCount_;
  return Progress::kAdvanced;
}

Result<Progress> SocketConnection::flush() {
  while (sentCount_ != takenCount_) {
    std::array<iovec, 2 * kMaxOutgoing> pieces;
    size_t count = 0;
    size_t skip = written_;
    const auto add = [&](const void* data, size_t bytes) {
      const size_t skipped = std::min(skip, bytes);
      skip -= skipped;
      if (bytes == skipped) return;
      auto* at = static_cast<std::byte*>(const_cast<void*>(data)) + skipped;
      pieces[count++] = {.iov_base = at, .iov_len = bytes - skipped};
    };
    for (uint64_t m = sentCount_; m != takenCount_; ++m) {
      const Outgoing& message = outgoing_[m % kMaxOutgoing];
      add(&message.label, sizeof message.label);
      add(message.payload.data(), message.payload.size());
    }
    msghdr header{};
    header.msg_iov = pieces.data();
    header.msg_iovlen = count;
    const ssize_t written = ::sendmsg(fd_.get(), &header, MSG_NOSIGNAL);
    if (written >= 0) {
      advance(static_cast<size_t>(written));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Progress::kIdle;
    return ended(errno);
  }
  return Progress::kDone;
}

void SocketConnection::advance(size_t written) {
  written_ += written;
  while (sentCount_ != takenCount_ && written_ >= outgoing_[sentCount_ % kMaxOutgoing].bytes()) {
    written_ -= outgoing_[sentCount_ % kMaxOutgoing].bytes();
    ++sentCount_;
  }
}

Result<Progress> SocketConnection::receiveLabel(Label& label) {
  if (staged() < sizeof label) {
    TUTTI_TRY_ASSIGN(const Progress filled, fill());
    if (filled == Progress::kIdle || staged() < sizeof label) return Progress::kIdle;
  }
  std::memcpy(&label, stage_.data() + begin_, sizeof label);
  begin_ += sizeof label;
  received_ = 0;
  return Progress::kDone;
}

Result<Progress> SocketConnection::receivePayload(std::span<std::byte> payload) {
  for (;;) {
    const size_t some = std::min(staged(), payload.size() - received_);
    std::memcpy(payload.data() + received_, stage_.data() + begin_, some);
    begin_ += some;
    received_ += some;
    if (received_ == payload.size()) return Progress::kDone;
    const auto rest = payload.subspan(received_);
    if (rest.size() < kStageBytes) {
      TUTTI_TRY_ASSIGN(const Progress filled, fill());
      if (filled == Progress::kIdle) return Progress::kIdle;
      continue;
    }
    const bootstrap::IoResult read = bootstrap::readSome(fd_.get(), rest);
    if (read.state == IoState::kClosed) return ended(read.errnoValue);
    if (read.state == IoState::kWouldBlock) return Progress::kIdle;
    received_ += read.count;
  }
}

// Reads what is there behind what is staged.
Result<Progress> SocketConnection::fill() {
  std::memmove(stage_.data(), stage_.data() + begin_, staged());
  end_ -= std::exchange(begin_, 0);
  const bootstrap::IoResult read = bootstrap::readSome(fd_.get(), std::span(stage_).subspan(end_));
  if (read.state == IoState::kClosed) return ended(read.errnoValue);
  if (read.state == IoState::kWouldBlock) return Progress::kIdle;
  end_ += read.count;
  return Progress::kAdvanced;
}

// Not logged: whoever waits for the peer says what it means for the call.
Status SocketConnection::ended(int errnoValue) const {
  if (errnoValue == 0)
    return Status(Code::kRemoteError, "the connection to " + peer_ + " was closed");
  return Status(Code::kRemoteError,
                fmt::format("the connection to {} broke: {}", peer_, std::strerror(errnoValue)));
}

}  // namespace tutti::net::socket
