// A rank's own memory that its peers map, for messages that go to several of them: it writes those
// once, and each link's message only says where. Of 8 ranks on 2 CPUs a message's lines then cross
// from one CPU to the other once, not once a reader, and the few places it has stay in the caches.
//
// Calls in which all hear from all take turns with two halves, which nobody gives back: what was
// written in one call is free when a later such call has ended, as who sent something there was
// through with all calls before. The others' messages have rooms that their links give back.
//
// Where ranks are of several hosts there are rooms alone, for the long messages that a rank sends
// to several of its host: each lies there once and goes over the network from the output.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/cache_lines.h"
#include "base/units.h"
#include "kernels/rooms.h"
#include "wire/shared_segment.h"

namespace tutti::kernels {

// Of one communicator; used by the thread that drives its present operation.
class Outbox {
 public:
  // Enough for all that a rank posts in most calls; a longer call's other messages go as copies.
  static constexpr size_t kHalfBytes = 260_KiB;
  static constexpr size_t kBytes = 2 * kHalfBytes + kCacheLineBytes + Rooms::kBytes;

  // Where a half's first message begins: buffers of malloc begin 16 bytes after a page, and copies
  // from a page to there are slow (base/copy_memory.h).
  static constexpr size_t kLeadBytes = kCacheLineBytes;

  // Four messages of the usual slots between hosts, so that they stay in a cache.
  static constexpr size_t kRoomsOfHostsBytes = 1_MiB;

  enum class Reach : uint8_t { kOneHost, kHosts };  // of its communicator
  static constexpr Reach reachOf(bool isOneHost) {
    return isOneHost ? Reach::kOneHost : Reach::kHosts;
  }
  static constexpr size_t bytesFor(Reach reach) {
    return reach == Reach::kOneHost ? kBytes : kRoomsOfHostsBytes + kLeadBytes;
  }

  // Memory of bytesFor(reach) at least, which outlives it, and which peers that have it mapped may
  // go on reading after it was given back.
  explicit Outbox(const wire::SharedSegment& segment, Reach reach = Reach::kOneHost)
      : segment_(segment),
        reach_(reach),
        rooms_(const_cast<std::byte*>(segment.start) + kLeadBytes +
                   (reach == Reach::kOneHost ? 2 * kHalfBytes : 0),
               reach == Reach::kOneHost ? Rooms::kBytes : kRoomsOfHostsBytes) {}

  const wire::SharedSegment& segment() const { return segment_; }
  bool isOfHosts() const { return reach_ == Reach::kHosts; }

  // Shorter messages are copied as soon: one-shot of 1 KiB 1.0 to 1.1 of the time, of 4 KiB 0.92
  // and 0.80 (4 and 8 ranks on 2 CPUs); all-gather by 8 of 1 KiB each 1.02, 4 KiB 0.87, 8 KiB 0.4
  // (AMD EPYC VM, 2026-11-24). Between hosts only those of long calls were measured.
  size_t minBytes() const { return isOfHosts() ? 32_KiB : 2_KiB; }

  // For calls in which this rank does not hear from all others.
  Rooms& rooms() { return rooms_; }

  // A call begins in which this rank hears from all others.
  void begin() {
    ++call_;
    isOpen_ = true;
    filled_ = kLeadBytes;
    if (isFree(1 - half_)) {
      half_ = 1 - half_;
    } else {
      isOpen_ = isFree(half_);
    }
  }
  // It has ended well.
  void end() { heardIn_ = call_; }

  // Room for a message; null: none. Stays as it is until all have read it.
  std::byte* take(size_t bytes) {
    const size_t room = roundUp(bytes, kCacheLineBytes);
    if (!isOpen_ || room > kHalfBytes - filled_) return nullptr;
    std::byte* taken = const_cast<std::byte*>(segment_.start) + half_ * kHalfBytes + filled_;
    filled_ += room;
    usedIn_[half_] = call_;
    return taken;
  }
  wire::SharedReference reference(const std::byte* taken) const {
    return {.serial = segment_.serial,
            .offset = static_cast<uint64_t>(taken - segment_.start),
            .address = reinterpret_cast<uint64_t>(taken)};
  }

 private:
  bool isFree(size_t half) const { return usedIn_[half] == 0 || usedIn_[half] < heardIn_; }

  const wire::SharedSegment segment_;
  const Reach reach_;
  Rooms rooms_;
  uint64_t call_ = 0;                 // the present one's number
  uint64_t heardIn_ = 0;              // the last that has ended
  std::array<uint64_t, 2> usedIn_{};  // the last that wrote to each half; 0: none
  size_t half_ = 0;                   // which the present call writes to
  size_t filled_ = kLeadBytes;
  bool isOpen_ = false;
};

}  // namespace tutti::kernels
