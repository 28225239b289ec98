#include "bootstrap/mailbox.h"

#include <utility>

namespace tutti::bootstrap {

bool Mailbox::push(Rank from, FrameType type, uint64_t tag, std::vector<std::byte> message) {
  Sender& sender = senders_[index(from)];
  const size_t cost = message.size() + kMessageCostBytes;
  if (sender.waitingBytes + cost > kMaxWaitingBytes) return false;
  sender.waitingBytes += cost;
  sender.queues[{type, tag}].push_back(std::move(message));
  return true;
}

std::optional<std::vector<std::byte>> Mailbox::pop(Rank from, FrameType type, uint64_t tag) {
  const auto sender = senders_.find(index(from));
  if (sender == senders_.end()) return std::nullopt;
  auto& queues = sender->second.queues;
  const auto queue = queues.find({type, tag});
  if (queue == queues.end()) return std::nullopt;
  std::vector<std::byte> message = std::move(queue->second.front());
  queue->second.pop_front();
  if (queue->second.empty()) queues.erase(queue);
  sender->second.waitingBytes -= message.size() + kMessageCostBytes;
  return message;
}

void Mailbox::close(Rank from, std::string why) {
  std::optional<std::string>& closed = senders_[index(from)].closed;
  if (!closed) closed = std::move(why);
}

const std::string* Mailbox::whyClosed(Rank from) const {
  const auto sender = senders_.find(index(from));
  if (sender == senders_.end() || !sender->second.closed) return nullptr;
  return &*sender->second.closed;
}

}  // namespace tutti::bootstrap
