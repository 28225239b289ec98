#include "transport/net/pump.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/log.h"
#include "transport/parting.h"

namespace tutti::transport::net {

using tutti::net::kMaxNoticeBytes;
using tutti::net::kNotice;
using tutti::net::Label;
using tutti::net::Readiness;

namespace {

template <typename T>
T readOnce(T& field) {
  return std::atomic_ref(field).load(std::memory_order_relaxed);
}

// A reference names memory of this process.
std::span<const std::byte> payloadOf(const wire::LinkView& ring, uint64_t number,
                                     wire::MessageKind kind, uint32_t bytes) {
  if (kind != wire::MessageKind::kReference) return {wire::payloadIn(ring, number, bytes), bytes};
  wire::Reference reference;
  std::memcpy(&reference, ring.message(number).inlinePayload, sizeof reference);
  return {reinterpret_cast<const std::byte*>(reference.address), bytes};
}

// How often a sender that moves nothing looks whether the receiver has left: each look is a system
// call.
constexpr uint32_t kRunsBetweenLooks = 64;

}  // namespace

bool Pump::run() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  isAttended_ = true;
  unwatch();
  return moveNow();
}

uint64_t Pump::arrivedBytes() {
  const std::lock_guard lock(mutex_);
  return connection_ ? connection_->arrivedBytes() : 0;
}

void Pump::attend() {
  std::lock_guard lock(mutex_);
  isAttended_ = false;
  moveNow();
  if (connection_ && !hasEnded_) watch(wants());
}

void Pump::settle() {
  std::lock_guard lock(mutex_);
  isAttended_ = false;
  if (!sends()) return;
  moveNow();
  if (connection_ && !hasEnded_ && wants().toSend) watch(wants());
}

void Pump::leave(const Parting& parting) {
  std::lock_guard lock(mutex_);
  if (!leftAt_) {
    leftAt_ = options_.clock.now();
    ownNotice_ = encodeParting(parting, kMaxNoticeBytes);
  }
  moveNow();
  letGo();
  sendNotice();
}

Parting Pump::parting() {
  std::lock_guard lock(mutex_);
  return peerParting_;
}

void Pump::profile(observe::Profiler& profiler) {
  std::lock_guard lock(mutex_);
  log_ = std::make_unique<TransferLog>(profiler, options_.clock);
}

void Pump::beginTransfer(const observe::EventTag& call, const observe::TransferNote& note) {
  std::lock_guard lock(mutex_);
  if (log_ != nullptr) log_->begin(call, note);
}

void Pump::endTransfer(uint64_t endMessage) {
  std::lock_guard lock(mutex_);
  if (log_ != nullptr) used(endMessage);
}

void Pump::arrived(std::unique_ptr<tutti::net::Connection> connection) {
  std::lock_guard lock(mutex_);
  if (hasEnded_) return;
  connection_ = std::move(connection);
  connection_->keep(options_.memory);
  if (options_.takeGpuSlots) usesGpuSlots_ = options_.takeGpuSlots(*connection_);
  // Who left before the connection came still owes the notice.
  if (leftAt_) sendNotice();
  if (!isAttended_) watch(wants());
}

void Pump::work(uint64_t watch) {
  std::lock_guard lock(mutex_);
  if (watch != watch_) return;
  watch_ = 0;
  if (connection_ && !hasEnded_) listen();
  moveNow();
  worked_.notify_all();
  if (connection_ && !hasEnded_ && !isAttended_) this->watch(wants());
}

bool Pump::isOut() {
  std::lock_guard lock(mutex_);
  moveNow();
  return !connection_ || hasEnded_ || !wants().toSend;
}

// The peer may still read what was sent before, so the connection is closed only when all is out.
void Pump::close() {
  std::unique_lock lock(mutex_);
  if (!leftAt_) leftAt_ = options_.clock.now();
  const Instant deadline = *leftAt_ + options_.patience;
  const auto aborted = static_cast<uint32_t>(wire::LinkFault::kAborted);
  const bool isAborted = ownFault().load(std::memory_order_acquire) == aborted;
  isAttended_ = false;
  for (;;) {
    moveNow();
    if (!connection_ || hasEnded_ || isAborted || !wants().toSend) break;
    const Nanoseconds left = deadline - options_.clock.now();
    if (left.count() <= 0) break;
    watch(wants());
    const auto most = std::min<Nanoseconds>(left, std::chrono::milliseconds(100));
    if (options_.wait) {
      options_.wait(lock, most);
    } else {
      worked_.wait_for(lock, most);
    }
    unwatch();
  }
  sendNotice();
  unwatch();
  hasEnded_ = true;
  connection_.reset();
  log_.reset();
}

bool Pump::moveNow() { return connection_ && !hasEnded_ && move(); }

// Behind all messages: what was sent before the end is received before it. A connection that takes
// nothing any more ends without it, which tells the same less kindly. One whose network hangs has
// ended for this side alone.
void Pump::sendNotice() {
  const uint32_t fault = ownFault().load(std::memory_order_acquire);
  if (!connection_ || hasNoticed_ || fault == 0) return;
  if (hasEnded_ && !peerParting_.isOwn) return;
  const auto bytes = static_cast<uint32_t>(ownNotice_.size());
  const auto text = std::as_bytes(std::span(ownNotice_));
  if (connection_->send({.bytes = kNotice | bytes, .signature = fault}, text) == Progress::kIdle)
    return;
  hasNoticed_ = true;
  [[maybe_unused]] const Result<Progress> flushed = connection_->flush();
}

// A rank may go to sleep twice without a run between, with more to send the second time.
void Pump::watch(const Readiness& readiness) {
  const bool isSame =
      readiness.toReceive == watched_.toReceive && readiness.toSend == watched_.toSend;
  if (watch_ != 0 && isSame) return;
  unwatch();
  if (!readiness.toReceive && !readiness.toSend) return;
  Result<uint64_t> watch = options_.provider.watch(*connection_, readiness, shared_from_this());
  if (!watch.ok()) return;  // the rank's thread looks in at least every 100 ms
  watch_ = *watch;
  watched_ = readiness;
}

void Pump::unwatch() {
  if (watch_ != 0) options_.provider.unwatch(std::exchange(watch_, 0));
}

Result<Progress> Pump::receiveNotice(const Label& label) {
  const uint32_t bytes = label.bytes & ~kNotice;
  if (bytes > kMaxNoticeBytes)
    return Status(Code::kRemoteError, fmt::format("a notice of {} bytes came over a link", bytes));
  peerNotice_.resize(bytes);
  TUTTI_TRY_ASSIGN(const Progress progress, connection_->receivePayload(peerNotice_));
  if (progress == Progress::kIdle) return Progress::kIdle;
  const auto fault = static_cast<wire::LinkFault>(label.signature);
  const bool isKnown = fault == wire::LinkFault::kAborted || fault == wire::LinkFault::kDestroyed;
  end(isKnown ? fault : wire::LinkFault::kLost, decodeParting(peerNotice_));
  return Progress::kDone;
}

void Pump::lose(const Status& status) {
  end(wire::LinkFault::kLost,
      {.text = std::string(status.message()), .isOwn = connection_->isHung()});
}

void Pump::end(wire::LinkFault fault, Parting parting) {
  hasEnded_ = true;
  connection_->stop();  // nobody will ask it what became of the payloads
  peerParting_ = std::move(parting);
  if (options_.onEnd) options_.onEnd(peerParting_);
  uint32_t none = 0;
  peerFault().compare_exchange_strong(none, static_cast<uint32_t>(fault),
                                      std::memory_order_release);
  log::info(log::Subsystem::kNet, "a link ends: {}", peerParting_.text);
}

// ---- sending ------------------------------------------------------------------------------------

bool SendPump::move() {
  takeMessages();
  if (hasEnded()) return true;
  Result<Progress> flushed = connection().flush();
  if (!flushed.ok()) {
    listen();  // a notice that came before says more
    if (!hasEnded()) lose(flushed.status());
    return true;
  }
  if (releaseSent()) {
    if (log() != nullptr) log()->passed(port_.next);
    idleRuns_ = 0;
    slowWay_.sent(carried(), clock(), connection());
    takeMessages();
    return true;
  }
  if (++idleRuns_ % kRunsBetweenLooks == 0) listen();
  return false;
}

bool SendPump::releaseSent() {
  const uint64_t sent = std::min(connection().sentCount(), taken_);
  const bool isAny = port_.next < sent;
  while (port_.next < sent) wire::release(port_);
  return isAny;
}

void SendPump::takeMessages() {
  const wire::LinkView& ring = port_.view;
  for (;;) {
    wire::MessageHead& message = ring.message(taken_);
    if (message.mark.load(std::memory_order_acquire) != taken_ + 1) return;
    // Read once: the ring may be another process's, which might change them after the check.
    const Label label{.bytes = readOnce(message.bytes), .signature = readOnce(message.signature)};
    const wire::MessageKind kind = readOnce(message.kind);
    if (!isSound(kind, label.bytes)) {
      end(wire::LinkFault::kLost,
          {.text = fmt::format("a message of {} bytes, kind {}, is none for a network", label.bytes,
                               static_cast<uint32_t>(kind))});
      return;
    }
    if (log() != nullptr) log()->appeared(taken_, label.bytes);
    if (connection().send(label, payloadOf(ring, taken_, kind, label.bytes)) == Progress::kIdle)
      return;
    if (log() != nullptr) log()->moved(taken_);
    if (options().onTaken) options().onTaken(taken_, label.bytes);
    count(label.bytes);
    ++taken_;
  }
}

bool SendPump::isSound(wire::MessageKind kind, uint32_t bytes) const {
  const bool isKnown = kind == wire::MessageKind::kPayload ||
                       (kind == wire::MessageKind::kReference && !options().isForOther);
  return isKnown && bytes <= port_.view.geometry.slotBytes;
}

FutexPoint SendPump::nextMark() {
  std::lock_guard lock(mutex());
  for (uint64_t number = taken_;; ++number) {
    std::atomic<uint64_t>& mark = port_.view.message(number).mark;
    const uint64_t seen = mark.load(std::memory_order_acquire);
    if (seen != number + 1) return {.word = &mark, .seen = seen};
  }
}

// What was published goes out all the same, as copies: in the connection, or in the ring.
void SendPump::letGo() {
  if (hasEnded() || options().isForOther) return;
  const wire::LinkView& own = ring();
  connection().keepCopies(
      {reinterpret_cast<const std::byte*>(own.control), wire::linkBytes(own.geometry)});
  for (uint64_t number = taken_;
       port_.view.message(number).mark.load(std::memory_order_acquire) == number + 1; ++number) {
    wire::MessageHead& message = port_.view.message(number);
    if (message.kind != wire::MessageKind::kReference) continue;
    const std::span payload = payloadOf(port_.view, number, message.kind, message.bytes);
    std::memcpy(port_.view.payload(number, message.bytes), payload.data(), payload.size());
    message.kind = wire::MessageKind::kPayload;
  }
}

Readiness SendPump::wants() {
  return {.toReceive = true, .toSend = connection().sentCount() < taken_};
}

void SendPump::listen() {
  Status status = hear();
  if (!status.ok() && !hasEnded()) lose(status);
}

// The receiver sends nothing but that it leaves, or that it has little to do (slow_way.h), in a
// label without a payload.
Status SendPump::hear() {
  if (!hasLabel_) {
    TUTTI_TRY_ASSIGN(const Progress progress, connection().receiveLabel(label_));
    if (progress == Progress::kIdle) return {};
    if ((label_.bytes & kNotice) == 0 && label_.bytes != 0) {
      return Status(Code::kRemoteError,
                    fmt::format("the receiver of a link sends {} bytes", label_.bytes));
    }
    hasLabel_ = true;
    releaseSent();  // it may tell of more that has arrived
  }
  if ((label_.bytes & kNotice) != 0) return receiveNotice(label_).takeStatus();
  TUTTI_TRY_ASSIGN(const Progress progress, connection().receivePayload({}));
  if (progress == Progress::kIdle) return {};
  hasLabel_ = false;
  slowWay_.receiverIsQuiet(label_.signature, clock().now());
  return {};
}

// ---- receiving ----------------------------------------------------------------------------------

bool ReceivePump::move() {
  bool moved = false;
  if (log() != nullptr) log()->passed(port_.view.control->head.load(std::memory_order_acquire));
  while (!hasEnded() && wire::hasFreeSlot(port_, 0)) {
    Result<Progress> progress = receiveOne();
    if (!progress.ok()) {
      lose(progress.status());
      return true;
    }
    if (*progress == Progress::kIdle) break;
    moved = true;
  }
  return moved;
}

Result<Progress> ReceivePump::receiveOne() {
  if (!hasLabel_) {
    TUTTI_TRY_ASSIGN(const Progress progress, connection().receiveLabel(label_));
    if (progress == Progress::kIdle) return Progress::kIdle;
    hasLabel_ = true;
  }
  if ((label_.bytes & kNotice) != 0) return receiveNotice(label_);
  if (label_.bytes > port_.view.geometry.slotBytes) {
    return Status(Code::kRemoteError,
                  fmt::format("a message of {} bytes came over a link with slots of {}",
                              label_.bytes, port_.view.geometry.slotBytes));
  }
  if (log() != nullptr) log()->appeared(port_.next, label_.bytes);
  if (!wire::hasFreeSlot(port_, label_.bytes)) return Progress::kIdle;  // of a long message
  decideGoal();
  if (goal_ == Goal::kPostponed || (goal_ == Goal::kLanding && hasLetGo_)) return Progress::kIdle;
  const bool lands = goal_ == Goal::kLanding;
  std::byte* place = lands ? landing_.memory : slot(label_.bytes);
  TUTTI_TRY_ASSIGN(const Progress progress, connection().receivePayload({place, label_.bytes}));
  if (progress == Progress::kIdle) return Progress::kIdle;
  hasLabel_ = false;
  goal_ = Goal::kUndecided;
  if (progress == Progress::kAdvanced) return progress;  // it never comes, but a notice
  count(label_.bytes);
  tellWhereQuiet();
  if (log() != nullptr) log()->moved(port_.next);
  const bool isOnGpu = !lands && usesGpuSlots() && port_.view.isLong(label_.bytes);
  wire::publish(port_, label_.bytes, label_.signature,
                lands ? wire::MessageKind::kLanded : wire::MessageKind::kPayload,
                isOnGpu ? wire::kOnGpu : 0);
  return Progress::kDone;
}

// What does not go out at once is not worth waiting for.
void ReceivePump::tellWhereQuiet() {
  const uint32_t mbit = quiet_.received(carried(), clock(), connection());
  if (mbit == 0 || connection().send({.bytes = 0, .signature = mbit}, {}) == Progress::kIdle)
    return;
  [[maybe_unused]] const Result<Progress> flushed = connection().flush();
}

// Where the payload of the next message goes.
std::byte* ReceivePump::slot(size_t bytes) {
  if (!port_.view.isLong(bytes)) return port_.view.payload(port_.next, bytes);
  return usesGpuSlots() ? port_.view.gpuSlot(port_.longNext) : port_.view.longSlot(port_.longNext);
}

// Once a message. A rank that polls may be about to say where it wants a long one, when it has seen
// those before it: that is awaited for one run.
void ReceivePump::decideGoal() {
  if (goal_ == Goal::kSlot || goal_ == Goal::kLanding) return;
  const bool isWanted = !hasLetGo_ &&
                        landing_.wanted.load(std::memory_order_acquire) == port_.next + 1 &&
                        landing_.bytes == label_.bytes && landing_.signature == label_.signature &&
                        connection().reaches({landing_.memory, label_.bytes});
  if (isWanted) {
    goal_ = Goal::kLanding;
  } else if (goal_ == Goal::kUndecided && isAttended() && label_.bytes >= wire::kLandingMinBytes) {
    goal_ = Goal::kPostponed;
  } else {
    goal_ = Goal::kSlot;
  }
}

// Nobody reads the ring any more, so a payload that is on its way to the program's memory may stay
// in the connection.
void ReceivePump::letGo() {
  hasLetGo_ = true;
  if (goal_ == Goal::kLanding && !hasEnded()) connection().stop();
}

Readiness ReceivePump::wants() {
  const size_t bytes = hasLabel_ ? label_.bytes & ~kNotice : 0;
  return {.toReceive = wire::hasFreeSlot(port_, bytes) && !hasLetGo_, .toSend = false};
}

}  // namespace tutti::transport::net
