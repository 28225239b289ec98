// Memory of one peer, mapped: what it announces over a link, for messages to name, offer or go to.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/mapping.h"
#include "wire/shared_segment.h"

namespace tutti::transport::shm {

struct SegmentOwner {
  std::string handoffName;  // of the process
  int32_t rank = 0;         // for messages
};

// Of one end of a link, and used like it. Nothing that comes over the link is trusted: a segment is
// mapped only when it is sealed, of this user and of the size announced, and a reference must lie
// within.
class PeerSegments final : public wire::SegmentMapper {
 public:
  explicit PeerSegments(SegmentOwner owner) : owner_(std::move(owner)) {}
  bool map(const wire::Announcement& announcement) override;
  std::byte* find(const wire::SharedReference& reference, size_t bytes) const override;

 private:
  struct Place {
    uint64_t serial = 0;
    UniqueMapping memory;
  };
  SegmentOwner owner_;
  std::array<Place, wire::kSegmentPlaces> places_;
};

}  // namespace tutti::transport::shm
