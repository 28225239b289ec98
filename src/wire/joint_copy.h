// A long reference that both its ends copy: the receiver reads blocks of the sender's memory, while
// the sender, who would only wait for that, writes others into the receiver's.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/units.h"
#include "wire/shared_segment.h"

namespace tutti::wire {

// Lies in the slot of the reference, whose payload is elsewhere.
struct JointCopy {
  // Where the receiver wants the message: an address of its process, 0 until it has come to it.
  // Written by it with release, read by the sender with acquire: what the receiver did to that
  // memory before is done.
  alignas(64) std::atomic<uint64_t> target;
  // Blocks that are taken. Who adds 1 and finds one left has one more: the sender the next from the
  // front, the receiver the next from the back, so that each end, call by call, meets the same
  // bytes in its caches. That orders nothing. Beyond the number of blocks: none is left.
  std::atomic<uint64_t> taken;
  // The segment of the receiver's that the target lies in, and where; serial 0: in none. Before the
  // target.
  Announcement segment;
  uint64_t offset;
  // Low half, a futex word: the blocks that the sender took and is through with. High half: 1 + the
  // one of them that it could not write, which the receiver reads after all. Written by the sender
  // with release after the block, read by the receiver with acquire.
  alignas(64) std::atomic<uint64_t> answered;

  // By the sender, before the message's mark.
  void reset() {
    target.store(0, std::memory_order_relaxed);
    taken.store(0, std::memory_order_relaxed);
    answered.store(0, std::memory_order_relaxed);
  }
};
static_assert(sizeof(JointCopy) == 128);

// Both ends know of each message whether it is one.
inline constexpr size_t kJointMinBytes = 64_KiB;
constexpr bool isJointLength(size_t bytes, size_t slotBytes) {
  return bytes >= kJointMinBytes && slotBytes >= sizeof(JointCopy);
}

// The blocks of a message. At least two; of a length at which a system call's 0.4 us do not show,
// nor a hand-over to the other end.
class JointBlocks {
 public:
  explicit constexpr JointBlocks(size_t bytes)
      : bytes_(bytes), blockBytes_(std::clamp(roundUp(bytes / 2, 4_KiB), 16_KiB, 256_KiB)) {}
  constexpr uint64_t count() const { return divideUp(bytes_, blockBytes_); }
  constexpr size_t offset(uint64_t block) const { return block * blockBytes_; }
  constexpr size_t length(uint64_t block) const {
    return std::min(blockBytes_, bytes_ - offset(block));
  }

 private:
  size_t bytes_;
  size_t blockBytes_;
};

}  // namespace tutti::wire
