#include "net/fabric_transfer.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/futex.h"
#include "base/log.h"

namespace tutti::net {
namespace {

// For a network to be told of a GPU's memory; then the link goes without.
constexpr std::chrono::seconds kGpuPatience{2};
constexpr std::chrono::microseconds kBetweenLooks{50};

}  // namespace

// ---- memory -------------------------------------------------------------------------------------

EnrolledMemory::~EnrolledMemory() {
  for (const Entry& entry : entries_) end(entry, {});
}

// A segment is dropped once the lane has forgotten it.
void EnrolledMemory::end(const Entry& entry, HeldLane::Keeper keeper) {
  if (entry.segment.serial != 0) {
    keeper.reset(entry.segment.start, [segments = segments_, segment = entry.segment](const void*) {
      segments->drop(segment);
    });
  }
  lane_.release(entry.memory, std::move(keeper));
}

bool EnrolledMemory::takes(std::span<std::byte> bytes) {
  Entry& entry = entryOf(bytes);
  if (entry.isTaken) return true;
  if (entry.isRefused) return false;
  Result<Progress> known = lane_.isKnown(entry.memory);
  entry.isTaken = known.ok() && *known == Progress::kDone;
  entry.isRefused = !known.ok();
  if (entry.isRefused) {
    log::info(log::Subsystem::kNet, "messages in {} bytes of ncclMemAlloc are copied: {}",
              entry.bytes.size(), known.status().message());
  }
  return entry.isTaken;
}

EnrolledMemory::Entry& EnrolledMemory::entryOf(std::span<std::byte> bytes) {
  if (segments_ != nullptr && segments_->generation() != generation_) endFreed();
  ++questions_;
  for (Entry& entry : entries_) {
    if (!isInside(bytes, entry.bytes)) continue;
    if (entry.usedAt != kKept) entry.usedAt = questions_;
    return entry;
  }
  return learn(bytes);
}

// What is no segment is the link's own, or the lane need not know it: what it refuses there is an
// error of the first message.
EnrolledMemory::Entry& EnrolledMemory::learn(std::span<std::byte> bytes) {
  if (entries_.size() == kMaxEntries) {
    const auto oldest = std::ranges::min_element(entries_, {}, &Entry::usedAt);
    end(*oldest, {});
    entries_.erase(oldest);
  }
  Entry entry{.bytes = bytes, .memory = {}, .usedAt = questions_};
  if (segments_ != nullptr) entry.segment = segments_->hold(bytes.data(), bytes.size());
  if (entry.segment.serial != 0)
    entry.bytes = {const_cast<std::byte*>(entry.segment.start), entry.segment.bytes};
  entry.isTaken = entry.segment.serial == 0;
  entry.memory = lane_.enroll(entry.bytes);
  return entries_.emplace_back(entry);
}

// Another segment may come to lie where one lay.
void EnrolledMemory::endFreed() {
  generation_ = segments_->generation();
  std::erase_if(entries_, [this](const Entry& entry) {
    const wire::SharedSegment& segment = entry.segment;
    if (segment.serial == 0 || segments_->find(segment.start, 1).serial == segment.serial)
      return false;
    end(entry, {});
    return true;
  });
}

Status EnrolledMemory::keep(const GpuRegion& region) {
  const Lane::Memory memory = lane_.enrollGpu(region);
  const Instant deadline = steadyClock().now() + kGpuPatience;
  Result<Progress> known = lane_.isKnown(memory);
  while (known.ok() && *known == Progress::kIdle && steadyClock().now() < deadline) {
    sleepFor(kBetweenLooks);
    known = lane_.isKnown(memory);
  }
  if (known.ok() && *known == Progress::kDone) {
    entries_.push_back({.bytes = region.bytes, .memory = memory, .usedAt = kKept, .isTaken = true});
    return {};
  }
  lane_.release(memory, {});
  return known.ok() ? Status(Code::kSystemError, "the network takes too long to be told of it")
                    : known.takeStatus();
}

void EnrolledMemory::forget(std::span<const std::byte> bytes, const HeldLane::Keeper& keeper) {
  std::erase_if(entries_, [&](const Entry& entry) {
    if (!isInside(entry.bytes, bytes)) return false;
    end(entry, keeper);
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
    const Lane::Memory memory = road.memory->of(payload_);
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
      const Lane::Memory memory = road.memory->of(payload_);
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
