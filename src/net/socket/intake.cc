#include "net/socket/intake.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/units.h"

namespace tutti::net::socket {
namespace {

using bootstrap::IoResult;
using bootstrap::IoState;
using bootstrap::readSome;
using bootstrap::setOption;

constexpr size_t kMostShortBytes = 8_KiB;
// More where short messages have come a few at a time, between others: to begin and to end costs
// a system call or two.
constexpr uint32_t kFewestReadsBefore = 4;
constexpr uint32_t kMostReadsBefore = 1024;
constexpr uint32_t kReadsThatPay = 64;
// Let go when nothing is there, or later by any read. A sender may have as few as four messages
// under way (BBR does at times) and waits then.
constexpr uint32_t kHeldBeforeIdle = 3;
constexpr uint32_t kMostHeld = 8;
// Fewer are let go when the sender may be waiting for their acknowledgement: after some 10 us.
constexpr uint32_t kEmptyReads = 32;

}  // namespace

Intake::Intake() : shortBytes_(kMostShortBytes), readsBefore_(kFewestReadsBefore) {}

IoResult Intake::read(int fd, std::span<const iovec> pieces) {
  if (peeking_ == Peeking::kYes) return peek(fd, pieces);
  settle(fd);
  const IoResult result = readSome(fd, pieces);
  if (result.state == IoState::kMoved) count(fd, result.count);
  return result;
}

IoResult Intake::peek(int fd, std::span<const iovec> pieces) {
  if (held_ == kMostHeld) settle(fd);
  const IoResult result = readSome(fd, pieces, MSG_PEEK);
  if (result.state == IoState::kWouldBlock) countEmpty(fd);
  if (result.state != IoState::kMoved) return result;
  ++held_;
  heldBytes_ += result.count;
  emptyReads_ = 0;
  count(fd, result.count);
  return result;
}

void Intake::count(int fd, size_t bytes) {
  if (bytes <= shortBytes_) {
    if (++shortReads_ == readsBefore_ && peeking_ == Peeking::kNo) beginPeeking(fd);
    return;
  }
  if (peeking_ == Peeking::kYes) endPeeking();
  shortReads_ = 0;
}

void Intake::countEmpty(int fd) {
  if (held_ >= kHeldBeforeIdle) {
    settle(fd);
  } else if (held_ > 0 && ++emptyReads_ == kEmptyReads) {
    settle(fd);
    // Also for a single message, for which the system would wait 40 ms.
    [[maybe_unused]] const bool isSet = setOption(fd, IPPROTO_TCP, TCP_QUICKACK, 2);
  }
}

void Intake::beginPeeking(int fd) {
  // Sockets that are no TCP's refuse the first of these. Once set, the system keeps the place.
  hasPlace_ = hasPlace_ || (setOption(fd, IPPROTO_TCP, TCP_QUICKACK, 0) &&
                            setOption(fd, SOL_SOCKET, SO_PEEK_OFF, 0));
  peeking_ = hasPlace_ ? Peeking::kYes : Peeking::kRefused;
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0)
    shortBytes_ = std::min<size_t>(kMostShortBytes, info.tcpi_rcv_mss / kHeldBeforeIdle);
}

void Intake::endPeeking() {
  peeking_ = Peeking::kNo;
  const bool wasWorthIt = shortReads_ >= readsBefore_ + kReadsThatPay;
  readsBefore_ = wasWorthIt ? kFewestReadsBefore : std::min(2 * readsBefore_, kMostReadsBefore);
}

void Intake::settle(int fd) {
  held_ = 0;
  while (heldBytes_ > 0) {  // all of it is there, so one call takes it
    const ssize_t taken = ::recv(fd, nullptr, heldBytes_, MSG_TRUNC);
    if (taken < 0 && errno == EINTR) continue;
    heldBytes_ = taken > 0 ? heldBytes_ - static_cast<size_t>(taken) : 0;
  }
}

}  // namespace tutti::net::socket
