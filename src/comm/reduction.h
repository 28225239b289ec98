// How the ranks of a communicator find out whether a network reduces between their hosts, and who
// hands it what. All of them take part in each step, so all decide alike.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/settings.h"
#include "base/status.h"
#include "bootstrap/bootstrap.h"
#include "channel/link_set.h"
#include "net/held_group.h"
#include "net/registry.h"
#include "plan/plan.h"

namespace tutti::comm {

// What a rank says of its network.
struct ReductionOffer {
  int32_t isWanted = 0;     // NCCL_COLLNET_ENABLE, or the communicator's configuration
  int32_t deviceCount = 0;  // 0: none, and why not
  int32_t nodeThreshold = 0;
  uint64_t supported = 0;       // plan::NetworkReduction::bitOf()
  uint64_t maxBytes = 0;        // of one reduction
  int32_t gathers = 0;          // all-gather
  int32_t scatters = 0;         // reduce-scatter
  std::array<char, 32> name{};  // zero-terminated, as the next
  std::array<char, 192> obstacle{};
};

// A network that reduces, and what to offer of it.
struct FoundReduction {
  std::shared_ptr<net::ReductionNetwork> network;  // shared with calls that have not returned
  ReductionOffer offer;
};
// The first that the options name. A plug-in that does not return within half the time-out is done
// without.
Result<FoundReduction> findReduction(const net::NetworkOptions& options);
// The same for who only wants to know; the network has ended by then.
Result<ReductionOffer> lookForReduction(const net::NetworkOptions& options);
// Where there is none, it says why.
ReductionOffer offerOf(Result<const FoundReduction*> found);

// A rank and its host, by number.
struct ReductionRank {
  Rank rank{0};
  int32_t host = 0;
  const ReductionOffer* offer = nullptr;
};
// What follows from all ranks' offers. By rank; `order`: ranks by place, empty: by number. Pure.
plan::NetworkReduction agreeOnReduction(std::span<const ReductionRank> ranks,
                                        std::span<const Rank> order);

// Of a group: the ranks in one seat of all hosts.
std::vector<Rank> membersOf(const plan::NetworkReduction& network, std::span<const Rank> order,
                            int32_t seat);

struct ReductionParts {
  bootstrap::Bootstrap& bootstrap;
  std::shared_ptr<net::ReductionNetwork> network;  // shared with calls that do not return
  std::span<const Rank> order{};
  int32_t rankCount = 1;
  std::chrono::milliseconds timeout{0};
  const std::atomic<bool>* abort = nullptr;
  Clock& clock;
};
// Makes the groups. Where one rank cannot, none of them is used, and the network's obstacle says
// why. An error: the ranks could not talk.
Result<channel::LinkSet::NetworkSeat> joinReduction(const ReductionParts& parts,
                                                    plan::NetworkReduction& network);

}  // namespace tutti::comm
