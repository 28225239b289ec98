// A long reference that both its ends copy: the receiver reads blocks of the sender's memory, while
// the sender, who would only wait for that, writes others into the receiver's.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/units.h"
#include "wire/shared_segment.h"

namespace tutti::wire {

// Lies in the slot of the reference, whose payload is elsewhere.
struct JointCopy {
  // Where the receiver wants the message: an address of its process, 0 until it has come to it.
  // Written by it with release, read by the sender with acquire: what the receiver did to that
  // memory before is done.
  alignas(64) std::atomic<uint64_t> target;
  // Bytes that are taken: low half by the sender, from the front, high half by the receiver, from
  // the back, so that each end, call by call, meets the same bytes in its caches. Changed by
  // compare-and-swap of either end, which orders nothing. No more than the message has in all, but
  // kNoneLeft.
  std::atomic<uint64_t> taken;
  // The segment of the receiver's that the target lies in, and where; serial 0: in none. Before the
  // target.
  Announcement segment;
  uint64_t offset;
  // What the sender is to take at a time. Before the target.
  uint32_t senderBytes;
  // Low half, a futex word: the bytes that the sender took and is through with. High half: 1 + the
  // first of those that it could not write, which the receiver reads after all; the sender takes no
  // more then. Written by the sender with release after the block, read by the receiver with
  // acquire.
  alignas(64) std::atomic<uint64_t> answered;
  // How long the sender has written, if it is timed. Before what is answered.
  uint64_t senderNanoseconds;

  // By the sender, before the message's mark.
  void reset() {
    target.store(0, std::memory_order_relaxed);
    taken.store(0, std::memory_order_relaxed);
    answered.store(0, std::memory_order_relaxed);
    senderNanoseconds = 0;
  }

  static constexpr uint64_t kNoneLeft = ~uint64_t{0};
};
static_assert(sizeof(JointCopy) == 128);

// Both ends know of each message whether it is one.
inline constexpr size_t kJointMinBytes = 64_KiB;
constexpr bool isJointLength(size_t bytes, size_t slotBytes) {
  return bytes >= kJointMinBytes && slotBytes >= sizeof(JointCopy);
}

inline constexpr size_t kJointBlockUnit = 4_KiB;
inline constexpr size_t kJointBlockMinBytes = 8_KiB;

// Bytes of a message that one end copies; none where none are left.
struct JointBlock {
  size_t offset = 0;
  size_t bytes = 0;
};

enum class JointEnd { kSender, kReceiver };

// What is left of a message of `bytes`.
inline JointBlock leftOf(uint64_t taken, size_t bytes) {
  const size_t front = taken & 0xffffffff;
  const size_t end = bytes - std::min<size_t>(taken >> 32, bytes);
  return front < end ? JointBlock{.offset = front, .bytes = end - front} : JointBlock{};
}

// The next block of that end's: `wanted` bytes, more where few would be left, or all that are left.
// Blocks meet at multiples of a unit.
inline JointBlock takeBlock(JointCopy& joint, JointEnd end, size_t bytes, size_t wanted) {
  uint64_t taken = joint.taken.load(std::memory_order_relaxed);
  for (;;) {
    JointBlock block = leftOf(taken, bytes);
    if (block.bytes == 0) return block;
    if (block.bytes >= wanted + kJointBlockMinBytes) {
      if (end == JointEnd::kReceiver) {
        const size_t behind = block.offset + block.bytes;
        block.offset = roundUp(behind - wanted, kJointBlockUnit);
        block.bytes = behind - block.offset;
      } else {
        block.bytes = wanted;
      }
    }
    const uint64_t mine = end == JointEnd::kReceiver ? block.bytes << 32 : block.bytes;
    if (joint.taken.compare_exchange_weak(taken, taken + mine, std::memory_order_relaxed))
      return block;
  }
}

// How a link's messages are divided: halves where both ends are as fast, else by how long the last
// ones took them. Lines that the other end's processor has just changed are slow to copy: who reads
// what the sender has just written takes 2.5 times as long as that sender writes, and where the
// receiver changes what it was sent it is the other way round (Intel Xeon VM, family 6, model 167,
// 2026-11-29). In eighths that change late, so that ends meet the same bytes. The receiver's.
class JointPace {
 public:
  // Of a length at which a system call's 0.4 us do not show, nor a hand-over to the other end.
  size_t receiverBytes(size_t bytes) const { return blockBytes(bytes, eighths_); }
  size_t senderBytes(size_t bytes) const { return blockBytes(bytes, kAll - eighths_); }

  // Whether both ends time the message of that number: to look at the clock took 3 % of 128 KiB.
  // Odd, so that of two pieces neither is left out.
  static constexpr bool isTimed(uint64_t number) { return number % 3 == 0; }
  // What each end has copied of a message, and how long that took.
  struct Part {
    size_t bytes = 0;
    uint64_t nanoseconds = 0;
  };
  void learn(const Part& receiver, const Part& sender) {
    double share = 0.5;  // the sender was not there: whether it is slow shows when it is
    if (sender.bytes > 0) {
      if (receiver.bytes == 0) return;
      const auto pace = [](const Part& part) {
        return static_cast<double>(part.bytes) /
               static_cast<double>(std::max<uint64_t>(part.nanoseconds, 1));
      };
      share = pace(receiver) / (pace(receiver) + pace(sender));
    }
    share_ += (share - share_) / 2;
    const double wanted = share_ * kAll;
    const double tolerance = eighths_ == kAll / 2 ? 1.0 : 0.6;
    if (std::abs(wanted - eighths_) > tolerance)
      eighths_ = std::clamp(static_cast<int>(std::lround(wanted)), 1, kAll - 1);
  }

 private:
  static constexpr int kAll = 8;
  static constexpr size_t kBothBytes = 512_KiB;
  static size_t blockBytes(size_t bytes, int eighths) {
    const size_t both = std::min(bytes, kBothBytes);
    return std::max(roundUp(both * static_cast<size_t>(eighths) / kAll, kJointBlockUnit),
                    kJointBlockMinBytes);
  }

  double share_ = 0.5;  // the receiver's
  int eighths_ = kAll / 2;
};

}  // namespace tutti::wire
