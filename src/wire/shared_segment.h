// Memory of a process that its peers map (ncclMemAlloc), and what two ranks tell each other about
// it over a link, so that messages can name it instead of bringing a copy.
//
// No agreement is needed beforehand: the sender announces a segment beside an ordinary message, the
// receiver answers in the link's control line whether it has mapped it, and only then do references
// to it follow. Who cannot map it gets copies for ever, and nobody notices but by the clock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti::wire {

// What the owner's hand-off service gives the segment's descriptor for. Random: nobody guesses it.
using SegmentToken = std::array<std::byte, 16>;

// A segment of this process. Serials count from 1 and are never used again within a process.
struct SharedSegment {
  uint64_t serial = 0;  // 0: none
  const std::byte* start = nullptr;
  uint64_t bytes = 0;
  SegmentToken token{};

  bool contains(const void* memory, size_t count) const {
    const auto first = reinterpret_cast<uintptr_t>(memory);
    const auto own = reinterpret_cast<uintptr_t>(start);
    return serial != 0 && first >= own && first - own <= bytes && count <= bytes - (first - own);
  }
};

// Sender to receiver, beside a message: please map this.
struct Announcement {
  uint64_t serial = 0;
  uint64_t bytes = 0;
  SegmentToken token{};
};

// The content of a message of kind kShared: so far into that segment of the sender.
struct SharedReference {
  uint64_t serial = 0;
  uint64_t offset = 0;
  uint64_t address = 0;  // the same in the sender's process, for itself, when both ends copy
};

// Both sides keep what one link has announced by serial modulo this. So neither grows, a new
// segment takes the place of one long freed, and more live ones than places cost copies, not
// errors.
inline constexpr size_t kSegmentPlaces = 64;

// The receiver's side of one link. Used by the thread that drives the operation.
class SegmentMapper {
 public:
  // Maps an announced segment in the place of an earlier one. False: it cannot; logged. May wait
  // for the owner's process to hand over memory, a fraction of a second; never for its user's
  // thread.
  virtual bool map(const Announcement& announcement) = 0;
  // Where the `bytes` that a reference names lie in this process; null unless the segment is mapped
  // and holds them all. Written to only where its owner has offered that (wire/placed_result.h).
  virtual std::byte* find(const SharedReference& reference, size_t bytes) const = 0;

 protected:
  ~SegmentMapper() = default;
};

// One side of one link: which segments the other has mapped, or this one of the other's.
//
// Handing a segment over costs 35 µs of CPU and a turn of the owner's service thread (2026-11-21,
// Xeon VM): wasted on a buffer that is freed after one call. So a segment is announced once as many
// bytes of it have gone as copies as one hand-over could copy; at worst both are paid. The same
// rule gives a segment back the place that a newer one took, and keeps two live ones from mapping
// each other out message by message.
class SegmentLedger {
 public:
  // 0: announces with the first message.
  explicit SegmentLedger(uint64_t bytesBefore = 0) : bytesBefore_(bytesBefore) {}

  bool isMapped(uint64_t serial) const {
    const Place& place = places_[serial % kSegmentPlaces];
    return place.serial == serial && place.isMapped;
  }
  // An announcement waits for its answer.
  bool isWaiting() const { return asked_ != 0; }
  // Counts the bytes, which go as a copy. True: the receiver should be asked for the segment.
  bool isWorthAsking(uint64_t serial, size_t bytes) {
    if (places_[serial % kSegmentPlaces].serial == serial) return false;
    Copied& copied = copied_[serial % kCountedPlaces];
    if (copied.serial != serial) copied = {.serial = serial};
    copied.bytes += bytes;
    return copied.bytes >= bytesBefore_;
  }
  void ask(uint64_t serial) {
    places_[serial % kSegmentPlaces] = {.serial = serial};
    copied_[serial % kCountedPlaces] = {};
    asked_ = serial;
  }
  // As the receiver wrote it: answers to anything but the last question are passed over.
  void takeAnswer(uint64_t answer) {
    if (answer >> 1 != asked_) return;
    places_[asked_ % kSegmentPlaces].isMapped = (answer & 1) != 0;
    asked_ = 0;
  }
  static uint64_t makeAnswer(uint64_t serial, bool isMapped) {
    return serial << 1 | static_cast<uint64_t>(isMapped);
  }

 private:
  struct Place {
    uint64_t serial = 0;
    bool isMapped = false;
  };
  // More than places for the mapped, so that two segments of one place, used in turn, do not start
  // each other's count anew.
  static constexpr size_t kCountedPlaces = 4 * kSegmentPlaces;
  struct Copied {
    uint64_t serial = 0;
    uint64_t bytes = 0;
  };
  uint64_t bytesBefore_;
  std::array<Place, kSegmentPlaces> places_{};
  std::array<Copied, kCountedPlaces> copied_{};
  uint64_t asked_ = 0;
};

}  // namespace tutti::wire
