// A link: a one-way ring of slots from one rank to another, in memory both can address.
//
// The sender fills the next slot and marks it with the message's number; the receiver reads it and,
// some messages later, raises the link's head. Both numbers are 64-bit and only grow, so they never
// wrap in practice. A message of up to kInlineBytes lies in the line of its mark: one cache line
// travels, and nothing else.
#pragma once

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
#include "wire/link_layout.h"
#include "wire/shared_segment.h"

namespace tutti::wire {

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
