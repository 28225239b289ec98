// How a communicator grows out of another: its ranks find out who they are over the parent's
// bootstrap, the first of them opens a meeting place, and from there it begins as any other does.
#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "base/futex.h"
#include "base/log.h"
#include "comm/communicator.h"
#include "comm/hash.h"
#include "comm/membership.h"
#include "comm/process.h"
#include "comm/subgroup.h"
#include "launch/watch.h"

namespace tutti::comm {
namespace {

// Marks of this file's bootstrap tags; the links' have zeros there.
constexpr uint64_t kSplitMark = uint64_t{0x5350} << 48;
constexpr uint64_t kShrinkMark = uint64_t{0x5348} << 48;
constexpr uint64_t kScopeMask = (uint64_t{1} << 40) - 1;
// The second gathering of a derivation, of the child's ranks alone. A gathering has at most 20
// rounds.
constexpr uint64_t kSecondGathering = 0x80;

// What the first rank of a child tells the others. The secret itself stays at home: who belongs
// there can make it of the parent's.
struct Invitation {
  decltype(bootstrap::UniqueId::address) address{};
  bootstrap::Salt salt{};
  bootstrap::Maker maker{};
};
static_assert(sizeof(Invitation) == 28 + 32 + 24);

std::vector<Rank> allRanks(int32_t rankCount) {
  std::vector<Rank> ranks;
  for (int32_t rank = 0; rank < rankCount; ++rank) ranks.push_back(Rank{rank});
  return ranks;
}

// Ranks learn of a failure up to T apart, and so late they may come to what follows.
std::chrono::milliseconds patienceOf(const Derivation& derivation,
                                     std::chrono::milliseconds timeout) {
  constexpr std::chrono::milliseconds kToNotice{250};  // that the other one's T is over
  return derivation.followsFailure ? 2 * timeout + kToNotice : timeout;
}

std::string_view callName(Derivation::Kind kind) {
  return kind == Derivation::Kind::kSplit ? "ncclCommSplit" : "ncclCommShrink";
}

}  // namespace

uint64_t Communicator::nextSplitTag() {
  std::lock_guard lock(childMutex_);
  return kSplitMark | ((splitCount_++ & kScopeMask) << 8);
}

// Ranks that were excluded before have counted fewer shrinks, so each list has its own count; and
// ranks that give different lists never hear of each other, and say so when the time is over.
uint64_t Communicator::nextShrinkTag(std::span<const Rank> remaining) {
  const auto bytes = std::as_bytes(remaining);
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::lock_guard lock(childMutex_);
  const uint64_t count = shrinkCounts_[hashOf(text)]++;
  text.append(reinterpret_cast<const char*>(&count), sizeof count);
  return kShrinkMark | ((hashOf(text) & kScopeMask) << 8);
}

bootstrap::Reach Communicator::reachOf(std::span<const Rank> members) const {
  const auto isHere = [this](Rank rank) {
    if (virtualLauncher_ != nullptr) return virtualLauncher_->world().isHere(rank);
    const auto processOf = [this](Rank each) {
      return peers_[static_cast<size_t>(index(each))].processHash;
    };
    return processOf(rank) == processOf(this->rank());
  };
  return std::ranges::all_of(members, isHere) ? bootstrap::Reach::kProcess
                                              : bootstrap::Reach::kNetwork;
}

// A rank that fails, since another died, comes to none of the steps that follow; who misses it
// there would name it, and not the one that died.
Status Communicator::nameTheDead(Status failed) const {
  if (!derivation_ || failed.code() != Code::kRemoteError) return failed;
  const Communicator& parent = *derivation_->parent;
  const auto& members = derivation_->remaining;
  const auto isDead = [&](Rank rank) { return parent.runner_->isDead(index(rank)); };
  auto dead = std::ranges::find_if(members, isDead);
  for (int looks = 1; dead == members.end(); ++looks) {
    if (looks == launch::kDeathLooks || !checkNotAborted().ok()) return failed;
    sleepFor(launch::kBetweenDeathLooks);
    dead = std::ranges::find_if(members, isDead);
  }
  return remoteError("{} died during {}: {}",
                     bootstrap::describe(parent.peers_[static_cast<size_t>(index(*dead))]),
                     callName(derivation_->kind), failed.message());
}

// Ends with rankCount() 0 when this rank is to be in no child.
Status Communicator::derive() {
  Derivation& derivation = *derivation_;
  if (derivation.kind == Derivation::Kind::kShrink) return meetChild(derivation.remaining);
  const Communicator& parent = *derivation.parent;
  derivation.remaining = allRanks(parent.rankCount());
  std::vector<SplitChoice> choices(derivation.remaining.size());
  choices[static_cast<size_t>(index(parent.rank()))] = {derivation.color, derivation.key};
  TUTTI_TRY(gather({.bootstrap = *parent.bootstrap_,
                    .members = derivation.remaining,
                    .tag = derivation.tag,
                    .timeout = patienceOf(derivation, process_.networkOptions().timeout),
                    .abort = &abort_,
                    .what = callName(derivation.kind)},
                   {}, std::as_writable_bytes(std::span(choices)), sizeof(SplitChoice)));
  if (derivation.color == kNoColor) return {};
  derivation.remaining = membersOf(choices, derivation.color);
  return meetChild(derivation.remaining);
}

// `members` are ranks of the parent, in the child's order.
Status Communicator::meetChild(const std::vector<Rank>& members) {
  const Derivation& derivation = *derivation_;
  const Communicator& parent = *derivation.parent;
  const auto self =
      static_cast<size_t>(std::ranges::find(members, parent.rank()) - members.begin());
  const bool isFirst = self == 0;
  std::vector<Invitation> invitations(members.size());
  Invitation& invitation = invitations.front();
  Status opened;
  if (isFirst) {
    systemRng().fill(invitation.salt);
    id_ = bootstrap::deriveUniqueId(parent.id_, invitation.salt);
    opened = bootstrap::openRoot(process_.directory(), process_.networkOptions(),
                                 parent.reachOf(members), id_);
    invitation.address = id_.address;
    invitation.maker = id_.maker;
  }
  Status status =
      gather({.bootstrap = *parent.bootstrap_,
              .members = members,
              .tag = derivation.tag | kSecondGathering,
              .timeout = patienceOf(derivation, process_.networkOptions().timeout),
              .abort = &abort_,
              .what = callName(derivation.kind)},
             std::move(opened), std::as_writable_bytes(std::span(invitations)), sizeof(Invitation));
  if (!status.ok()) {
    if (isFirst) bootstrap::closeRoot(process_.directory(), id_);
    return status;
  }
  id_ = bootstrap::deriveUniqueId(parent.id_, invitation.salt);
  id_.address = invitation.address;
  id_.maker = invitation.maker;
  log::info(log::Subsystem::kInit, "comm {} rank {} of {} comes from comm {} rank {} by {}",
            static_cast<const void*>(this), self, members.size(), static_cast<const void*>(&parent),
            index(parent.rank()), callName(derivation.kind));
  hash_.store(hashOf(id_.job), std::memory_order_relaxed);
  rank_.store(Rank{static_cast<int32_t>(self)}, std::memory_order_relaxed);
  rankCount_.store(static_cast<int32_t>(members.size()), std::memory_order_release);
  return {};
}

}  // namespace tutti::comm
