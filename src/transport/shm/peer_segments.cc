#include "transport/shm/peer_segments.h"

#include <chrono>

#include "base/log.h"
#include "base/segment.h"
#include "bootstrap/handoff.h"

namespace tutti::transport::shm {
namespace {

// The owner's service answers within a fraction of a millisecond. A process that is stopped does
// not, and its peers had better go on with copies.
constexpr std::chrono::milliseconds kPatience{200};

Result<UniqueMapping> fetch(const std::string& owner, const wire::Announcement& announcement) {
  TUTTI_TRY_ASSIGN(const UniqueFd fd,
                   bootstrap::Handoff::take(owner, announcement.token, kPatience));
  return mapSegment(fd, announcement.bytes, SegmentAccess::kReadWrite);
}

}  // namespace

bool PeerSegments::map(const wire::Announcement& announcement) {
  Place& place = places_[announcement.serial % wire::kSegmentPlaces];
  place = {};
  if (announcement.serial == 0 || announcement.bytes == 0) return false;
  Result<UniqueMapping> memory = fetch(owner_.handoffName, announcement);
  if (!memory.ok()) {
    log::info(log::Subsystem::kShm,
              "segment {} of rank {} ({} bytes) cannot be mapped: its messages bring copies",
              announcement.serial, owner_.rank, announcement.bytes);
    return false;
  }
  log::info(log::Subsystem::kShm, "segment {} of rank {} mapped: {} bytes", announcement.serial,
            owner_.rank, announcement.bytes);
  place = {.serial = announcement.serial, .memory = std::move(*memory)};
  return true;
}

std::byte* PeerSegments::find(const wire::SharedReference& reference, size_t bytes) const {
  const Place& place = places_[reference.serial % wire::kSegmentPlaces];
  const size_t size = place.memory.bytes();
  if (reference.serial == 0 || place.serial != reference.serial) return nullptr;
  if (reference.offset > size || bytes > size - reference.offset) return nullptr;
  return static_cast<std::byte*>(place.memory.get()) + reference.offset;
}

}  // namespace tutti::transport::shm
