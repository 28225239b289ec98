// The executor's messages by way of the outbox (outbox.h).
#include <cstring>

#include "kernels/execution.h"

namespace tutti::kernels {
namespace {

// What its message costs a receiver beside its bytes, when it is counted whether mapping pays.
constexpr size_t kMessageWorth = 4_KiB;

// Of messages in the halves, and in rooms.
constexpr uint32_t kAnsweredFlags = wire::kIsAnswered | wire::kIsPosted;
constexpr uint32_t kRoomFlags = wire::kIsPosted;

// Shorter ones are copied as soon: one-shot of 1 KiB 1.0 to 1.1 of the time, of 4 KiB 0.92 and 0.80
// (4 and 8 ranks on 2 CPUs); all-gather by 8 of 1 KiB each 1.02, 4 KiB 0.87, 8 KiB 0.4 (AMD EPYC
// VM, 2026-11-24).
constexpr size_t kPostedMinBytes = 2_KiB;

}  // namespace

// Whether all who get the step's messages can read them there.
bool Execution::isMappedByAll(const BoundStep& step) const {
  const wire::SharedSegment& segment = binding_.outbox->segment();
  bool areAll = true;
  for (const BoundOperand& link : BoundProgram::links(step)) {
    areAll = areAll && !link.port->isReceiverHere && wire::isMappedByReceiver(*link.port, segment);
  }
  return areAll;
}

// Room for what the step sends to several; null: copies.
std::byte* Execution::takeRoom(const BoundStep& step, size_t bytes) {
  if (!mayPost_ || step.linkCount < 2 || bytes < kPostedMinBytes || !isMappedByAll(step))
    return nullptr;
  Outbox& outbox = *binding_.outbox;
  return isHearing_ ? outbox.take(bytes) : outbox.rooms().take(bytes, step.linkCount);
}

// A link that the step sends on, and that keeps the oldest room while as many of its messages are
// unread as a schedule may count on: it is waited for as for a slot. Copies would take the root's
// time, and of 8 readers each would fetch its own.
bool Execution::awaitsRoom(const BoundStep& step, size_t bytes) {
  if (!mayPost_ || isHearing_ || step.linkCount < 2 || bytes < kPostedMinBytes) return false;
  Rooms& rooms = binding_.outbox->rooms();
  if (rooms.isFree(bytes, step.linkCount)) return false;
  const Rooms::Unread& kept = rooms.keeper();
  if (kept.port->next - kept.number < wire::capacity(kept.port->view.geometry.slotCount))
    return false;
  for (const BoundOperand& link : BoundProgram::links(step)) {
    if (link.port != kept.port) continue;
    blockage_ = {.what = For::kRoom, .peer = link.peer, .port = link.port, .number = kept.number};
    return true;
  }
  return false;
}

void Execution::publishPosted(const BoundStep& step, const std::byte* room, size_t bytes) {
  Outbox& outbox = *binding_.outbox;
  const wire::SharedReference reference = outbox.reference(room);
  for (const BoundOperand& link : BoundProgram::links(step)) {
    if (!isHearing_) outbox.rooms().hold(*link.port);
    wire::publishShared(*link.port, reference, static_cast<uint32_t>(bytes), binding_.signature,
                        isHearing_ ? kAnsweredFlags : kRoomFlags);
  }
}

// Beside a copy: please map it. The flags of that message.
uint32_t Execution::announceOutbox(wire::LinkPort& port, size_t bytes) const {
  const bool mayAsk = bytes >= kPostedMinBytes && !port.isReceiverHere;
  if (!mayAsk || wire::isMappedByReceiver(port, binding_.outbox->segment())) return 0;
  return wire::tryAnnounce(port, binding_.outbox->segment(), bytes + kMessageWorth)
             ? wire::kAnnounces
             : 0;
}

// The memory that a posted message names; null: it is another, or the general way sees what is
// wrong with it.
const std::byte* Execution::findPosted(const wire::LinkPort& port, size_t bytes) const {
  const wire::MessageHead& message = port.view.message(port.next);
  const bool isOurs = message.bytes == bytes && message.signature == binding_.signature &&
                      message.kind == wire::MessageKind::kShared &&
                      (message.flags | wire::kIsAnswered) == kAnsweredFlags;
  if (!isOurs || port.mapper == nullptr || bytes <= wire::kInlineBytes) return nullptr;
  wire::SharedReference reference;
  std::memcpy(&reference, message.inlinePayload, sizeof reference);
  return port.mapper->find(reference, bytes);
}

}  // namespace tutti::kernels
