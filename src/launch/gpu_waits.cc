#include "launch/gpu_waits.h"

#include <algorithm>

namespace tutti::launch {
namespace {

using observe::OperationNote;
using observe::RankView;

// Whether `peer` is in the other half of the transfer that `self` is in.
bool isMet(const RankView& peer, int32_t self, const OperationNote& own) {
  const Collective wanted =
      own.collective == Collective::kSend ? Collective::kRecv : Collective::kSend;
  return std::ranges::any_of(peer.history, [&](const OperationNote& note) {
    return note.collective == wanted && note.peer == self &&
           note.state == observe::EntryState::kRunning;
  });
}

bool isAwaited(const RankView& peer, int32_t self, const OperationNote& own,
               const DeathTest& isDead) {
  if (isPointToPoint(own.collective))
    return own.peer == peer.rank && (isDead(peer) || !isMet(peer, self, own));
  if (isDead(peer)) return true;
  const OperationNote* newest = peer.newestCollective();
  return newest == nullptr || newest->sequence < own.sequence;
}

}  // namespace

std::vector<observe::WaitNote> findGpuWaits(const std::vector<RankView>& ranks, int32_t self,
                                            uint64_t entry, const DeathTest& isDead) {
  std::vector<observe::WaitNote> waits;
  const RankView& me = ranks[static_cast<size_t>(self)];
  const OperationNote* own = me.operation(entry);
  if (own == nullptr && !me.history.empty()) own = &me.history.back();  // newest first
  if (own == nullptr) return waits;
  for (const RankView& peer : ranks) {
    if (peer.rank == self || !observe::hasPage(peer)) continue;
    if (waits.size() < observe::kMaxWaits && isAwaited(peer, self, *own, isDead))
      waits.push_back({.peer = peer.rank, .number = own->number});
  }
  return waits;
}

std::vector<observe::WaitNote> findAbandoned(const std::vector<RankView>& ranks, int32_t self) {
  std::vector<observe::WaitNote> waits;
  const OperationNote* own = ranks[static_cast<size_t>(self)].newestCollective();
  if (own == nullptr || own->state != observe::EntryState::kRunning) return waits;
  for (const RankView& peer : ranks) {
    const bool isGone = observe::hasPage(peer) && peer.life != observe::Life::kReady;
    if (peer.rank == self || !isGone || waits.size() == observe::kMaxWaits) continue;
    const OperationNote* newest = peer.newestCollective();
    // Whoever has called much else since may have called ours before.
    const bool hasNotCalled = newest == nullptr ? peer.history.size() < observe::kHistory
                                                : newest->sequence < own->sequence;
    if (hasNotCalled) waits.push_back({.peer = peer.rank, .number = own->number});
  }
  return waits;
}

std::vector<observe::WaitNote> findDeaths(const std::vector<RankView>& ranks, int32_t self,
                                          uint64_t entry, const DeathTest& isDead) {
  std::vector<observe::WaitNote> waits;
  for (const RankView& peer : ranks) {
    if (peer.rank == self || peer.life != observe::Life::kReady) continue;
    if (waits.size() < observe::kMaxWaits && isDead(peer))
      waits.push_back({.peer = peer.rank, .number = entry});
  }
  return waits;
}

}  // namespace tutti::launch
