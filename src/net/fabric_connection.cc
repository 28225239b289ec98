#include "net/fabric_connection.h"

#include <algorithm>
#include <cstring>

namespace tutti::net {
namespace {

constexpr size_t kShortBytes = kLabelSlotBytes - sizeof(Label);  // payloads that go with the label
// Each look at the control connection is a system call.
constexpr uint32_t kIdlesBetweenLooks = 64;
constexpr uint32_t kMaxTroubledLooks = 64;  // for a notice, once a lane has failed

Status garbled(const std::string& peer, std::string what) {
  return Status(Code::kRemoteError, fmt::format("{} sends {}", peer, what));
}

}  // namespace

// ---- memory -------------------------------------------------------------------------------------

EnrolledMemory::~EnrolledMemory() {
  for (const Entry& entry : entries_) lane_.release(entry.memory);
}

Result<Lane::Memory> EnrolledMemory::of(std::span<std::byte> bytes) {
  const auto* begin = bytes.data();
  const auto* end = begin + bytes.size();
  ++questions_;
  for (Entry& entry : entries_) {
    if (entry.bytes.data() > begin || entry.bytes.data() + entry.bytes.size() < end) continue;
    if (entry.usedAt != kKept) entry.usedAt = questions_;
    return entry.memory;
  }
  if (entries_.size() == kMaxEntries) {
    const auto oldest = std::ranges::min_element(entries_, {}, &Entry::usedAt);
    lane_.release(oldest->memory);
    entries_.erase(oldest);
  }
  TUTTI_TRY_ASSIGN(const Lane::Memory memory, lane_.enroll(bytes));
  entries_.push_back({.bytes = bytes, .memory = memory, .usedAt = questions_});
  return memory;
}

Status EnrolledMemory::keep(const GpuRegion& region) {
  TUTTI_TRY_ASSIGN(const Lane::Memory memory, lane_.enrollGpu(region));
  entries_.push_back({.bytes = region.bytes, .memory = memory, .usedAt = kKept});
  return {};
}

void EnrolledMemory::drop(const GpuRegion& region) {
  const auto found = std::ranges::find_if(entries_, [&region](const Entry& entry) {
    return entry.bytes.data() == region.bytes.data();
  });
  if (found == entries_.end()) return;
  lane_.release(found->memory);
  entries_.erase(found);
}

// ---- long payloads ------------------------------------------------------------------------------

void Transfer::start(std::span<std::byte> payload, const Cut& cut) {
  constexpr size_t kAlign = 64;
  const size_t share = (payload.size() + cut.roadCount - 1) / cut.roadCount;
  payload_ = payload;
  firstRoad_ = cut.message % cut.roadCount;
  pieceBytes_ = std::max(kMinPieceBytes, (share + kAlign - 1) / kAlign * kAlign);
  pieceBytes_ = std::min(pieceBytes_, cut.maxPieceBytes);
  pieceCount_ = (payload.size() + pieceBytes_ - 1) / pieceBytes_;
  posted_ = 0;
  moved_ = 0;
  flushed_ = 0;
  isFlushing_ = false;
}

std::span<std::byte> Transfer::piece(size_t number) const {
  const size_t begin = number * pieceBytes_;
  return payload_.subspan(begin, std::min(pieceBytes_, payload_.size() - begin));
}

Result<bool> Transfer::post(std::span<const Road> roads) {
  for (; posted_ < pieceCount_; ++posted_) {
    if (posted_ - moved_ == kMaxPieces * roads.size()) return false;
    const Road& road = roadOf(posted_, roads);
    TUTTI_TRY_ASSIGN(const Lane::Memory memory, road.memory->of(payload_));
    TUTTI_TRY_ASSIGN(const Lane::Request request, road.lane->post(piece(posted_), memory));
    if (!request) return false;
    requests_[posted_ % requests_.size()] = request;
  }
  return true;
}

Result<bool> Transfer::test(std::span<const Road> roads) {
  for (size_t p = moved_; p < posted_; ++p) {
    Lane::Request& request = requests_[p % requests_.size()];
    if (request) {
      TUTTI_TRY_ASSIGN(const std::optional<size_t> bytes, roadOf(p, roads).lane->test(request));
      if (!bytes) continue;
      request = {};
      if (*bytes != piece(p).size()) {
        return Status(Code::kRemoteError, fmt::format("{} of {} bytes of a payload were moved",
                                                      *bytes, piece(p).size()));
      }
    }
    if (p == moved_) ++moved_;
  }
  return moved_ == pieceCount_;
}

// One a road: what a road brought before is seen no later than its last piece.
Result<bool> Transfer::flush(std::span<const Road> roads) {
  Lane::Request& request = requests_.front();  // none of the pieces' is under way
  for (; flushed_ < std::min(pieceCount_, roads.size()); ++flushed_) {
    const size_t last = (pieceCount_ - 1 - flushed_) / roads.size() * roads.size() + flushed_;
    const Road& road = roadOf(last, roads);
    if (!isFlushing_) {
      TUTTI_TRY_ASSIGN(const Lane::Memory memory, road.memory->of(payload_));
      TUTTI_TRY_ASSIGN(request, road.lane->flush(piece(last), memory));
      if (!request) continue;
      isFlushing_ = true;
    }
    TUTTI_TRY_ASSIGN(const std::optional<size_t> bytes, road.lane->test(request));
    if (!bytes) return false;
    request = {};
    isFlushing_ = false;
  }
  return true;
}

// ---- what both ends have ------------------------------------------------------------------------

FabricConnection::FabricConnection(std::unique_ptr<Connection> control, LaneSet set)
    : control_(std::move(control)), slots_(kWindow * kLabelSlotBytes), set_(std::move(set)) {
  for (size_t i = 1; i < set_.lanes.size(); ++i) {
    enrolled_.push_back(std::make_unique<EnrolledMemory>(*set_.lanes[i]));
    roads_.push_back({.lane = set_.lanes[i].get(), .memory = enrolled_.back().get()});
  }
}

FabricConnection::~FabricConnection() {
  if (isPrepared_) labels().release(slotMemory_);
}

Status FabricConnection::prepare() {
  TUTTI_TRY_ASSIGN(slotMemory_, labels().enroll(slots_));
  isPrepared_ = true;
  return {};
}

Status FabricConnection::takeGpuMemory(const GpuRegion& region) {
  for (size_t i = 0; i < enrolled_.size(); ++i) {
    const size_t device = set_.devices[i + 1];
    const std::string& obstacle = region.obstacles[device];
    Status status = obstacle.empty() ? enrolled_[i]->keep(region)
                                     : Status(Code::kInvalidUsage, std::string(obstacle));
    if (status.ok()) continue;
    for (size_t earlier = 0; earlier < i; ++earlier) enrolled_[earlier]->drop(region);
    return status;
  }
  gpu_ = region.bytes;
  return {};
}

Status FabricConnection::breakOff(Status trouble) {
  control_.reset();
  return trouble;
}

// ---- sending ------------------------------------------------------------------------------------

Result<std::unique_ptr<Connection>> FabricSender::open(std::unique_ptr<Connection> control,
                                                       LaneSet set) {
  std::unique_ptr<FabricSender> sender(new FabricSender(std::move(control), std::move(set)));
  TUTTI_TRY(sender->prepare());
  return std::unique_ptr<Connection>(std::move(sender));
}

Progress FabricSender::send(const Label& label, std::span<const std::byte> payload) {
  if ((label.bytes & kNotice) != 0) return sendNotice(label, payload);
  if (taken_ - sent_ == kWindow) return Progress::kIdle;
  Outgoing& message = outgoing_[taken_ % kWindow];
  const auto place = slot(taken_);
  message.isLong = payload.size() > kShortBytes;
  message.labelBytes = sizeof label + (message.isLong ? 0 : payload.size());
  message.isLabelSent = false;
  std::memcpy(place.data(), &label, sizeof label);
  if (message.isLong) {
    const std::span memory(const_cast<std::byte*>(payload.data()), payload.size());
    message.transfer.start(memory, cut(taken_));
  } else if (!payload.empty()) {
    std::memcpy(place.data() + sizeof label, payload.data(), payload.size());
  }
  ++taken_;
  return Progress::kAdvanced;
}

// Another road, so it says how many messages it comes behind.
Progress FabricSender::sendNotice(const Label& label, std::span<const std::byte> text) {
  std::memcpy(lastCount_.data(), &taken_, sizeof taken_);
  if (control().send({.bytes = sizeof taken_, .signature = 0}, lastCount_) == Progress::kIdle)
    return Progress::kIdle;
  return control().send(label, text);
}

Result<Progress> FabricSender::flush() {
  Result<Progress> moved = moveAll();
  if (!moved.ok()) laneTrouble_ = moved.status().clone();
  return moved;
}

// After a failed flush() it is asked once more: a receiver that has left may have said why.
Result<Progress> FabricSender::receiveLabel(Label& label) {
  Result<Progress> heard = control().receiveLabel(label);
  if (laneTrouble_.ok() || (heard.ok() && *heard == Progress::kDone)) return heard;
  return breakOff(laneTrouble_.clone());
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
  TUTTI_TRY(receiver->prepare());
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

Result<Progress> FabricReceiver::receiveLabel(Label& label) {
  if (!laneTrouble_.ok()) return outlast(label);
  if (Status status = postReceives(); !status.ok()) return fail(std::move(status), label);
  if (posted_ == received_) return idle(&label);
  Result<std::optional<size_t>> bytes = labels().test(receives_[received_ % kWindow]);
  if (!bytes.ok()) return fail(bytes.takeStatus(), label);
  if (!*bytes) return idle(&label);
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
  if (heard.ok() && (*heard == Progress::kDone || ++troubledLooks_ < kMaxTroubledLooks))
    return heard;
  return breakOff(laneTrouble_.clone());
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
  Result<Progress> taken = takePayload(payload);
  return taken.ok() ? std::move(taken) : Result<Progress>(breakOff(taken.takeStatus()));
}

Result<Progress> FabricReceiver::takePayload(std::span<std::byte> payload) {
  if (payload_ == Payload::kParting) return control().receivePayload(payload);
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
  if (!isMoved) return idle(nullptr);
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
  if (++idleCount_ % kIdlesBetweenLooks != 0 && !isCountRead_) return Progress::kIdle;
  Label later;
  return hearControl(label != nullptr ? *label : later, label != nullptr);
}

// The sender's notice: how many messages come before it, its label, its text.
Result<Progress> FabricReceiver::hearControl(Label& label, bool mayDeliver) {
  if (!isCountLabelRead_) {
    TUTTI_TRY_ASSIGN(const Progress progress, control().receiveLabel(notice_));
    if (progress == Progress::kIdle) return Progress::kIdle;
    if (notice_.bytes != lastCount_.size())
      return garbled(peer(), fmt::format("{} bytes on the control connection", notice_.bytes));
    isCountLabelRead_ = true;
  }
  if (!isCountRead_) {
    TUTTI_TRY_ASSIGN(const Progress progress, control().receivePayload(lastCount_));
    if (progress == Progress::kIdle) return Progress::kIdle;
    isCountRead_ = true;
  }
  if (!isNoticeLabelRead_) {
    TUTTI_TRY_ASSIGN(const Progress progress, control().receiveLabel(notice_));
    if (progress == Progress::kIdle) return Progress::kIdle;
    if ((notice_.bytes & kNotice) == 0)
      return garbled(peer(), fmt::format("{} bytes in place of a notice", notice_.bytes));
    isNoticeLabelRead_ = true;
  }
  uint64_t count = 0;
  std::memcpy(&count, lastCount_.data(), sizeof count);
  if (!mayDeliver || received_ < count) return Progress::kIdle;
  label = notice_;
  payload_ = Payload::kParting;
  return Progress::kDone;
}

}  // namespace tutti::net
