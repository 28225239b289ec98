#include "launch/segment_cache.h"

namespace tutti::launch {

wire::SharedSegment SegmentCache::find(const void* buffer, size_t bytes) {
  if (!hasAny() || bytes == 0) return {};
  // A buffer that is freed meanwhile is the caller's mistake; one freed before the call is seen.
  if (const uint64_t generation = memory_->generation(); generation != generation_) {
    places_ = {};
    generation_ = generation;
  }
  for (const wire::SharedSegment& place : places_) {
    if (place.contains(buffer, bytes)) return place;
  }
  const wire::SharedSegment found = memory_->find(buffer, bytes);
  if (found.serial != 0) places_[next_++ % kPlaces] = found;
  return found;
}

}  // namespace tutti::launch
