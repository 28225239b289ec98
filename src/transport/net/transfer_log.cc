#include "transport/net/transfer_log.h"

#include <algorithm>

namespace tutti::transport::net {

using observe::EventKind;

// Of a link that ends early.
TransferLog::~TransferLog() {
  const Instant now = clock_.now();
  for (const Message& message : messages_) {
    if (message.isTold) profiler_.end(EventKind::kMessage, message.tag, now);
  }
  for (const Transfer& transfer : transfers_)
    profiler_.end(EventKind::kTransfer, transfer.tag, now);
}

void TransferLog::begin(const observe::EventTag& call, const observe::TransferNote& note) {
  const Transfer& transfer = transfers_.emplace_back(
      Transfer{.note = note, .tag = profiler_.beginTransfer(call, note, clock_.now())});
  for (Message& message : messages_) {
    if (!message.isTold && transferOf(message.number) == &transfer) tell(message, transfer);
  }
}

void TransferLog::appeared(uint64_t number, uint64_t bytes, Instant at) {
  if (!messages_.empty() && number <= messages_.back().number) return;
  Message& message = messages_.emplace_back();
  message.number = number;
  message.bytes = bytes;
  message.appeared = at;
  if (const Transfer* transfer = transferOf(number); transfer != nullptr) tell(message, *transfer);
}

void TransferLog::moved(uint64_t number, Instant at) {
  if (messages_.empty() || number < messages_.front().number) return;
  Message& message = messages_[number - messages_.front().number];
  message.moved = at;
  message.hasMoved = true;
  if (message.isTold) profiler_.messageMoved(message.tag, message.bytes, message.moved);
}

// Asked often, and mostly there is nothing: then the clock is left alone.
void TransferLog::passed(uint64_t number) {
  const bool endsMessage = !messages_.empty() && messages_.front().number < number;
  const bool endsTransfer = !transfers_.empty() && transfers_.front().end() <= number;
  if (endsMessage || endsTransfer) passed(number, clock_.now());
}

void TransferLog::passed(uint64_t number, Instant at) {
  for (; !messages_.empty() && messages_.front().number < number; messages_.pop_front()) {
    const Message& message = messages_.front();
    if (message.isTold) profiler_.end(EventKind::kMessage, message.tag, at);
  }
  for (; !transfers_.empty() && transfers_.front().end() <= number; transfers_.pop_front())
    profiler_.end(EventKind::kTransfer, transfers_.front().tag, at);
}

const TransferLog::Transfer* TransferLog::transferOf(uint64_t number) const {
  const auto found = std::ranges::find_if(transfers_, [number](const Transfer& transfer) {
    return number >= transfer.note.firstMessage && number < transfer.end();
  });
  return found == transfers_.end() ? nullptr : &*found;
}

void TransferLog::tell(Message& message, const Transfer& transfer) {
  message.isTold = true;
  message.tag = profiler_.beginMessage(
      transfer.tag,
      {.number = message.number,
       .step = static_cast<uint32_t>(message.number - transfer.note.firstMessage),
       .bytes = message.bytes},
      message.appeared);
  if (message.hasMoved) profiler_.messageMoved(message.tag, message.bytes, message.moved);
}

}  // namespace tutti::transport::net
