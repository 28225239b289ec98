// The executor's messages by way of the outbox (outbox.h).
#include <algorithm>
#include <cstring>

#include "kernels/execution.h"

namespace tutti::kernels {
namespace {

// What its message costs a receiver beside its bytes, when it is counted whether mapping pays.
constexpr size_t kMessageWorth = 4_KiB;

// Of messages in the halves, and in rooms.
constexpr uint32_t kAnsweredFlags = wire::kIsAnswered | wire::kIsPosted;
constexpr uint32_t kRoomFlags = wire::kIsPosted;

}  // namespace

// REQUIRES: an outbox. Between hosts also beside messages that the network takes from the output,
// and in calls whose outputs are stored past the caches: what lies in a room is read again.
bool Execution::mayPost() const {
  if (isPlain_) return true;
  const SharedBuffers* shared = binding_.shared;
  const bool namesSegments =
      shared != nullptr && (shared->input.serial != 0 || shared->output.serial != 0);
  return binding_.outbox->isOfHosts() && !refers_ && !binding_.agrees && !namesSegments &&
         binding_.gpu == nullptr && binding_.crew == nullptr;
}

bool Execution::canRead(wire::LinkPort& port) const {
  return !port.isReceiverHere && wire::isMappedByReceiver(port, binding_.outbox->segment());
}

// Whether all who get the step's messages can read them there.
bool Execution::isMappedByAll(const BoundStep& step) const {
  return std::ranges::all_of(BoundProgram::links(step),
                             [this](const BoundOperand& link) { return canRead(*link.port); });
}

// Room for what the step sends to several; null: copies.
std::byte* Execution::takeRoom(const BoundStep& step, size_t bytes) {
  if (!mayPost_ || step.linkCount < 2 || bytes < binding_.outbox->minBytes() ||
      !isMappedByAll(step))
    return nullptr;
  Outbox& outbox = *binding_.outbox;
  return isHearing_ ? outbox.take(bytes) : outbox.rooms().take(bytes, step.linkCount);
}

// A link that the step sends on, and that keeps the oldest room while as many of its messages are
// unread as a schedule may count on: it is waited for as for a slot. Copies would take the root's
// time, and of 8 readers each would fetch its own.
bool Execution::awaitsRoom(const BoundStep& step, size_t bytes) {
  if (!mayPost_ || isHearing_ || step.linkCount < 2 || binding_.outbox->isOfHosts() ||
      bytes < binding_.outbox->minBytes())
    return false;
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
  for (const BoundOperand& link : BoundProgram::links(step)) publishRoom(*link.port, room, bytes);
}

void Execution::publishRoom(wire::LinkPort& port, const std::byte* room, size_t bytes) {
  Outbox& outbox = *binding_.outbox;
  if (!isHearing_) outbox.rooms().hold(port);
  wire::publishShared(port, outbox.reference(room), static_cast<uint32_t>(bytes),
                      binding_.signature, isHearing_ ? kAnsweredFlags : kRoomFlags);
}

// The step's messages that would go as copies, two at least, by way of one room. False: none is
// free, and they are copies.
bool Execution::postCopies(const BoundStep& step, StepData& data) {
  const auto forms = std::span(binding_.scratch->forms).first(step.linkCount);
  if (!mayPost_ || isHearing_ || data.bytes < binding_.outbox->minBytes()) return false;
  size_t count = 0;
  size_t at = 0;
  for (const BoundOperand& link : BoundProgram::links(step)) {
    if (forms[at++] == MessageForm::kPayload && canRead(*link.port)) ++count;
  }
  data.room = count < 2 ? nullptr : binding_.outbox->rooms().take(data.bytes, count);
  if (data.room == nullptr) return false;
  at = 0;
  for (const BoundOperand& link : BoundProgram::links(step)) {
    MessageForm& form = forms[at++];
    if (form == MessageForm::kPayload && canRead(*link.port)) form = MessageForm::kPosted;
  }
  return true;
}

// Beside a copy: please map it. The flags of that message.
uint32_t Execution::announceOutbox(wire::LinkPort& port, size_t bytes) const {
  const bool mayAsk = bytes >= binding_.outbox->minBytes() && !port.isReceiverHere;
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
