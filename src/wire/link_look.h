// A link as anybody sees it who has its memory: for people, while its two sides go on. Costs them
// nothing, but a line that comes back from another cache.
#pragma once

#include <algorithm>
#include <cstdint>

#include "wire/link.h"

namespace tutti::wire {

struct LinkLook {
  uint64_t published = 0;  // messages
  // Of these the receiver is through with and has told the sender, which it does half a ring at a
  // time: so many at least.
  uint64_t givenBack = 0;
  uint32_t slots = 0;
  bool senderSleeps = false;    // for room
  bool receiverSleeps = false;  // for a message
  bool isBeingRead = false;     // the receiver reads what a reference names
  bool isBeingWritten = false;  // the sender writes to a place of the receiver's
  LinkFault senderFault = LinkFault::kNone;
  LinkFault receiverFault = LinkFault::kNone;
};

// Any thread, as long as the memory is mapped. The fields are of about the same moment.
inline LinkLook lookAt(const LinkView& view) {
  const LinkControl& control = *view.control;
  LinkLook look;
  look.givenBack = control.head.load(std::memory_order_acquire);
  look.slots = view.mask + 1;
  // The newest mark in the ring is the newest message's number.
  for (uint64_t place = 0; place <= view.mask; ++place)
    look.published =
        std::max(look.published, view.message(place).mark.load(std::memory_order_acquire));
  look.published = std::max(look.published, look.givenBack);
  look.senderSleeps = control.senderSleeps.load(std::memory_order_relaxed) != 0;
  look.receiverSleeps = control.receiverSleeps.load(std::memory_order_relaxed) != 0;
  look.isBeingRead = control.isReading.load(std::memory_order_relaxed) != 0;
  look.isBeingWritten = control.isWriting.load(std::memory_order_relaxed) != 0;
  look.senderFault = static_cast<LinkFault>(control.senderFault.load(std::memory_order_acquire));
  look.receiverFault =
      static_cast<LinkFault>(control.receiverFault.load(std::memory_order_acquire));
  return look;
}

}  // namespace tutti::wire
