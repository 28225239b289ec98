#include "net/fabric_connection.h"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"

namespace tutti::net {
namespace {

using std::chrono::milliseconds;

constexpr size_t kShortBytes = kLabelSlotBytes - sizeof(Label);  // payloads that go with the label
// Each look at the control connection is a system call.
constexpr uint32_t kIdlesBetweenLooks = 64;
constexpr uint32_t kMaxTroubledLooks = 1024;  // for a notice, once a lane has failed
// Of lanes, for what a sender that has gone had sent before.
constexpr uint64_t kLastRounds = 2;
// For a payload that is partly out, when its memory is taken back: adapters need microseconds, and
// whoever fails has links to many.
constexpr milliseconds kPatience{20};

Status garbled(const std::string& peer, std::string what) {
  return Status(Code::kRemoteError, fmt::format("{} sends {}", peer, what));
}

}  // namespace

// ---- what both ends have ------------------------------------------------------------------------

FabricConnection::FabricConnection(std::unique_ptr<Connection> control, LaneSet set)
    : control_(std::move(control)),
      set_(std::move(set)),
      slots_(std::make_shared<std::vector<std::byte>>(kWindow * kLabelSlotBytes)) {
  for (std::unique_ptr<Lane>& lane : std::exchange(set_.lanes, {})) {
    lanes_.push_back(holdLane(std::move(lane), set_.thread));
    if (lanes_.size() == 1) continue;
    enrolled_.push_back(std::make_unique<EnrolledMemory>(*lanes_.back(), set_.segments));
    roads_.push_back({.lane = lanes_.back().get(), .memory = enrolled_.back().get()});
  }
  slotMemory_ = labels().enroll(*slots_);
}

FabricConnection::~FabricConnection() { dropLanes(); }

// Memory is released before its lane goes.
void FabricConnection::dropLanes(std::vector<HeldLane::Keeper> keepers) {
  if (!hasLanes()) return;
  for (const auto& lane : lanes_) lane->stop();
  labels().release(slotMemory_, {});
  roads_.clear();
  enrolled_.clear();
  keepers.insert(keepers.end(), {slots_, linkMemory_});
  const auto kept = std::make_shared<const std::vector<HeldLane::Keeper>>(std::move(keepers));
  for (const auto& lane : lanes_) lane->beginClosing(kept);
  for (const auto& lane : lanes_) lane->awaitClosed();
  lanes_.clear();
}

Status FabricConnection::takeGpuMemory(const GpuRegion& region) {
  for (size_t i = 0; i < enrolled_.size(); ++i) {
    const size_t device = set_.devices[i + 1];
    const std::string& obstacle = region.obstacles[device];
    Status status = obstacle.empty() ? enrolled_[i]->keep(region)
                                     : Status(Code::kInvalidUsage, std::string(obstacle));
    if (status.ok()) continue;
    for (size_t earlier = 0; earlier < i; ++earlier) enrolled_[earlier]->forget(region.bytes, {});
    return status;
  }
  gpu_ = region.bytes;
  return {};
}

bool FabricConnection::reaches(std::span<std::byte> memory) {
  return std::ranges::all_of(
      roads_, [memory](const Transfer::Road& road) { return road.memory->takes(memory); });
}

Status FabricConnection::breakOff(Status trouble) {
  if (!isHung()) control_.reset();
  return trouble;
}

Progress FabricConnection::sendNotice(const Label& label, std::span<const std::byte> text,
                                      uint64_t count) {
  std::memcpy(ownCount_.data(), &count, sizeof count);
  if (control().send({.bytes = sizeof count, .signature = 0}, ownCount_) == Progress::kIdle)
    return Progress::kIdle;
  return control().send(label, text);
}

Result<Progress> FabricConnection::hearNotice() {
  if (hasNotice()) return Progress::kDone;
  if (!controlEnd_.ok()) return controlEnd_.clone();
  Result<Progress> heard = readNotice();
  if (!heard.ok()) controlEnd_ = heard.status().clone();
  return heard;
}

Result<Progress> FabricConnection::readNotice() {
  if (heard_ == Heard::kNothing) {
    TUTTI_TRY_ASSIGN(const Progress progress, control().receiveLabel(notice_));
    if (progress == Progress::kIdle) return Progress::kIdle;
    if (notice_.bytes != peerCount_.size())
      return garbled(peer(), fmt::format("{} bytes on the control connection", notice_.bytes));
    heard_ = Heard::kCountLabel;
  }
  if (heard_ == Heard::kCountLabel) {
    TUTTI_TRY_ASSIGN(const Progress progress, control().receivePayload(peerCount_));
    if (progress == Progress::kIdle) return Progress::kIdle;
    heard_ = Heard::kCount;
  }
  if (heard_ == Heard::kCount) {
    TUTTI_TRY_ASSIGN(const Progress progress, control().receiveLabel(notice_));
    if (progress == Progress::kIdle) return Progress::kIdle;
    const uint32_t bytes = notice_.bytes & ~kNotice;
    if (bytes == notice_.bytes || bytes > kMaxNoticeBytes)
      return garbled(peer(), fmt::format("{} bytes in place of a notice", bytes));
    noticeText_.resize(bytes);
    heard_ = Heard::kLabel;
  }
  if (heard_ == Heard::kLabel) {
    TUTTI_TRY_ASSIGN(const Progress progress, control().receivePayload(noticeText_));
    if (progress == Progress::kIdle) return Progress::kIdle;
    heard_ = Heard::kAll;
  }
  return Progress::kDone;
}

void FabricConnection::takeNotice(std::span<std::byte> text) const {
  std::ranges::copy(std::span(noticeText_).first(std::min(text.size(), noticeText_.size())),
                    text.begin());
}

bool FabricConnection::mayHear(Result<Progress>& heard) {
  const bool mayCome = !isHung() && ++troubledLooks_ < kMaxTroubledLooks;
  return heard.ok() && (*heard == Progress::kDone || mayCome);
}

// Lanes and this connection are different roads, so the end of one is awaited for some looks at the
// others.
bool FabricConnection::hasPeerGone(uint64_t rounds) {
  Label none;
  if (controlEnd_.ok()) controlEnd_ = control().receiveLabel(none).takeStatus();
  if (controlEnd_.ok()) return false;
  if (!closedAtRound_) closedAtRound_ = laneRounds();
  return laneRounds() - *closedAtRound_ >= rounds * lanes_.size();
}

uint64_t FabricConnection::laneRounds() const {
  uint64_t rounds = 0;
  for (const auto& lane : lanes_) rounds += lane->rounds();
  return rounds;
}

uint64_t FabricConnection::peerCount() const {
  uint64_t count = 0;
  std::memcpy(&count, peerCount_.data(), sizeof count);
  return count;
}

// ---- sending ------------------------------------------------------------------------------------

Result<std::unique_ptr<Connection>> FabricSender::open(std::unique_ptr<Connection> control,
                                                       LaneSet set) {
  return std::unique_ptr<Connection>(new FabricSender(std::move(control), std::move(set)));
}

Progress FabricSender::send(const Label& label, std::span<const std::byte> payload) {
  // The receiver need not wait for what is stuck.
  if ((label.bytes & kNotice) != 0)
    return sendNotice(label, payload, isHung() ? 0 : wholeCount_.value_or(taken_));
  if (taken_ - sent_ == kWindow || !hasLanes()) return Progress::kIdle;
  Outgoing& message = outgoing_[taken_ % kWindow];
  const auto place = slot(taken_);
  message.isLong = payload.size() > kShortBytes;
  message.labelBytes = sizeof label + (message.isLong ? 0 : payload.size());
  message.isLabelSent = false;
  std::memcpy(place.data(), &label, sizeof label);
  if (message.isLong) {
    const std::span memory(const_cast<std::byte*>(payload.data()), payload.size());
    message.transfer.start(reaches(memory) ? memory : copyOf(message, payload), cut(taken_));
  } else if (!payload.empty()) {
    std::memcpy(place.data() + sizeof label, payload.data(), payload.size());
  }
  ++taken_;
  return Progress::kAdvanced;
}

std::vector<HeldLane::Keeper> FabricSender::copies() const {
  std::vector<HeldLane::Keeper> copies;
  copies.reserve(outgoing_.size());
  for (const Outgoing& message : outgoing_) copies.push_back(message.copy);
  return copies;
}

// No request in the message's copy is under way.
std::span<std::byte> FabricSender::copyOf(Outgoing& message, std::span<const std::byte> payload) {
  if (message.copy == nullptr || message.copy->size() < payload.size()) {
    for (const Transfer::Road& road : roads()) {
      if (message.copy != nullptr) road.memory->forget(*message.copy, message.copy);
    }
    message.copy = std::make_shared<std::vector<std::byte>>(payload.size());
  }
  const std::span copy = std::span(*message.copy).first(payload.size());
  std::ranges::copy(payload, copy.begin());
  return copy;
}

void FabricSender::keepCopies(std::span<const std::byte> own) {
  const Instant deadline = steadyClock().now() + kPatience;
  while (copyWhatIsLent(own)) {
    if (!moveAll().ok() || steadyClock().now() >= deadline) return giveUp();
    ::sched_yield();
  }
}

// True while a payload outside of the link's own memory is partly out.
bool FabricSender::copyWhatIsLent(std::span<const std::byte> own) {
  bool isAnyBegun = false;
  for (uint64_t number = sent_; number != taken_; ++number) {
    Outgoing& message = outgoing_[number % kWindow];
    const std::span<std::byte> payload = message.transfer.payload();
    const bool isCopied = message.copy != nullptr && isInside(payload, *message.copy);
    if (!message.isUnderWay() || isInside(payload, own) || isCopied || isOnGpu(payload)) continue;
    if (message.transfer.isBegun()) {
      isAnyBegun = true;
    } else {
      message.transfer.start(copyOf(message, payload), cut(number));
    }
  }
  return isAnyBegun;
}

void FabricSender::stop() {
  if (std::ranges::any_of(outgoing_, &Outgoing::isUnderWay)) giveUp();
}

void FabricSender::giveUp() {
  dropLanes(copies());
  for (Outgoing& each : outgoing_) each = {};
  wholeCount_ = sent_;
  sent_ = posted_ = taken_;
}

Result<Progress> FabricSender::flush() {
  if (laneTrouble_.ok()) {
    Result<Progress> moved = moveAll();
    if (moved.ok()) return moved;
    laneTrouble_ = moved.takeStatus();
  }
  // The lanes of a receiver that has let go end before its notice is here.
  Result<Progress> heard = hearNotice();
  return mayHear(heard) ? Result<Progress>(Progress::kIdle) : laneTrouble_.clone();
}

// After a failed flush() it is asked once more: a receiver that has left may have said why. It may
// say that it has messages of which the lanes have not told yet.
Result<Progress> FabricSender::receiveLabel(Label& label) {
  Result<Progress> heard = hearNotice();
  if (heard.ok() && *heard == Progress::kDone) {
    if (peerCount() > posted_) {
      return breakOff(garbled(peer(), fmt::format("that it has {} messages, of {} that were sent",
                                                  peerCount(), posted_)));
    }
    sent_ = std::max(sent_, peerCount());
    label = notice();
    return heard;
  }
  const bool mayCome = heard.ok() && !isHung() && troubledLooks_ < kMaxTroubledLooks;
  return laneTrouble_.ok() || mayCome ? std::move(heard) : breakOff(laneTrouble_.clone());
}

Result<Progress> FabricSender::moveAll() {
  for (; posted_ != taken_; ++posted_) {
    TUTTI_TRY_ASSIGN(const bool isPosted, postOne(outgoing_[posted_ % kWindow], posted_));
    if (!isPosted) break;
  }
  while (sent_ != taken_) {
    TUTTI_TRY_ASSIGN(const bool isSent, testOne(outgoing_[sent_ % kWindow]));
    if (!isSent || sent_ == posted_) break;
    ++sent_;
    hasMoved_ = true;
  }
  TUTTI_TRY_ASSIGN(const Progress flushed, control().flush());
  return sent_ == taken_ ? flushed : Progress::kIdle;
}

// All of it; nothing of a later message goes before it.
Result<bool> FabricSender::postOne(Outgoing& message, uint64_t number) {
  if (!message.label && !message.isLabelSent) {
    TUTTI_TRY_ASSIGN(message.label,
                     labels().post(slot(number).first(message.labelBytes), slotMemory_));
    if (!message.label) return false;
    hasMoved_ = true;
  }
  return message.isLong ? message.transfer.post(roads()) : Result<bool>(true);
}

Result<bool> FabricSender::testOne(Outgoing& message) {
  if (message.label) {
    TUTTI_TRY_ASSIGN(const std::optional<size_t> bytes, labels().test(message.label));
    if (bytes) {
      message.label = {};
      message.isLabelSent = true;
    }
  }
  if (message.isLong) {
    TUTTI_TRY_ASSIGN(const bool isMoved, message.transfer.test(roads()));
    if (!isMoved) return false;
  }
  return message.isLabelSent;
}

// ---- receiving ----------------------------------------------------------------------------------

Result<std::unique_ptr<Connection>> FabricReceiver::open(std::unique_ptr<Connection> control,
                                                         LaneSet set) {
  std::unique_ptr<FabricReceiver> receiver(new FabricReceiver(std::move(control), std::move(set)));
  TUTTI_TRY(receiver->postReceives());
  return std::unique_ptr<Connection>(std::move(receiver));
}

Status FabricReceiver::postReceives() {
  for (; posted_ != received_ + kWindow; ++posted_) {
    TUTTI_TRY_ASSIGN(receives_[posted_ % kWindow], labels().post(slot(posted_), slotMemory_));
    if (!receives_[posted_ % kWindow]) break;
  }
  return {};
}

void FabricReceiver::stop() {
  if (isTransferring_) dropLanes();
}

Result<Progress> FabricReceiver::receiveLabel(Label& label) {
  if (!laneTrouble_.ok()) return outlast(label);
  if (!hasLanes()) return Progress::kIdle;
  if (Status status = postReceives(); !status.ok()) return fail(std::move(status), label);
  if (posted_ == received_) return idle(&label);
  Result<std::optional<size_t>> bytes = labels().test(receives_[received_ % kWindow]);
  if (!bytes.ok()) return fail(bytes.takeStatus(), label);
  if (!*bytes) {
    // The end of a sender is heard by another road than what it sent before.
    Result<Progress> heard = idle(&label);
    return heard.ok() || hasPeerGone(kLastRounds) ? std::move(heard) : Progress::kIdle;
  }
  idleCount_ = 0;
  hasMoved_ = true;
  if (Status status = readLabel(**bytes, label); !status.ok()) return breakOff(std::move(status));
  return Progress::kDone;
}

Result<Progress> FabricReceiver::fail(Status trouble, Label& label) {
  laneTrouble_ = std::move(trouble);
  return outlast(label);
}

// Lanes of a sender that has left end in their own way; then its notice, which comes by another
// road, says why.
Result<Progress> FabricReceiver::outlast(Label& label) {
  Result<Progress> heard = hearControl(label, true);
  return mayHear(heard) ? std::move(heard) : Result<Progress>(breakOff(laneTrouble_.clone()));
}

Status FabricReceiver::readLabel(size_t bytes, Label& label) {
  if (bytes < sizeof label || bytes > kLabelSlotBytes)
    return garbled(peer(), fmt::format("a label of {} bytes", bytes));
  std::memcpy(&label, slot(received_).data(), sizeof label);
  const bool isLong = label.bytes > kShortBytes;
  if ((label.bytes & kNotice) != 0 || bytes - sizeof label != (isLong ? 0 : label.bytes)) {
    return garbled(peer(), fmt::format("{} bytes behind the label of a payload of {}",
                                       bytes - sizeof label, label.bytes));
  }
  payload_ = isLong ? Payload::kOverLanes : Payload::kWithLabel;
  payloadBytes_ = label.bytes;
  return {};
}

Result<Progress> FabricReceiver::receivePayload(std::span<std::byte> payload) {
  if (payload_ == Payload::kParting) {
    takeNotice(payload);
    return Progress::kDone;
  }
  if (!laneTrouble_.ok()) return outlastPayload();
  if (!hasLanes()) return Progress::kIdle;
  Result<Progress> taken = takePayload(payload);
  if (taken.ok()) return taken;
  laneTrouble_ = taken.takeStatus();
  return outlastPayload();
}

// A payload that will not come; its sender may have said why.
Result<Progress> FabricReceiver::outlastPayload() {
  Result<Progress> heard = hearNotice();
  if (!mayHear(heard)) return breakOff(laneTrouble_.clone());
  return *heard == Progress::kDone ? Progress::kAdvanced : Progress::kIdle;
}

Result<Progress> FabricReceiver::takePayload(std::span<std::byte> payload) {
  if (payload.size() != payloadBytes_) {
    return Status(Code::kInternalError, fmt::format("a place of {} bytes for a payload of {}",
                                                    payload.size(), payloadBytes_));
  }
  if (payload_ == Payload::kOverLanes) {
    TUTTI_TRY_ASSIGN(const Progress progress, receiveLong(payload));
    if (progress != Progress::kDone) return progress;
  } else if (!payload.empty()) {
    std::memcpy(payload.data(), slot(received_).data() + sizeof(Label), payload.size());
  }
  ++received_;
  return Progress::kDone;
}

Result<Progress> FabricReceiver::receiveLong(std::span<std::byte> payload) {
  if (!isTransferring_) {
    transfer_.start(payload, cut(received_));
    isTransferring_ = true;
  }
  TUTTI_TRY(transfer_.post(roads()).takeStatus());
  TUTTI_TRY_ASSIGN(const bool isMoved, transfer_.test(roads()));
  if (!isMoved) {
    Result<Progress> heard = idle(nullptr);
    if (!heard.ok() && !hasNotice()) {
      if (!hasPeerGone(kLastRounds)) return Progress::kIdle;
      return heard;
    }
    if (!hasNotice() || (peerCount() > received_ && !hasPeerGone(kMaxTroubledLooks)))
      return Progress::kIdle;
    return Status(Code::kRemoteError,
                  fmt::format("{} took its memory back amid message {}", peer(), received_));
  }
  if (isOnGpu(payload)) {
    TUTTI_TRY_ASSIGN(const bool isSeen, transfer_.flush(roads()));
    if (!isSeen) return Progress::kIdle;
  }
  isTransferring_ = false;
  idleCount_ = 0;
  hasMoved_ = true;
  return Progress::kDone;
}

// Nothing came over the lanes. `label`: where a notice may go now.
Result<Progress> FabricReceiver::idle(Label* label) {
  if (++idleCount_ % kIdlesBetweenLooks != 0 && !hasNotice()) return Progress::kIdle;
  Label later;
  return hearControl(label != nullptr ? *label : later, label != nullptr);
}

Result<Progress> FabricReceiver::hearControl(Label& label, bool mayDeliver) {
  TUTTI_TRY_ASSIGN(const Progress progress, hearNotice());
  if (progress == Progress::kIdle) return Progress::kIdle;
  // Over lanes that have failed nothing more will come, nor from who aborts amid it all.
  const bool isAll =
      received_ >= peerCount() || !laneTrouble_.ok() || hasPeerGone(kMaxTroubledLooks);
  if (!mayDeliver || !isAll) return Progress::kIdle;
  label = notice();
  payload_ = Payload::kParting;
  return Progress::kDone;
}

}  // namespace tutti::net
