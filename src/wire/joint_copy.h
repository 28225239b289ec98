// A long reference that both its ends copy: the receiver reads blocks of the sender's memory, while
// the sender, who would only wait for that, writes others into the receiver's.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/units.h"
#include "wire/shared_segment.h"

namespace tutti::wire {

// Where the receiver wants a message: an address of its process, and where that lies in a segment
// of its own; serial 0: in none.
struct JointTarget {
  uint64_t address = 0;
  Announcement segment{};
  uint64_t offset = 0;
  uint32_t senderBytes = 0;  // what the sender is to take at a time
};

// The target of a message that is not there yet, in lines of the receiver's. A sender that finds it
// when it comes to the message divides that at once (kIsDivided), and neither waits for the other
// before it copies: the message takes two hand-overs of a line, where one whose target is found in
// its own slot takes four.
//
// A number is offered once, and the call that offers it ends well only when it has that message. A
// sender writes between beginWriting() and endWriting() (wire/placed_result.h), as that call may
// fail.
struct JointOffer {
  // 1 + the number of the message; 0: none, or the rest is being written. Written by the receiver
  // with release after the rest. Read by the sender with acquire before the rest, and, behind a
  // fence, after it. Wraps as a mark.
  alignas(64) std::atomic<uint64_t> wanted;
  // All relaxed.
  std::atomic<uint64_t> message;  // describe()
  std::atomic<uint64_t> address;
  std::atomic<uint64_t> serial;
  std::atomic<uint64_t> offset;
  std::atomic<uint64_t> senderBytes;
  // Looked at by who has not mapped the segment.
  alignas(64) std::atomic<uint64_t> segmentBytes;
  std::array<std::atomic<uint64_t>, 2> token;

  static constexpr uint64_t describe(uint32_t bytes, uint32_t signature) {
    return uint64_t{signature} << 32 | bytes;
  }
  // By the receiver.
  void write(uint64_t number, uint64_t what, const JointTarget& target);
  // By the sender. False: nothing is offered for that message.
  bool read(uint64_t number, uint64_t what, JointTarget& target) const;
};
static_assert(sizeof(JointOffer) == 128);

inline void JointOffer::write(uint64_t number, uint64_t what, const JointTarget& target) {
  wanted.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  message.store(what, std::memory_order_relaxed);
  address.store(target.address, std::memory_order_relaxed);
  serial.store(target.segment.serial, std::memory_order_relaxed);
  offset.store(target.offset, std::memory_order_relaxed);
  senderBytes.store(target.senderBytes, std::memory_order_relaxed);
  if (target.segment.serial != 0) {
    segmentBytes.store(target.segment.bytes, std::memory_order_relaxed);
    const auto words = std::bit_cast<std::array<uint64_t, 2>>(target.segment.token);
    token[0].store(words[0], std::memory_order_relaxed);
    token[1].store(words[1], std::memory_order_relaxed);
  }
  wanted.store(number + 1, std::memory_order_release);
}

inline bool JointOffer::read(uint64_t number, uint64_t what, JointTarget& target) const {
  if (wanted.load(std::memory_order_acquire) != number + 1) return false;
  if (message.load(std::memory_order_relaxed) != what) return false;
  target.address = address.load(std::memory_order_relaxed);
  target.segment.serial = serial.load(std::memory_order_relaxed);
  target.offset = offset.load(std::memory_order_relaxed);
  target.senderBytes = static_cast<uint32_t>(senderBytes.load(std::memory_order_relaxed));
  if (target.segment.serial != 0) {
    target.segment.bytes = segmentBytes.load(std::memory_order_relaxed);
    const std::array<uint64_t, 2> words{token[0].load(std::memory_order_relaxed),
                                        token[1].load(std::memory_order_relaxed)};
    target.segment.token = std::bit_cast<SegmentToken>(words);
  }
  std::atomic_thread_fence(std::memory_order_acquire);
  return wanted.load(std::memory_order_relaxed) == number + 1;
}

// Lies in the slot of the reference, whose payload is elsewhere.
struct JointCopy {
  // Where the receiver wants the message (JointTarget), with what is below; 0 until it has come to
  // it. Written by it with release, read by the sender with acquire: what the receiver did to that
  // memory before is done.
  alignas(64) std::atomic<uint64_t> target;
  // Bytes that are taken: low half by the sender, from the front, high half by the receiver, from
  // the back, so that each end, call by call, meets the same bytes in its caches. Changed by
  // compare-and-swap of either end, which orders nothing. No more than the message has in all, but
  // kNoneLeft.
  std::atomic<uint64_t> taken;
  Announcement segment;
  uint64_t offset;
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
    resetAnswer();
  }
  // The same of a divided one: nobody looks at the rest.
  void resetAnswer() {
    answered.store(0, std::memory_order_relaxed);
    senderNanoseconds = 0;
  }

  static constexpr uint64_t kNoneLeft = ~uint64_t{0};
};
static_assert(sizeof(JointCopy) == 128);

// Both ends know of each message whether it is one. Of one that is divided the sender says so.
inline constexpr size_t kJointMinBytes = 64_KiB;
inline constexpr size_t kDividedMostBytes = 512_KiB;
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
