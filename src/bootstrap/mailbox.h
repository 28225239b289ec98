// What has come for one rank and was not asked for yet, sorted by sender, kind and tag. Bounded.
// Guarded by the endpoint's mutex.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "bootstrap/frame.h"

namespace tutti::bootstrap {

// What a sender may leave unread in one mailbox, and unsent in one connection.
inline constexpr size_t kMaxWaitingBytes = size_t{64} << 20;

// What a message costs beyond its own bytes, so that a flood of empty ones is bounded too.
inline constexpr size_t kMessageCostBytes = 64;

class Mailbox {
 public:
  // False, and nothing stored, when the sender would have more than kMaxWaitingBytes here.
  bool push(Rank from, FrameType type, uint64_t tag, std::vector<std::byte> message);

  // The oldest message of this sender, kind and tag.
  std::optional<std::vector<std::byte>> pop(Rank from, FrameType type, uint64_t tag);

  // No more will come from this rank; the first reason stays. What has come can still be popped.
  void close(Rank from, std::string why);
  // nullptr while more may come.
  const std::string* whyClosed(Rank from) const;

  std::condition_variable changed;  // notified after push and close, by their caller

 private:
  struct Sender {
    std::map<std::pair<FrameType, uint64_t>, std::deque<std::vector<std::byte>>> queues;
    size_t waitingBytes = 0;
    std::optional<std::string> closed;
  };
  std::unordered_map<int32_t, Sender> senders_;
};

}  // namespace tutti::bootstrap
