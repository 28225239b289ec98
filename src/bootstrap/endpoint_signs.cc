// Signs of life: who is asked for one, what it says besides, and what is known of those that came.
#include <set>
#include <utility>

#include "bootstrap/endpoint.h"

namespace tutti::bootstrap {

Result<std::optional<Sign>> Endpoint::probe(Rank self, Rank peer) {
  std::lock_guard lock(mutex_);
  TUTTI_TRY(ask({.self = self, .peer = peer}));
  return findSign({.self = self, .peer = peer});
}

std::optional<Sign> Endpoint::lastSign(Rank self, Rank peer) const {
  std::lock_guard lock(mutex_);
  return findSign({.self = self, .peer = peer});
}

void Endpoint::say(Rank rank, Words words) {
  std::lock_guard lock(mutex_);
  words_[rank] = std::move(words);
}

Status Endpoint::ask(const Slot& slot) {
  if (mailboxes_.contains(slot.peer)) return {};
  TUTTI_TRY_ASSIGN(Outgoing* const outgoing, outgoingFor(slot));
  // It comes back with the sign, so it is known how old that is.
  const auto now = static_cast<uint64_t>(options_.clock->now());
  if (!outgoing->fault().empty() || !outgoing->send(FrameType::kProbe, now, {})) {
    return Status(Code::kRemoteError, name(slot.peer) + " takes no message any more");
  }
  if (outgoing->nextTime()) poller_->wake();
  return {};
}

std::optional<Sign> Endpoint::findSign(const Slot& slot) const {
  if (mailboxes_.contains(slot.peer)) return Sign{.last = options_.clock->now()};
  const auto sign = signs_.find({slot.self, slot.peer});
  return sign == signs_.end() ? std::nullopt : std::optional(sign->second);
}

void Endpoint::tellAll(Rank rank) {
  std::unique_lock lock(mutex_);
  std::set<Rank> peers;
  for (const auto& [key, incoming] : incoming_) {
    if (incoming.introduction.target == rank) peers.insert(incoming.introduction.rank);
  }
  for (const auto& [pair, outgoing] : outgoing_) {
    if (pair.first == rank) peers.insert(pair.second);
  }
  for (const Rank peer : peers) answer(rank, peer, 0);
  if (poller_) poller_->wake();
  // Its user may end all at once, and what is not out by then is lost.
  flushed_.wait_for(lock, kHastyFlushTime, [&] { return isFlushed(rank); });
}

void Endpoint::answer(Rank self, Rank peer, uint64_t tag) {
  const Result<Outgoing*> outgoing = outgoingFor({.self = self, .peer = peer});
  if (!outgoing.ok() || !outgoing.value()->fault().empty()) return;
  const auto words = words_.find(self);
  std::vector<std::byte> said;
  if (words != words_.end() && words->second) said = words->second();
  if (said.size() > kMaxWordsBytes) said.clear();
  [[maybe_unused]] const bool isTaken = outgoing.value()->send(FrameType::kSign, tag, said);
}

}  // namespace tutti::bootstrap
