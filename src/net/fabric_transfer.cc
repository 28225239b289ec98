#include "net/fabric_transfer.h"

#include <algorithm>

#include "base/log.h"

namespace tutti::net {

// ---- memory -------------------------------------------------------------------------------------

EnrolledMemory::~EnrolledMemory() {
  for (const Entry& entry : entries_) end(entry);
}

void EnrolledMemory::end(const Entry& entry) {
  if (!entry.isRefused) lane_.release(entry.memory);
  if (entry.segment.serial != 0) segments_->drop(entry.segment);
}

Result<Lane::Memory> EnrolledMemory::of(std::span<std::byte> bytes) {
  if (segments_ != nullptr && segments_->generation() != generation_) endFreed();
  ++questions_;
  for (Entry& entry : entries_) {
    if (!isInside(bytes, entry.bytes)) continue;
    if (entry.usedAt != kKept) entry.usedAt = questions_;
    if (entry.isRefused) return Status(Code::kSystemError, "the lane refused this memory before");
    return entry.memory;
  }
  return learn(bytes);
}

Result<Lane::Memory> EnrolledMemory::learn(std::span<std::byte> bytes) {
  if (entries_.size() == kMaxEntries) {
    const auto oldest = std::ranges::min_element(entries_, {}, &Entry::usedAt);
    end(*oldest);
    entries_.erase(oldest);
  }
  Entry entry{.bytes = bytes, .memory = {}, .usedAt = questions_};
  if (segments_ != nullptr) entry.segment = segments_->hold(bytes.data(), bytes.size());
  const bool isShared = entry.segment.serial != 0;
  if (isShared) entry.bytes = {const_cast<std::byte*>(entry.segment.start), entry.segment.bytes};
  Result<Lane::Memory> memory = lane_.enroll(entry.bytes);
  entry.isRefused = !memory.ok();
  if (entry.isRefused && !isShared) return memory;
  if (entry.isRefused) {
    log::info(log::Subsystem::kNet, "messages in {} bytes of ncclMemAlloc are copied: {}",
              entry.bytes.size(), memory.status().message());
  } else {
    entry.memory = *memory;
  }
  entries_.push_back(entry);
  return memory;
}

// Another segment may come to lie where one lay.
void EnrolledMemory::endFreed() {
  generation_ = segments_->generation();
  std::erase_if(entries_, [this](const Entry& entry) {
    const wire::SharedSegment& segment = entry.segment;
    if (segment.serial == 0 || segments_->find(segment.start, 1).serial == segment.serial)
      return false;
    end(entry);
    return true;
  });
}

Status EnrolledMemory::keep(const GpuRegion& region) {
  TUTTI_TRY_ASSIGN(const Lane::Memory memory, lane_.enrollGpu(region));
  entries_.push_back({.bytes = region.bytes, .memory = memory, .usedAt = kKept});
  return {};
}

void EnrolledMemory::forget(std::span<const std::byte> bytes) {
  std::erase_if(entries_, [&](const Entry& entry) {
    if (!isInside(entry.bytes, bytes)) return false;
    end(entry);
    return true;
  });
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

}  // namespace tutti::net
