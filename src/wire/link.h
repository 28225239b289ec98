// A link: a one-way ring of slots from one rank to another, in memory both can address.
//
// The sender fills the next slot and marks it with the message's number; the receiver reads it and,
// some messages later, raises the link's head. Both numbers are 64-bit and only grow, so they never
// wrap in practice. A message of up to kInlineBytes lies in the line of its mark: one cache line
// travels, and nothing else.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/cache_lines.h"
#include "base/copy_memory.h"
#include "base/futex.h"
#include "base/other_processes.h"
#include "base/units.h"
#include "wire/carrier_reach.h"
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

// One side's view of a link. Borrowed: the transport's LinkEnd owns the memory.
struct LinkView {
  LinkControl* control = nullptr;
  std::byte* places = nullptr;  // of the ring: a head, and room for a payload
  LinkGeometry geometry;
  uint32_t mask = 0;               // of a message's number: its place in the ring
  size_t stride = 0;               // from one place in the ring to the next
  std::byte* longSlots = nullptr;  // null: none
  // As many and as long, in a GPU's memory: a sender's messages go there instead; those that a
  // receiver finds there have kOnGpu set. Null: none.
  std::byte* gpuSlots = nullptr;

  MessageHead& message(uint64_t number) const {
    return *reinterpret_cast<MessageHead*>(place(number));
  }
  // Where the payload of the message with this number lies, if it has more than kInlineBytes: in
  // the place half a ring away. Behind its own head it took longer, since a processor that looks at
  // a head again and again fetches the lines behind it, too, while the sender writes there: round
  // trips of 1 and 2 KiB take 0.85 and 0.86 of that, reduce-scatters of 2 and 4 KiB 0.87 and 0.88
  // (Intel Xeon VM, family 6, model 167, 2026-11-29).
  std::byte* slot(uint64_t number) const {
    return place(number + (uint64_t{mask} + 1) / 2) + sizeof(MessageHead);
  }
  bool isLong(size_t bytes) const { return longSlots != nullptr && bytes > kShortBytes; }
  std::byte* longSlot(uint64_t number) const {
    return longSlots + (number & (geometry.slotCount - 1)) * geometry.slotBytes;
  }
  std::byte* gpuSlot(uint64_t number) const {
    return gpuSlots + (number & (geometry.slotCount - 1)) * geometry.slotBytes;
  }
  // Of a message that is not long: both sides know how many bytes before they look.
  std::byte* payload(uint64_t number, size_t bytes) const {
    return bytes <= kInlineBytes ? message(number).inlinePayload : slot(number);
  }

 private:
  std::byte* place(uint64_t number) const { return places + (number & mask) * stride; }
};

// A message in a long slot says which in the first bytes of its inline payload.
inline uint64_t longNumberOf(const MessageHead& message) {
  uint64_t number = 0;
  std::memcpy(&number, message.inlinePayload, sizeof number);
  return number;
}

inline const std::byte* longPayloadIn(const LinkView& view, const MessageHead& message) {
  const uint64_t number = longNumberOf(message);
  return (message.flags & kOnGpu) != 0 ? view.gpuSlot(number) : view.longSlot(number);
}
// Of a message that brings its payload.
inline const std::byte* payloadIn(const LinkView& view, uint64_t number, size_t bytes) {
  return view.isLong(bytes) ? longPayloadIn(view, view.message(number))
                            : view.payload(number, bytes);
}

// Where the receiver of a link that a network carries wants its next message, so that it needs no
// copy out of the slot.
struct Landing {
  // 1 + the number of the message that may land; 0: none. Written by the receiver with release
  // after the rest, read by the carrier with acquire before the rest: that pair orders them. The
  // carrier takes an offer only of the message whose label it has read, and the receiver changes
  // one only once that message is in the ring, or after withdrawing through the carrier's lock. A
  // lock instead would cost the receiver a wait for whatever the carrier moves. Wraps as a mark.
  std::atomic<uint64_t> wanted{0};
  std::byte* memory = nullptr;
  uint32_t bytes = 0;
  uint32_t signature = 0;
};
// Shorter messages are copied sooner than they are offered a place, or sent from the user's memory.
inline constexpr size_t kLandingMinBytes = 8_KiB;

// One side's place in a link. Used by the thread that drives the operation, one at a time.
struct LinkPort {
  LinkView view;
  uint64_t next = 0;     // the message this side sends or receives next
  uint64_t known = 0;    // head, as the sender last read it, so that the receiver's line is touched
                         // only when the ring looks full; or as the receiver last wrote it
  uint64_t drainTo = 0;  // sender: what head must reach before the memory of its references is free
  uint64_t longNext = 0;   // the long slot that is filled, or read, next
  uint64_t longKnown = 0;  // longHead, likewise

  SegmentMapper* mapper = nullptr;  // of the other side's segments; null: they cannot be mapped

  // Receiver: where references point to. In this process they are plain memory, else that
  // process's.
  bool isSenderHere = false;
  int32_t senderProcess = 0;
  Landing* landing = nullptr;  // null: messages come in slots
  JointPace jointPace{};
  // 1 + the number of the last message that was offered a place, and the sender's part of it.
  uint64_t offered = 0;
  size_t offeredBytes = 0;

  // Sender: whether the receiver is of this process, so that plain references reach it; else what
  // it has mapped (null: it maps nothing).
  bool isReceiverHere = false;
  int32_t receiverProcess = 0;
  bool mayWrite = false;  // its memory, to copy long references jointly
  // Where the receiver wants the message of this number, of so many bytes; null: it has not said.
  std::byte* place = nullptr;
  size_t placeBytes = 0;
  uint64_t placeNumber = 0;
  SegmentLedger* ledger = nullptr;
  // The receiver's segments that `mapper` has been asked for, to copy jointly; null: it maps none.
  SegmentLedger* targets = nullptr;

  // Of a link that this process hands to a network, or gets from one: what that reads at a sender's
  // references, and writes at a receiver's landings.
  CarrierReach carrierReach = CarrierReach::kLinkOnly;

  bool isConnected() const { return view.control != nullptr; }
};

inline JointCopy& jointOf(const LinkView& view, uint64_t number) {
  return *reinterpret_cast<JointCopy*>(view.slot(number));
}

inline bool isJoint(const LinkView& view, const MessageHead& message) {
  return message.kind != MessageKind::kPayload && message.kind != MessageKind::kLanded &&
         ((message.flags & kIsDivided) != 0 ||
          isJointLength(message.bytes, view.geometry.slotBytes));
}

// ---- the sender's side
// -----------------------------------------------------------------------------------------------------

inline bool hasFreeLongSlot(LinkPort& port) {
  if (port.longNext - port.longKnown < port.view.geometry.slotCount) return true;
  port.longKnown = port.view.control->longHead.load(std::memory_order_acquire);
  return port.longNext - port.longKnown < port.view.geometry.slotCount;
}

inline void lookAtHead(LinkPort& port) {
  const uint64_t seen = port.view.control->head.load(std::memory_order_acquire);
  if (seen != std::exchange(port.known, seen) && !port.isReceiverHere) hearOtherProcesses();
}

// For a message with so many bytes of payload.
inline bool hasFreeSlot(LinkPort& port, size_t bytes) {
  if (port.next - port.known > port.view.mask) {
    lookAtHead(port);
    if (port.next - port.known > port.view.mask) return false;
  }
  return !port.view.isLong(bytes) || hasFreeLongSlot(port);
}

// Where the next message's payload goes. REQUIRES: hasFreeSlot().
inline std::byte* payloadToFill(LinkPort& port, size_t bytes) {
  if (port.view.gpuSlots != nullptr && port.view.isLong(bytes))
    return port.view.gpuSlot(port.longNext);
  if (port.view.isLong(bytes)) return port.view.longSlot(port.longNext);
  return port.view.payload(port.next, bytes);
}

// The first lines of the next slot are the receiver's from the last time round: have them back
// before the next message is made, which is likely as long as this one. 10 % of an 8-byte
// all-reduce of 2 ranks, a third of one of 4 KiB (2026-11-21, -22).
inline void fetchNextSlot(const LinkPort& port, size_t bytes) {
  MessageHead& next = port.view.message(port.next);
  fetchToWrite(reinterpret_cast<std::byte*>(&next), sizeof next);
  if (bytes <= kInlineBytes) return;
  fetchToWrite(
      port.view.isLong(bytes) ? port.view.longSlot(port.longNext) : port.view.slot(port.next),
      worthFetching(bytes));
}

// Hands the next message, whose payload is in place, to the receiver.
inline void publish(LinkPort& port, uint32_t bytes, uint32_t signature,
                    MessageKind kind = MessageKind::kPayload, uint32_t flags = 0) {
  MessageHead& message = port.view.message(port.next);
  message.bytes = bytes;
  message.signature = signature;
  message.kind = kind;
  message.flags = flags;
  if (kind == MessageKind::kPayload && port.view.isLong(bytes)) {
    std::memcpy(message.inlinePayload, &port.longNext, sizeof port.longNext);
    ++port.longNext;
  }
  if (!port.isReceiverHere) tellOtherProcesses();
  message.mark.store(++port.next, std::memory_order_release);
  fetchNextSlot(port, kind == MessageKind::kPayload ? bytes : 0);
  // The ring looks full from now on: the look at head comes with the next message.
  if (port.next - port.known > port.view.mask) __builtin_prefetch(port.view.control);
  wakeIfAnnounced(message.mark, port.view.control->receiverSleeps);
}

// Of a message whose payload is elsewhere.
inline void publishNaming(LinkPort& port, uint32_t bytes, uint32_t signature, MessageKind kind,
                          uint32_t flags) {
  const bool isDivided = (flags & kIsDivided) != 0;
  const bool isJoint = isDivided || isJointLength(bytes, port.view.geometry.slotBytes);
  if (isDivided) {
    jointOf(port.view, port.next).resetAnswer();
  } else if (isJoint) {
    jointOf(port.view, port.next).reset();
  }
  publish(port, bytes, signature, kind, flags);
  // The receiver has them from the last time round.
  if (isJoint) fetchToWrite(port.view.slot(port.next), sizeof(JointCopy));
}

// Hands over a reference instead. The memory stays as it is until isDrained().
inline void publishReference(LinkPort& port, const void* memory, uint32_t bytes, uint32_t signature,
                             uint32_t flags = 0) {
  const Reference reference{.address = reinterpret_cast<uint64_t>(memory)};
  std::memcpy(port.view.message(port.next).inlinePayload, &reference, sizeof reference);
  publishNaming(port, bytes, signature, MessageKind::kReference, flags);
  port.drainTo = port.next;
}

// The same into a segment that the receiver has mapped. With kIsAnswered the memory stays as it is
// until the message that tells; what is posted is nobody's to wait for at a call's end.
inline void publishShared(LinkPort& port, const SharedReference& reference, uint32_t bytes,
                          uint32_t signature, uint32_t flags = 0) {
  std::memcpy(port.view.message(port.next).inlinePayload, &reference, sizeof reference);
  publishNaming(port, bytes, signature, MessageKind::kShared, flags);
  if ((flags & (kIsAnswered | kIsPosted)) == 0) port.drainTo = port.next;
}

// The receiver has mapped the segment.
inline bool isMappedByReceiver(LinkPort& port, const SharedSegment& segment) {
  if (port.ledger == nullptr) return false;
  if (port.ledger->isWaiting()) {
    port.ledger->takeAnswer(port.view.control->segmentAnswer.load(std::memory_order_acquire));
  }
  return port.ledger->isMapped(segment.serial);
}

// Asks the receiver to map a segment, beside the next message, which has so many bytes, more than
// kInlineBytes. False: nothing was written, since it has been asked, another question is open, or
// it is too early to tell that it pays.
inline bool tryAnnounce(LinkPort& port, const SharedSegment& segment, size_t bytes) {
  if (port.ledger == nullptr || port.ledger->isWaiting()) return false;
  if (!port.ledger->isWorthAsking(segment.serial, bytes)) return false;
  const Announcement announcement{
      .serial = segment.serial, .bytes = segment.bytes, .token = segment.token};
  std::memcpy(port.view.message(port.next).inlinePayload + kAnnouncementOffset, &announcement,
              sizeof announcement);
  port.ledger->ask(segment.serial);
  return true;
}

// The receiver has read the message of this number, and given it back.
inline bool isGivenBack(LinkPort& port, uint64_t number) {
  if (port.known > number) return true;
  lookAtHead(port);
  return port.known > number;
}

// The receiver has read every reference.
inline bool isDrained(LinkPort& port) {
  if (port.known >= port.drainTo) return true;
  lookAtHead(port);
  return port.known >= port.drainTo;
}

// ---- the receiver's side
// ---------------------------------------------------------------------------------------------------

inline bool hasMessage(const LinkPort& port) {
  if (port.view.message(port.next).mark.load(std::memory_order_acquire) != port.next + 1)
    return false;
  if (!port.isSenderHere) hearOtherProcesses();
  return true;
}

// The message brings just its payload, of so many bytes, for the call with this signature. Four
// fields, one test.
inline bool isPlain(const MessageHead& message, size_t bytes, uint32_t signature) {
  const uint64_t differences = (message.bytes ^ bytes) | (message.signature ^ signature) |
                               static_cast<uint32_t>(message.kind) | message.flags;
  static_assert(static_cast<uint32_t>(MessageKind::kPayload) == 0);
  return differences == 0;
}

// Answers the announcement beside the message that is there.
inline void answerAnnouncement(LinkPort& port) {
  Announcement announcement;
  std::memcpy(&announcement, port.view.message(port.next).inlinePayload + kAnnouncementOffset,
              sizeof announcement);
  const bool isMapped = port.mapper != nullptr && port.mapper->map(announcement);
  port.view.control->segmentAnswer.store(SegmentLedger::makeAnswer(announcement.serial, isMapped),
                                         std::memory_order_release);
}

// Offers a place for the message that comes next. REQUIRES: it stays until the message is there, or
// the carrier has taken the offer back (transport::Motor::leave).
inline void offerLanding(LinkPort& port, std::byte* memory, size_t bytes, uint32_t signature) {
  Landing& landing = *port.landing;
  if (landing.wanted.load(std::memory_order_relaxed) == port.next + 1) return;
  landing.memory = memory;
  landing.bytes = static_cast<uint32_t>(bytes);
  landing.signature = signature;
  landing.wanted.store(port.next + 1, std::memory_order_release);
}

// The payload of the message that is there.
inline const std::byte* receivedPayload(const LinkPort& port, size_t bytes) {
  return payloadIn(port.view, port.next, bytes);
}

// All that has been read: messages, and long slots.
inline void giveBack(LinkPort& port) {
  port.known = port.next;
  LinkControl& control = *port.view.control;
  if (!port.isSenderHere) tellOtherProcesses();
  control.head.store(port.next, std::memory_order_release);
  wakeIfAnnounced(control.head, control.senderSleeps);
}
inline void giveBackLong(LinkPort& port) {
  port.longKnown = port.longNext;
  LinkControl& control = *port.view.control;
  control.longHead.store(port.longNext, std::memory_order_release);
  wakeIfAnnounced(control.longHead, control.senderSleeps);
}

inline void releaseLong(LinkPort& port, const MessageHead& message) {
  port.longNext = longNumberOf(message) + 1;
  if (port.longNext - port.longKnown < releasedTogether(port.view.geometry.slotCount)) return;
  giveBackLong(port);
}

// Before and after what a reference names is read. False: the sender has failed, and what it named
// is its caller's again.
inline bool beginReading(const LinkPort& port) {
  LinkControl& control = *port.view.control;
  control.isReading.store(1, std::memory_order_seq_cst);
  if (control.senderFault.load(std::memory_order_seq_cst) == 0) return true;
  control.isReading.store(0, std::memory_order_release);
  return false;
}
inline void endReading(const LinkPort& port) {
  port.view.control->isReading.store(0, std::memory_order_release);
}

// Whether what was just read of the sender's memory may have been its caller's by then.
inline bool hasSenderLeft(const LinkPort& port) {
  std::atomic_thread_fence(std::memory_order_acquire);
  return port.view.control->senderFault.load(std::memory_order_relaxed) != 0;
}

// For a sender that has marked its fault (and a fence since): whether its receiver, of this
// process, still reads what it named. One that has failed itself reads no more.
inline bool isBeingRead(const LinkPort& port) {
  if (!port.isReceiverHere) return false;
  const LinkControl& control = *port.view.control;
  return control.isReading.load(std::memory_order_seq_cst) != 0 &&
         control.receiverFault.load(std::memory_order_acquire) == 0;
}

// Gives the slot of the message that was just read back to the sender: that of a reference whose
// memory is free with it at once, others half a ring at a time. Each time costs the two sides an
// exchange of head's line: an 8-byte all-reduce of 2 ranks took 0.40 us with each slot by itself,
// and takes 0.35 (2026-11-21).
inline void release(LinkPort& port) {
  const MessageHead& message = port.view.message(port.next);
  const bool isReference = message.kind != MessageKind::kPayload;
  const bool isAwaited = isReference && (message.flags & kIsAnswered) == 0;
  if (!isReference && port.view.isLong(message.bytes)) releaseLong(port, message);
  ++port.next;
  if (isReference && port.isSenderHere) endReading(port);
  if (port.next - port.known < releasedTogether(port.view.mask + 1) && !isAwaited) return;
  giveBack(port);
}

// Gives back what has been read and was not given back yet, so that from now on links that carry as
// many messages are given back at the same calls.
inline void releaseAll(LinkPort& port) {
  if (port.known != port.next) giveBack(port);
  if (port.longKnown != port.longNext) giveBackLong(port);
}

// Views memory of linkBytes(geometry) bytes, zeroed when new, aligned to a cache line.
inline LinkView viewLink(void* memory, const LinkGeometry& geometry) {
  auto* bytes = static_cast<std::byte*>(memory);
  std::byte* places = bytes + sizeof(LinkControl);
  const uint32_t count = ringCount(geometry);
  const size_t stride = ringStride(geometry);
  return {.control = reinterpret_cast<LinkControl*>(bytes),
          .places = places,
          .geometry = geometry,
          .mask = count - 1,
          .stride = stride,
          .longSlots = geometry.shortCount > 0 ? places + count * stride : nullptr};
}

}  // namespace tutti::wire
