// Results that a sender puts straight into its receiver's output: the receiver offers the place, in
// a segment of its own that the sender has mapped, beside an earlier message of the other direction
// (schedule/placements.h says which). The message then says only that the payload is there.
//
// The sender writes memory of another process, whose call may fail meanwhile: then the memory is
// its caller's again. So it says that it writes (LinkControl::isWriting), and who fails waits for
// it, some hundred milliseconds at most. A sender that is stopped in between writes when it goes
// on: no longer than a message, and only to the output of the call that failed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "wire/link.h"

namespace tutti::wire {

// In a message with kOffersPlace: so far into that segment of the message's sender, as many bytes
// as the message itself has.
struct PlaceOffer {
  uint64_t serial = 0;
  uint64_t offset = 0;
};
// Behind all else but an announcement; a payload of more than kInlineBytes leaves that room free.
inline constexpr size_t kPlaceOfferOffset = sizeof(SharedReference);
static_assert(kPlaceOfferOffset + sizeof(PlaceOffer) <= kInlineBytes);

// ---- the side that offers: it sends over `port`, and receives over the link back

// Beside the next message, of more than kInlineBytes, which does not announce. False: the receiver
// has not mapped the segment.
inline bool tryOfferPlace(LinkPort& port, const SharedSegment& segment, const std::byte* place) {
  if (segment.serial == 0 || !isMappedByReceiver(port, segment)) return false;
  const PlaceOffer offer{.serial = segment.serial,
                         .offset = static_cast<uint64_t>(place - segment.start)};
  std::memcpy(port.view.message(port.next).inlinePayload + kPlaceOfferOffset, &offer, sizeof offer);
  return true;
}

// For a receiver that has marked its fault, and fenced all ranks' threads since: whether a sender
// still writes. One that has failed itself writes no more.
inline bool isBeingWritten(const LinkPort& port) {
  const LinkControl& control = *port.view.control;
  return control.isWriting.load(std::memory_order_acquire) != 0 &&
         control.senderFault.load(std::memory_order_acquire) == 0;
}

// ---- the side that writes

// Keeps what the message that is there offers, for the next one on the link back. Without a mapping
// of that place it is as if nothing was offered.
inline void takeOffer(const LinkPort& port, LinkPort& back) {
  const MessageHead& message = port.view.message(port.next);
  PlaceOffer offer;
  std::memcpy(&offer, message.inlinePayload + kPlaceOfferOffset, sizeof offer);
  back.place =
      port.mapper == nullptr
          ? nullptr
          : port.mapper->find({.serial = offer.serial, .offset = offer.offset}, message.bytes);
  back.placeBytes = message.bytes;
  back.placeNumber = back.next;
}

// To the receiver's memory, from now on until endWriting(). False: it has failed.
inline bool beginWriting(LinkPort& port) {
  LinkControl& control = *port.view.control;
  control.isWriting.store(1, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);  // the receiver fences the processor
  if (control.receiverFault.load(std::memory_order_acquire) == 0) return true;
  control.isWriting.store(0, std::memory_order_release);
  return false;
}
// Where the next message may be written, likewise; null: nowhere.
inline std::byte* beginWriting(LinkPort& port, size_t bytes) {
  std::byte* place = std::exchange(port.place, nullptr);
  if (place == nullptr || port.placeBytes != bytes || port.placeNumber != port.next) return nullptr;
  return beginWriting(port) ? place : nullptr;
}
inline void endWriting(LinkPort& port) {
  port.view.control->isWriting.store(0, std::memory_order_release);
}

}  // namespace tutti::wire
