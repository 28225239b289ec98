// Memory for messages that go out on several links and that their receivers read in place, where
// the links themselves tell when they have: each link's message is noted, and a room is free when
// the heads of all its links have passed their messages. A receiver raises a head with release
// after it has read what such a message names, at once, and the sender reads it with acquire before
// it writes there again (wire/link.h); calls that end would not do, as a root hears from nobody.
//
// Rooms are free in the order in which they were taken. A receiver that has gone keeps its own for
// ever: messages go as copies in slots then.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/cache_lines.h"
#include "base/units.h"
#include "wire/link.h"

namespace tutti::kernels {

// Of one communicator; used by the thread that drives its present operation. Ports that it was told
// of must be there whenever room is asked for.
class Rooms {
 public:
  static constexpr size_t kBytes = 512_KiB;
  // Messages under way: short ones of 32 slots to 15 receivers.
  static constexpr size_t kMostUnread = 512;

  // So much memory.
  explicit Rooms(std::byte* start, size_t bytes = kBytes) : start_(start), bytes_(bytes) {}

  // There is room for a message to so many links.
  bool isFree(size_t bytes, size_t linkCount) {
    const size_t size = roundUp(bytes, kCacheLineBytes);
    const uint64_t end = beginOf(size) + size;
    while (noted_ > passed_ && !fits(end, linkCount)) {
      if (!wire::isGivenBack(*oldest().port, oldest().number)) return false;
      ++passed_;
    }
    return true;
  }
  // That room; null: none is free. Each link's message is told to hold().
  std::byte* take(size_t bytes, size_t linkCount) {
    const size_t size = roundUp(bytes, kCacheLineBytes);
    if (size > bytes_ || linkCount > kMostUnread || !isFree(bytes, linkCount)) return nullptr;
    taken_ = beginOf(size);
    filled_ = taken_ + size;
    return start_ + taken_ % bytes_;
  }

  // The link's next message names the room that was taken last.
  void hold(wire::LinkPort& port) {
    unread_[noted_++ % kMostUnread] = {.port = &port, .number = port.next, .begin = taken_};
  }

  struct Unread {
    wire::LinkPort* port = nullptr;
    uint64_t number = 0;
    uint64_t begin = 0;  // of its room: those before are free
  };
  // The message whose receiver keeps the oldest room. REQUIRES: isFree() gave false.
  const Unread& keeper() { return oldest(); }

 private:
  Unread& oldest() { return unread_[passed_ % kMostUnread]; }
  bool fits(uint64_t end, size_t linkCount) {
    return end - oldest().begin <= bytes_ && noted_ + linkCount - passed_ <= kMostUnread;
  }
  // Rooms do not go on from the end to the beginning.
  uint64_t beginOf(size_t size) const {
    const uint64_t past = filled_ % bytes_;
    return past + size > bytes_ ? filled_ - past + bytes_ : filled_;
  }

  std::byte* start_;
  size_t bytes_;
  // Both grow for ever; a place is the rest by bytes_, or by kMostUnread.
  uint64_t filled_ = 0;
  uint64_t taken_ = 0;  // where the last room begins
  uint64_t noted_ = 0;
  uint64_t passed_ = 0;
  std::array<Unread, kMostUnread> unread_{};
};

}  // namespace tutti::kernels
