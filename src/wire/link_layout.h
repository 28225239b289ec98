// How a link lies in memory that both its ranks can address: control, and a ring of places, each a
// message's head and room for its payload. link.h has what is done with it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/cache_lines.h"
#include "base/units.h"
#include "wire/joint_copy.h"
#include "wire/shared_segment.h"

namespace tutti::wire {

// Why a link will never move again; written by the side that leaves, read by the other when it has
// waited long. kLost: by whoever carries the link, whose connection ended without a word.
enum class LinkFault : uint32_t { kNone = 0, kAborted = 1, kDestroyed = 2, kLost = 3 };

inline constexpr size_t kInlineBytes = 40;

// What a message brings. A reference is read by the receiver straight from the sender's memory,
// which saves the copy into the slot; the sender leaves that memory alone until the link's head has
// passed the message. kReference names an address of the sending process, kShared a place in memory
// that the receiver has mapped. kLanded: what carries the link has put the payload where the
// receiver's Landing says, or the sender where the receiver's PlaceOffer said.
enum class MessageKind : uint32_t { kPayload = 0, kReference = 1, kShared = 2, kLanded = 3 };

// The inline payload of a kReference: `MessageHead::bytes` bytes at this address of the sending
// process.
struct Reference {
  uint64_t address = 0;
};

// In a message that announces a segment: behind the Reference. A payload of more than kInlineBytes
// leaves that room free.
inline constexpr size_t kAnnouncementOffset = sizeof(Reference);
static_assert(kAnnouncementOffset + sizeof(Announcement) <= kInlineBytes);

// An Announcement lies at kAnnouncementOffset.
inline constexpr uint32_t kAnnounces = 1;
// The sender, and every rank whose messages of this call it has read so far, agrees to what the
// calls' plan proposes (launch/form_trial.h).
inline constexpr uint32_t kAgrees = 2;
// A PlaceOffer lies at kPlaceOfferOffset (wire/placed_result.h).
inline constexpr uint32_t kOffersPlace = 4;
// A message of the receiver's own will tell the sender that this one has been read.
inline constexpr uint32_t kIsAnswered = 8;
// The payload lies in the link's slot in a GPU's memory (LinkView::gpuSlots).
inline constexpr uint32_t kOnGpu = 16;
// The memory that it names is the sending communicator's own, and stays as it is, whatever becomes
// of the sender, until this receiver has given the message back, or, with kIsAnswered, has sent
// something in a later call (kernels/outbox.h).
inline constexpr uint32_t kIsPosted = 32;

// The sender writes the first bytes of it where the receiver has offered (JointOffer), as many as
// the offer says.
inline constexpr uint32_t kIsDivided = 64;

// The first line of a place in the ring.
struct MessageHead {
  // 1 + the number of the message that is here; 0 in new memory. Written by the sender with release
  // after the rest and the payload, read by the receiver with acquire before them: that pair orders
  // the payload. Message m + ringCount overwrites m's mark, so nothing needs clearing.
  // At 10^9 messages a second it wraps after 584 years. A tail counter for the whole link would
  // cost a second line a message. The low half is a futex word.
  std::atomic<uint64_t> mark;
  // The receiver compares both with what its own call expects before it touches the payload.
  uint32_t bytes;      // of the payload, or of what the reference names
  uint32_t signature;  // of the call (collective, sequence, count, type, operation, root)
  MessageKind kind;    // checked against the receiver's own expectation, too
  uint32_t flags;      // kAnnounces, kAgrees
  std::byte inlinePayload[kInlineBytes];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(sizeof(MessageHead) == kCacheLineBytes);

struct LinkControl {
  // Messages that the receiver has given back. Written by it with release after it has read their
  // slots, read by the sender with acquire before it refills them, and only when the ring looks
  // full. Only grows, wraps as late as a mark. A credit message would cost a slot. Low half: futex
  // word.
  alignas(kCacheLineBytes) std::atomic<uint64_t> head;
  // Nonzero while the sender sleeps (or is about to) on head. The sleeper counts itself, fences all
  // ranks' threads, and looks at head once more; the receiver raises head, then looks here, without
  // a fence of its own (base/futex.h tells why one of them sees the other). With sequentially
  // consistent stores an 8-byte all-reduce of 2 ranks took a third longer.
  std::atomic<uint32_t> senderSleeps;
  // The same for messages in long slots alone, where a link has some: 1 + the number of the last
  // long slot given back, half of them at a time. Rules as for head; a sender that sleeps on it
  // counts itself in senderSleeps, too. Head alone would not do: it is raised every so many
  // messages, and who waits for a long slot may send none until then.
  std::atomic<uint64_t> longHead;
  // SegmentLedger::makeAnswer for the last announcement. Written by the receiver with release when
  // it has mapped the segment or failed to, read by the sender with acquire while it waits for it,
  // which is at most once a message; the pair orders nothing but itself. No two questions in a row
  // are for one segment, so an old answer is never taken for a new one. A message back would need a
  // link back.
  std::atomic<uint64_t> segmentAnswer;

  // The mirror image, for a receiver that sleeps on a slot's mark; in a line that is written only
  // at such times, because the sender looks at it with every message.
  alignas(kCacheLineBytes) std::atomic<uint32_t> receiverSleeps;
  // A LinkFault. Written once by the leaving side with release, read with acquire by the other on
  // its slow path only. Never reset: a link with a fault is dead.
  std::atomic<uint32_t> senderFault;
  std::atomic<uint32_t> receiverFault;

  // Nonzero while the receiver, a thread of the sender's process, reads what a reference names.
  // Raised by the receiver, which then looks at senderFault and reads only where there is none; the
  // sender that fails marks senderFault, then looks here, and its buffers are the caller's again
  // once this is zero. All four accesses are sequentially consistent, or have such a fence between,
  // so that one of the two sees the other. Wraps never: 0 or 1. Receivers of other processes find
  // out afterwards that what they read was no longer the sender's (hasSenderLeft). A lock would
  // hold up a sender that fails because its receiver does not move. In a line of its own, which
  // stays the receiver's.
  alignas(kCacheLineBytes) std::atomic<uint32_t> isReading;

  // Nonzero while the sender writes to a place that the receiver has offered
  // (wire/placed_result.h, JointOffer). Raised by the sender, which then looks at receiverFault and
  // writes only where there is none; the receiver that fails marks receiverFault, fences all ranks'
  // threads, then looks here, and its output is the caller's again once this is zero. With that
  // fence (base/futex.h) one of the two sees the other, and the sender needs none. Cleared with
  // release after the write, read with acquire. Wraps never: 0 or 1. A line of its own, which stays
  // the sender's.
  alignas(kCacheLineBytes) std::atomic<uint32_t> isWriting;

  // Of the message that the receiver waits for.
  JointOffer jointOffer;
};
static_assert(sizeof(LinkControl) == 6 * kCacheLineBytes);

struct LinkGeometry {
  uint32_t slotCount = 0;  // a power of two
  uint32_t slotBytes = 0;  // payload bytes a slot holds; a multiple of the cache line
  // 0: each slot holds any message. Else there are so many slots of kShortBytes, a power of two not
  // below slotCount, and the slotCount long ones are lent to the messages that are longer: who only
  // sends runs further ahead with short messages, and long ones still stay in a cache.
  uint32_t shortCount = 0;
};

inline constexpr uint32_t kShortBytes = 4u << 10;

inline constexpr uint32_t kMaxSlotCount = 1024;
inline constexpr uint32_t kMaxSlotBytes = 16u << 20;

// So many slots go back to the sender together.
constexpr uint32_t releasedTogether(uint32_t slotCount) {
  return slotCount > 1 ? slotCount / 2 : 1;
}

// Messages that a link takes of which the receiver has read none, at the worst time: what a
// schedule may count on. The others' slots may be read and not given back yet.
constexpr uint32_t capacity(uint32_t slotCount) {
  return slotCount + 1 - releasedTogether(slotCount);
}

constexpr bool isValid(const LinkGeometry& geometry) {
  return geometry.slotCount > 0 && geometry.slotCount <= kMaxSlotCount &&
         (geometry.slotCount & (geometry.slotCount - 1)) == 0 && geometry.slotBytes > 0 &&
         geometry.slotBytes <= kMaxSlotBytes && geometry.slotBytes % kCacheLineBytes == 0;
}

// Messages that may be under way, and the bytes from one's header to the next one's.
constexpr uint32_t ringCount(const LinkGeometry& geometry) {
  return geometry.shortCount > 0 ? geometry.shortCount : geometry.slotCount;
}
constexpr size_t ringStride(const LinkGeometry& geometry) {
  return sizeof(MessageHead) + (geometry.shortCount > 0 ? kShortBytes : geometry.slotBytes);
}

// Bytes of the whole link: control, the ring's places, each a head and room for a payload, and the
// long slots, if any.
constexpr size_t linkBytes(const LinkGeometry& geometry) {
  const size_t longBytes =
      geometry.shortCount > 0 ? size_t{geometry.slotCount} * geometry.slotBytes : 0;
  return sizeof(LinkControl) + ringCount(geometry) * ringStride(geometry) + longBytes;
}

}  // namespace tutti::wire
