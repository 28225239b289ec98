#include "net/socket/socket_connection.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "base/cache_lines.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "base/units.h"
#include "bootstrap/socket.h"
#include "net/socket/socket_connection_threads.h"
#include "net/socket/spread.h"
#include "net/socket/way.h"

namespace tutti::net::socket {
namespace {

using bootstrap::IoState;

constexpr size_t kStageBytes = 16_KiB;
// A payload from this length on is read straight to its place.
constexpr size_t kLongBytes = 8_KiB;
// The system acknowledges at once when it has more than the longest segment so far, 536 bytes at
// first; and it takes the length of two equal segments after each other for the longest.
constexpr std::array<std::byte, 14_KiB> kFiller{};
constexpr size_t kUnequalFrom = 256;
// Parts are at least so long: each costs a system call on either side.
constexpr size_t kLeastPartBytes = 32_KiB;
// A link carries messages one way, so nothing takes an acknowledgement along: each short message
// costs its receiver another packet, and its sender the work of one; held back, every second one.
// The system forgets the wish when an acknowledgement has waited for 40 ms, so it is said again
// every so many messages. Two bare processes that exchange 16 bytes took 0.85
// to 0.93 of the time so (docs/results/notes.md, 2026-11-23).
constexpr uint64_t kLabelsPerHold = 64;

iovec pieceOf(std::span<std::byte> bytes) {
  return {.iov_base = bytes.data(), .iov_len = bytes.size()};
}

}  // namespace

static_assert(sizeof(Label) == 8);

uint32_t SocketConnection::Head::sum() const {
  return crc32c(std::as_bytes(std::span(this, 1)).first(offsetof(Head, ownSum)));
}

SocketConnection::SocketConnection(std::vector<Pipe> pipes, std::string peer,
                                   StreamThreads* threads, bool isChecked)
    : peer_(std::move(peer)),
      isChecked_(isChecked),
      shortHeadBytes_(isChecked ? offsetof(Head, rest) : sizeof(Label)),
      stage_(kStageBytes),
      ahead_(kStageBytes) {
  streams_.reserve(pipes.size());
  for (Pipe& pipe : pipes) streams_.push_back({.pipe = std::move(pipe)});
  if (threads != nullptr && streams_.size() > 1) threads_ = Threads::open(*this, *threads);
}

SocketConnection::~SocketConnection() = default;

// The kernel copies a message into pages of its own behind its head, and as slowly as copyMemory()
// says where that puts memory that begins on a page 8 bytes ahead of itself: all-gather of 256 KiB
// and 1 MiB by 2 ranks over loopback took 2.5 times as long (docs/results/notes.md, 2026-11-24).
size_t SocketConnection::headBytes(uint64_t message, size_t payloadBytes) const {
  if (payloadBytes >= kLongBytes) return sizeof(Head);
  const bool isLonger = payloadBytes >= kUnequalFrom && message % 2 == 1;
  return shortHeadBytes_ + (isLonger ? sizeof(Label) : 0) + (message == 0 ? kFiller.size() : 0);
}

// A long payload goes in equal parts over as many streams as give parts of some length, beginning
// with another one each time, so that all carry alike; a short one goes with its label.
SocketConnection::Part SocketConnection::partOf(uint64_t message, size_t payloadBytes,
                                                size_t stream) const {
  const size_t count = streams_.size();
  const size_t parts = std::min(count, payloadBytes / kLeastPartBytes);
  if (parts < 2) return stream == 0 ? Part{.begin = 0, .end = payloadBytes} : Part{};
  const size_t place = (stream + count - message % count) % count;
  const size_t share = roundUp(divideUp(payloadBytes, parts), kCacheLineBytes);
  return {.begin = std::min(place * share, payloadBytes),
          .end = place < parts ? std::min((place + 1) * share, payloadBytes)
                               : std::min(place * share, payloadBytes)};
}

// ---- sending ------------------------------------------------------------------------------------

Progress SocketConnection::send(const Label& label, std::span<const std::byte> payload) {
  if (takenCount_ - sentCount_ == kMaxOutgoing) return Progress::kIdle;
  Outgoing& message = outgoing_[takenCount_ % kMaxOutgoing];
  message = {.head = {.label = label}, .payload = payload};
  if (isChecked_) {
    message.head.payloadSum = crc32c(payload);
    message.head.ownSum = message.head.sum();
  }
  ++takenCount_;
  return Progress::kAdvanced;
}

Result<Progress> SocketConnection::flush() {
  if (sentCount_ == takenCount_) return Progress::kDone;
  if (threads_ != nullptr) {
    threads_->flush();
  } else {
    for (size_t i = 0; i < streams_.size(); ++i) write(i);
    sentCount_ = std::ranges::min_element(streams_, {}, &Stream::message)->message;
  }
  TUTTI_TRY(sendFault_.status());
  return sentCount_ == takenCount_ ? Progress::kDone : Progress::kIdle;
}

size_t SocketConnection::unsentBytes() const {
  size_t bytes = 0;
  for (uint64_t m = sentCount_; m != takenCount_; ++m)
    bytes += outgoing_[m % kMaxOutgoing].payload.size();
  return bytes;
}

size_t SocketConnection::bytesOver(uint64_t message, size_t stream) const {
  const size_t payload = outgoing_[message % kMaxOutgoing].payload.size();
  return (stream == 0 ? headBytes(message, payload) : 0) + partOf(message, payload, stream).bytes();
}

void SocketConnection::write(size_t place) {
  while (writeOnce(place, takenCount_) == Progress::kAdvanced) {
  }
}

// Of the messages before `end`, by one system call.
Progress SocketConnection::writeOnce(size_t place, uint64_t end) {
  Stream& stream = streams_[place];
  advance(place, 0, end);
  if (stream.message == end) return Progress::kDone;
  std::array<iovec, 2 * kMaxOutgoing + 1> pieces;
  size_t count = 0;
  size_t skip = stream.written;
  const auto add = [&](const void* data, size_t bytes) {
    const size_t skipped = std::min(skip, bytes);
    skip -= skipped;
    if (bytes == skipped) return;
    auto* at = static_cast<std::byte*>(const_cast<void*>(data)) + skipped;
    pieces[count++] = {.iov_base = at, .iov_len = bytes - skipped};
  };
  for (uint64_t m = stream.message; m != end; ++m) {
    const Outgoing& message = outgoing_[m % kMaxOutgoing];
    const Part part = partOf(m, message.payload.size(), place);
    if (place == 0) {
      const size_t bytes = headBytes(m, message.payload.size());
      const size_t own = std::min(bytes, sizeof(Head));
      add(&message.head, own);
      add(kFiller.data(), bytes - own);
    }
    add(message.payload.data() + part.begin, part.bytes());
  }
  const bootstrap::IoResult written = stream.pipe.write(std::span(pieces).first(count));
  if (written.state == IoState::kClosed) {
    sendFault_.set(ended(written.errnoValue));
    return Progress::kDone;
  }
  if (written.state != IoState::kMoved) return Progress::kIdle;
  advance(place, written.count, end);
  return stream.message == end ? Progress::kDone : Progress::kAdvanced;
}

void SocketConnection::advance(size_t place, size_t written, uint64_t end) {
  Stream& stream = streams_[place];
  stream.written += written;
  while (stream.message != end && stream.written >= bytesOver(stream.message, place)) {
    stream.written -= bytesOver(stream.message, place);
    ++stream.message;
  }
}

void SocketConnection::keepCopies(std::span<const std::byte> /*own*/) {
  if (threads_ != nullptr) threads_->retractSending();
  std::vector<std::byte> copies(unsentBytes());
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

void SocketConnection::stop() {
  if (threads_ == nullptr) return;
  threads_->retractSending();
  threads_->retractReceiving();
}

// Of all streams' interfaces, each once.
std::optional<Way> SocketConnection::way() const {
  constexpr size_t kSupposedMbit = 10'000;  // as the planner's prices do
  constexpr uint64_t kBytesPerMbit = 1'000'000 / 8;
  using std::chrono::microseconds;
  Way way;
  std::set<std::string> counted;
  for (const Stream& stream : streams_) {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (::getsockopt(stream.pipe.fd(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
    way.measuredPerSecond += info.tcpi_delivery_rate;
    way.roundTrip = std::max<Nanoseconds>(way.roundTrip, microseconds(info.tcpi_min_rtt));
    way.receiverLimited =
        std::max<Nanoseconds>(way.receiverLimited, microseconds(info.tcpi_rwnd_limited));
    const OwnEnd own = ownEnd(stream.pipe.fd());
    if (own.interface.empty() || own.isLoopback) return {};
    if (!counted.insert(own.interface).second) continue;
    const size_t mbit = linkSpeed(own.interface);
    way.isSupposed |= mbit == 0;
    way.bytesPerSecond += (mbit > 0 ? mbit : kSupposedMbit) * kBytesPerMbit;
    const InterfaceBytes moved = bytesOf(own.interface);
    way.interfaceBytes += moved.sent;
    way.interfaceArrived += moved.received;
    way.text += (way.text.empty() ? "" : ", ") + own.text;
  }
  way.text += " to " + peer_;
  return way;
}

uint64_t SocketConnection::arrivedBytes() const {
  uint64_t bytes = 0;
  for (const Stream& stream : streams_) {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (::getsockopt(stream.pipe.fd(), IPPROTO_TCP, TCP_INFO, &info, &size) == 0)
      bytes += info.tcpi_bytes_received + info.tcpi_bytes_acked;
  }
  return bytes;
}

// ---- receiving ----------------------------------------------------------------------------------

Result<Progress> SocketConnection::receiveLabel(Label& label) {
  TUTTI_TRY_ASSIGN(const Progress hasLabel, stage(shortHeadBytes_));
  if (hasLabel == Progress::kIdle) return Progress::kIdle;
  Head head;
  std::memcpy(&head, stage_.data() + begin_, shortHeadBytes_);
  if (isChecked_ && head.sum() != head.ownSum)
    return changed("the head of a message", head.ownSum, head.sum());
  const size_t payload = head.label.bytes & ~kNotice;
  const size_t bytes = headBytes(labelCount_, payload);
  TUTTI_TRY_ASSIGN(const Progress hasHead, stage(bytes));
  if (hasHead == Progress::kIdle) return Progress::kIdle;
  label = head.label;
  payloadSum_ = head.payloadSum;
  begin_ += bytes;
  if (payload < kLongBytes && labelCount_ % kLabelsPerHold == 0) streams_[0].pipe.holdAcks();
  ++labelCount_;
  return Progress::kDone;
}

Result<Progress> SocketConnection::receivePayload(std::span<std::byte> payload) {
  if (!isReceiving_ && beginPayload(payload)) return Progress::kIdle;
  if (threads_ != nullptr) threads_->takeOne();
  for (size_t i = 0; i < streams_.size(); ++i) {
    if (threads_ == nullptr || !threads_->isReceiving(i)) readPart(i, payload);
  }
  TUTTI_TRY(receiveFault_.status());
  if (threads_ != nullptr && threads_->partsUnderWay() > 0) return Progress::kIdle;
  size_t received = 0;
  for (const Stream& stream : streams_) received += stream.received;
  if (received != payload.size()) return Progress::kIdle;
  if (isChecked_) {
    if (const uint32_t sum = crc32c(payload); sum != payloadSum_)
      return changed(fmt::format("a message of {} bytes", payload.size()), payloadSum_, sum);
  }
  isReceiving_ = false;
  return Progress::kDone;
}

// True: it was given to threads, who should have a moment before the caller looks for what to take.
bool SocketConnection::beginPayload(std::span<std::byte> payload) {
  for (Stream& stream : streams_) stream.received = 0;
  isReceiving_ = true;
  payloadBytes_ = payload.size();
  ahead_ = payload.size() >= kLongBytes ? sizeof(Head) : kStageBytes;
  return threads_ != nullptr && threads_->begin(payload);
}

// Reads what is there of the present payload's part.
void SocketConnection::readPart(size_t place, std::span<std::byte> payload) {
  Stream& stream = streams_[place];
  const Part part = partOf(labelCount_ - 1, payload.size(), place);
  const std::span into = payload.subspan(part.begin, part.bytes());
  if (place == 0) return readFirst(into, payload.size() >= kLongBytes);
  while (stream.received != into.size()) {
    const std::array piece = {pieceOf(into.subspan(stream.received))};
    const bootstrap::IoResult read = stream.pipe.read(piece);
    if (read.state == IoState::kClosed) receiveFault_.set(ended(read.errnoValue));
    if (read.state != IoState::kMoved) return;
    stream.received += read.count;
  }
}

void SocketConnection::readFirst(std::span<std::byte> part, bool isLong) {
  size_t& received = streams_[0].received;
  for (;;) {
    const size_t some = std::min(staged(), part.size() - received);
    if (some > 0) std::memcpy(part.data() + received, stage_.data() + begin_, some);
    begin_ += some;
    received += some;
    if (received == part.size()) return;
    const Progress read = isLong ? readBehind(part.subspan(received)) : fill(kStageBytes);
    if (read == Progress::kIdle) return;
  }
}

// Straight to its place, and what is there of the next head behind it. REQUIRES: nothing staged.
Progress SocketConnection::readBehind(std::span<std::byte> rest) {
  Stream& stream = streams_[0];
  begin_ = end_ = 0;
  const std::array pieces = {pieceOf(rest), pieceOf(std::span(stage_).first(sizeof(Head)))};
  const bootstrap::IoResult read = stream.pipe.read(pieces);
  if (read.state == IoState::kClosed) receiveFault_.set(ended(read.errnoValue));
  if (read.state != IoState::kMoved) return Progress::kIdle;
  const size_t own = std::min(read.count, rest.size());
  stream.received += own;
  end_ = read.count - own;
  return Progress::kAdvanced;
}

// Whether so many bytes are staged, after one look where they were not.
Result<Progress> SocketConnection::stage(size_t bytes) {
  if (staged() >= bytes) return Progress::kDone;
  if (std::exchange(isEmptied_, false)) return Progress::kIdle;
  fill(std::max(ahead_, bytes) - staged());
  TUTTI_TRY(receiveFault_.status());
  if (staged() >= bytes) return Progress::kDone;
  isEmptied_ = false;
  return Progress::kIdle;
}

// Reads what is there behind what is staged, at most so many bytes.
Progress SocketConnection::fill(size_t most) {
  std::memmove(stage_.data(), stage_.data() + begin_, staged());
  end_ -= std::exchange(begin_, 0);
  const auto room = std::span(stage_).subspan(end_);
  const size_t wanted = std::min(most, room.size());
  const std::array piece = {pieceOf(room.first(wanted))};
  const bootstrap::IoResult read = streams_[0].pipe.read(piece);
  if (read.state == IoState::kClosed) receiveFault_.set(ended(read.errnoValue));
  if (read.state != IoState::kMoved) return Progress::kIdle;
  end_ += read.count;
  isEmptied_ = read.count < wanted;
  return Progress::kAdvanced;
}

std::vector<SocketConnection::Watched> SocketConnection::toWatch(const Readiness& readiness) {
  std::vector<Watched> watched;
  if (threads_ != nullptr) {
    const int bell = threads_->await(readiness);
    if (bell >= 0) watched.push_back({.fd = bell, .toSend = false});
  }
  for (size_t i = 0; i < streams_.size(); ++i) {
    Stream& stream = streams_[i];
    const bool receives = threads_ == nullptr || !threads_->isReceiving(i);
    const bool sends = threads_ == nullptr || !threads_->isSending(i);
    if (receives) stream.pipe.settle();
    const bool toReceive = readiness.toReceive && receives && isAwaited(i);
    // What lies in the pipe already makes no descriptor readable; room to send there is nearly
    // always, and says so at once.
    const bool toSend =
        (readiness.toSend && sends && hasUnsent(i)) || (toReceive && stream.pipe.hasMore());
    if (toSend || toReceive) watched.push_back({.fd = stream.pipe.fd(), .toSend = toSend});
  }
  return watched;
}

// Whether something is to be received there next.
bool SocketConnection::isAwaited(size_t stream) const {
  if (!isReceiving_) return stream == 0;
  return streams_[stream].received != partOf(labelCount_ - 1, payloadBytes_, stream).bytes();
}

// Found again at each later look: nothing behind it is to be believed.
Status SocketConnection::changed(std::string_view what, uint32_t wanted, uint32_t got) {
  if (!receiveFault_.isThere()) {
    receiveFault_.set(
        remoteError("{} from {} was changed on its way: its checksum is {:08x}, sent was {:08x} "
                    "(TUTTI_NET_CHECKSUM)",
                    what, peer_, got, wanted));
  }
  return receiveFault_.status();
}

// Not logged: whoever waits for the peer says what it means for the call.
Status SocketConnection::ended(int errnoValue) const {
  if (errnoValue == 0)
    return Status(Code::kRemoteError, "the connection to " + peer_ + " was closed");
  if (errnoValue == EBADMSG) {
    return Status(Code::kRemoteError,
                  fmt::format("what came over the connection from {} was changed, repeated or left "
                              "out on its way (TUTTI_SECURE=encrypt)",
                              peer_));
  }
  return Status(Code::kRemoteError,
                fmt::format("the connection to {} broke: {}", peer_, std::strerror(errnoValue)));
}

}  // namespace tutti::net::socket
