// What goes over a fabric's payload lanes: the memory that each lane knows, and long payloads, cut
// into pieces.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "device/shared_memory.h"
#include "net/fabric.h"
#include "net/held_lane.h"
#include "net/net.h"

namespace tutti::net {

inline constexpr size_t kMaxPayloadLanes = 4;
inline constexpr size_t kWindow = 8;  // messages under way

inline bool isInside(std::span<const std::byte> bytes, std::span<const std::byte> whole) {
  return bytes.data() >= whole.data() && bytes.data() + bytes.size() <= whole.data() + whole.size();
}

// Memory that a lane knows. Rings have few slots and programs few segments, so there are few
// entries; when there are many, the one goes that was not used for longest, which no message is in
// any more.
class EnrolledMemory {
 public:
  EnrolledMemory(HeldLane& lane, device::SharedMemory* segments)
      : lane_(lane), segments_(segments) {}
  ~EnrolledMemory();
  EnrolledMemory(const EnrolledMemory&) = delete;
  EnrolledMemory& operator=(const EnrolledMemory&) = delete;

  // Of a segment's, the whole segment.
  Lane::Memory of(std::span<std::byte> bytes) { return entryOf(bytes).memory; }
  // Whether the lane takes it, as far as it is known yet. Told once of a segment that it refuses.
  bool takes(std::span<std::byte> bytes);
  // Memory of a GPU, which stays known. Waits for the lane, some seconds at most.
  Status keep(const GpuRegion& region);
  // Known memory that goes away, with its keeper; no request in it is under way.
  void forget(std::span<const std::byte> bytes, const HeldLane::Keeper& keeper);

 private:
  static constexpr size_t kMaxEntries = 2 * kMaxRequests;
  static constexpr uint64_t kKept = ~uint64_t{0};
  struct Entry {
    std::span<std::byte> bytes;
    Lane::Memory memory;
    uint64_t usedAt = 0;            // the question that it answered last; kKept
    wire::SharedSegment segment{};  // held; without a serial: memory of the link's own
    bool isTaken = false;           // payloads may lie there
    bool isRefused = false;         // the lane does not take this segment
  };
  Entry& entryOf(std::span<std::byte> bytes);
  Entry& learn(std::span<std::byte> bytes);
  void end(const Entry& entry, HeldLane::Keeper keeper);
  void endFreed();

  HeldLane& lane_;
  device::SharedMemory* const segments_;
  std::vector<Entry> entries_;
  uint64_t questions_ = 0;
  uint64_t generation_ = 0;  // of the segments, when it was last seen which are left
};

// A long payload on its way over the payload lanes.
class Transfer {
 public:
  struct Road {
    HeldLane* lane;
    EnrolledMemory* memory;
  };
  struct Cut {
    size_t roadCount = 1;
    size_t maxPieceBytes = 0;
    uint64_t message = 0;  // whose payload it is: each begins on another road
  };
  // The same roads in all calls for one payload.
  void start(std::span<std::byte> payload, const Cut& cut);
  // Posts what is not posted yet. False: the lanes take nothing more now.
  Result<bool> post(std::span<const Road> roads);
  // Looks how far the pieces are. True when all of it has been moved.
  Result<bool> test(std::span<const Road> roads);
  // After that, of a payload in a GPU's memory: true when the GPU sees all of it.
  Result<bool> flush(std::span<const Road> roads);

  std::span<std::byte> payload() const { return payload_; }
  bool isBegun() const { return posted_ != 0; }
  bool isMoved() const { return moved_ == pieceCount_; }

 private:
  static constexpr size_t kMinPieceBytes = 8192;
  // Of a payload on one lane under way, so that a window of payloads fits a lane.
  static constexpr size_t kMaxPieces = kMaxRequests / kWindow;

  std::span<std::byte> piece(size_t number) const;

  const Road& roadOf(size_t number, std::span<const Road> roads) const {
    return roads[(firstRoad_ + number) % roads.size()];
  }

  std::span<std::byte> payload_;
  size_t firstRoad_ = 0;
  size_t pieceBytes_ = 0;
  size_t pieceCount_ = 0;
  size_t posted_ = 0;
  size_t moved_ = 0;         // all before this one are through
  size_t flushed_ = 0;       // roads that are
  bool isFlushing_ = false;  // the next one is
  std::array<Lane::Request, kMaxPieces * kMaxPayloadLanes> requests_;  // of piece p at p % size
};

}  // namespace tutti::net
