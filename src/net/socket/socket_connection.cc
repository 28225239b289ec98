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
// A payload from this length on is read straight to its place.
constexpr size_t kLongBytes = 8_KiB;

}  // namespace

static_assert(sizeof(Label) == 8);

SocketConnection::SocketConnection(UniqueFd fd, std::string peer)
    : fd_(std::move(fd)), peer_(std::move(peer)), stage_(kStageBytes), ahead_(kStageBytes) {}

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

void SocketConnection::keepCopies() {
  size_t bytes = 0;
  for (uint64_t m = sentCount_; m != takenCount_; ++m)
    bytes += outgoing_[m % kMaxOutgoing].payload.size();
  std::vector<std::byte> copies(bytes);
  size_t at = 0;
  for (uint64_t m = sentCount_; m != takenCount_; ++m) {
    std::span<const std::byte>& payload = outgoing_[m % kMaxOutgoing].payload;
    const std::span copy = std::span(copies).subspan(at, payload.size());
    std::ranges::copy(payload, copy.begin());
    payload = copy;
    at += copy.size();
  }
  copies_ = std::move(copies);
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
    TUTTI_TRY_ASSIGN(const Progress filled, fill(ahead_));
    if (filled == Progress::kIdle || staged() < sizeof label) return Progress::kIdle;
  }
  std::memcpy(&label, stage_.data() + begin_, sizeof label);
  begin_ += sizeof label;
  received_ = 0;
  return Progress::kDone;
}

Result<Progress> SocketConnection::receivePayload(std::span<std::byte> payload) {
  const bool isLong = payload.size() >= kLongBytes;
  ahead_ = isLong ? sizeof(Label) : kStageBytes;
  for (;;) {
    const size_t some = std::min(staged(), payload.size() - received_);
    if (some > 0) std::memcpy(payload.data() + received_, stage_.data() + begin_, some);
    begin_ += some;
    received_ += some;
    if (received_ == payload.size()) return Progress::kDone;
    TUTTI_TRY_ASSIGN(const Progress read,
                     isLong ? readPayload(payload.subspan(received_)) : fill(kStageBytes));
    if (read == Progress::kIdle) return Progress::kIdle;
  }
}

// Straight to its place, and what is there of the next label behind it. REQUIRES: nothing staged.
Result<Progress> SocketConnection::readPayload(std::span<std::byte> rest) {
  begin_ = end_ = 0;
  std::array<iovec, 2> pieces = {iovec{.iov_base = rest.data(), .iov_len = rest.size()},
                                 iovec{.iov_base = stage_.data(), .iov_len = sizeof(Label)}};
  for (;;) {
    const ssize_t read = ::readv(fd_.get(), pieces.data(), pieces.size());
    if (read > 0) {
      const size_t own = std::min(static_cast<size_t>(read), rest.size());
      received_ += own;
      end_ = static_cast<size_t>(read) - own;
      return Progress::kAdvanced;
    }
    if (read == 0) return ended(0);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Progress::kIdle;
    if (errno != EINTR) return ended(errno);
  }
}

// Reads what is there behind what is staged, at most so many bytes.
Result<Progress> SocketConnection::fill(size_t most) {
  std::memmove(stage_.data(), stage_.data() + begin_, staged());
  end_ -= std::exchange(begin_, 0);
  const auto room = std::span(stage_).subspan(end_);
  const bootstrap::IoResult read =
      bootstrap::readSome(fd_.get(), room.first(std::min(most, room.size())));
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
