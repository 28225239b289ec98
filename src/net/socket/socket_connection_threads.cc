#include "net/socket/socket_connection_threads.h"

#include <algorithm>
#include <utility>

namespace tutti::net::socket {

std::unique_ptr<SocketConnection::Threads> SocketConnection::Threads::open(
    SocketConnection& connection, StreamThreads& threads) {
  if (threads.count() == 0) return nullptr;
  auto made = std::make_unique<Threads>(connection, threads);
  return made->bell_.fd() >= 0 ? std::move(made) : nullptr;
}

SocketConnection::Threads::Threads(SocketConnection& connection, StreamThreads& threads)
    : connection_(connection), threads_(threads), firstPlace_(threads.takePlace()) {
  for (size_t i = 0; i < connection.streams_.size(); ++i) {
    senders_.emplace_back(*this, i);
    receivers_.emplace_back(*this, i);
  }
  for (Sending& work : senders_) senderOf(work.place).attach(work);
  for (Receiving& work : receivers_) receiverOf(work.place).attach(work);
}

SocketConnection::Threads::~Threads() {
  for (Sending& work : senders_) senderOf(work.place).detach(work);
  for (Receiving& work : receivers_) receiverOf(work.place).detach(work);
}

pollfd SocketConnection::Threads::awaited(size_t stream, short events) const {
  return {.fd = connection_.streams_[stream].pipe.fd(), .events = events, .revents = 0};
}

// ---- sending ------------------------------------------------------------------------------------

void SocketConnection::Threads::flush() {
  const uint64_t taken = connection_.takenCount_;
  const bool isMuch = connection_.unsentBytes() >= kGivenBytes;
  const bool isNew = std::exchange(flushedCount_, taken) != taken;
  bool mayTake = true;  // one at a time: the caller has other links to look at
  for (Sending& work : senders_) {
    StreamThread& thread = senderOf(work.place);
    bool isTheirs = work.isTheirs();
    if (isTheirs && mayTake && !thread.isMoving() && thread.tryTake(work)) {
      work.takeBack();
      isTheirs = mayTake = false;
    }
    if (!isTheirs) connection_.advance(work.place, 0, taken);  // it may have no part of a message
    if (isNew && (isTheirs || (isMuch && connection_.hasUnsent(work.place)))) {
      work.givenCount.store(taken, std::memory_order_release);
      thread.post(work);
      continue;
    }
    if (isTheirs) continue;
    connection_.write(work.place);
    work.writtenCount.store(connection_.streams_[work.place].message, std::memory_order_relaxed);
  }
  connection_.sentCount_ = leastWritten();
}

uint64_t SocketConnection::Threads::leastWritten() const {
  uint64_t least = ~uint64_t{0};
  for (const Sending& work : senders_)
    least = std::min(least, work.writtenCount.load(std::memory_order_seq_cst));
  return least;
}

Progress SocketConnection::Threads::sendSome(Sending& work) {
  const uint64_t given = work.givenCount.load(std::memory_order_acquire);
  if (work.writtenCount.load(std::memory_order_relaxed) >= given) return Progress::kDone;
  const Progress progress = connection_.writeOnce(work.place, given);
  const uint64_t written = connection_.streams_[work.place].message;
  work.writtenCount.store(written, std::memory_order_seq_cst);
  if (bell_.isAwaited() && (leastWritten() != knownCount_.load(std::memory_order_relaxed) ||
                            connection_.sendFault_.isThere()))
    bell_.ring();
  return progress;
}

void SocketConnection::Threads::retractSending() {
  for (Sending& work : senders_) {
    senderOf(work.place).retract(work);
    work.takeBack();
  }
}

// ---- receiving ----------------------------------------------------------------------------------

bool SocketConnection::Threads::begin(std::span<std::byte> payload) {
  payload_ = {};
  if (payload.size() < kGivenBytes) return false;
  const auto hasPart = [&](const Receiving& work) {
    return connection_.partOf(connection_.labelCount_ - 1, payload.size(), work.place).bytes() > 0;
  };
  payload_ = payload;
  size_t parts = 0;
  for (Receiving& work : receivers_) {
    const bool isTheirs = hasPart(work);
    work.isTheirs.store(isTheirs, std::memory_order_relaxed);
    parts += isTheirs ? 1 : 0;
  }
  partsUnderWay_.store(parts, std::memory_order_relaxed);
  for (Receiving& work : receivers_) {
    if (hasPart(work)) receiverOf(work.place).post(work);
  }
  return true;
}

// One at a time, too.
void SocketConnection::Threads::takeOne() {
  for (Receiving& work : receivers_) {
    if (!receiverOf(work.place).tryTake(work)) continue;
    work.isTheirs.store(false, std::memory_order_relaxed);
    partsUnderWay_.fetch_sub(1, std::memory_order_seq_cst);
    return;
  }
}

Progress SocketConnection::Threads::receiveSome(Receiving& work) {
  if (!work.isTheirs.load(std::memory_order_acquire)) return Progress::kDone;
  Stream& stream = connection_.streams_[work.place];
  const size_t before = stream.received;
  connection_.readPart(work.place, payload_);
  const size_t wanted =
      connection_.partOf(connection_.labelCount_ - 1, payload_.size(), work.place).bytes();
  if (stream.received != wanted && !connection_.receiveFault_.isThere()) {
    if (stream.received != before) return Progress::kAdvanced;
    stream.pipe.settle();  // or the descriptor would look readable
    return Progress::kIdle;
  }
  work.isTheirs.store(false, std::memory_order_release);
  const bool isLast = partsUnderWay_.fetch_sub(1, std::memory_order_seq_cst) == 1;
  if (isLast || connection_.receiveFault_.isThere()) bell_.ring();
  return Progress::kDone;
}

void SocketConnection::Threads::retractReceiving() {
  for (Receiving& work : receivers_) receiverOf(work.place).retract(work);
}

// ---- waiting ------------------------------------------------------------------------------------

int SocketConnection::Threads::await(const Readiness& readiness) {
  const uint64_t known = connection_.sentCount_;
  const bool toReceive = readiness.toReceive && connection_.isReceiving_ && !payload_.empty();
  const bool toSend = readiness.toSend && (std::ranges::any_of(senders_, &Sending::isTheirs) ||
                                           leastWritten() != known);
  if (!toReceive && !toSend) return -1;
  knownCount_.store(known, std::memory_order_relaxed);
  bell_.await();
  const bool hasReceived = partsUnderWay() == 0 || connection_.receiveFault_.isThere();
  const bool hasSent = leastWritten() != known || connection_.sendFault_.isThere();
  if ((toReceive && hasReceived) || (toSend && hasSent)) bell_.ring();
  return bell_.fd();
}

}  // namespace tutti::net::socket
