// Which algorithms there are for a collective and what each costs: the table that choice,
// NCCL_ALGO, proofs and `tutti explain` share. Pure, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "schedule/algorithms.h"
#include "schedule/layout.h"
#include "schedule/schedule.h"

namespace tutti::schedule {

// Exact figures for one piece. A message carries one chunk: S / chunkCount bytes, S being the whole
// vector (all blocks).
struct Cost {
  int32_t steps = 0;             // of the longest program
  int32_t sentMessages = 0;      // by the rank that sends most
  int32_t receivedMessages = 0;  // by the rank that receives most
  int32_t hops = 0;      // messages on the longest path of which each waits for the one before: the
                         // latency
  int64_t messages = 0;  // by all ranks together
  int64_t links = 0;     // that carry them, of all ranks together, at most; 0: each has its own
};

struct ShortVector {
  int32_t rankCount = 1;
  int32_t hostCount = 1;
  int32_t chunks = 1;  // that hold something; fewer than there are
};

// How ranks lie on hosts, for what algorithms that follow them cost.
struct Spread {
  int32_t rankCount = 1;
  int32_t hostCount = 1;
  int32_t mostRanks = 1;  // of a host
  int32_t headCount = 1;  // ScheduleOptions::headCount
};
// As many on each host.
Spread evenSpread(int32_t rankCount, int32_t hostCount);

// Which ranks hand data to a network that reduces.
enum class Heads : uint8_t { kNone, kOneAHost, kOneAnAdapter };

struct Algorithm {
  std::string_view name;  // static storage
  Collective collective;
  int32_t minSlotCount;  // with fewer slots a link the schedule deadlocks
  Program (*build)(const ScheduleOptions& options, Rank rank);
  int32_t (*chunkCount)(int32_t rankCount);
  Cost (*cost)(int32_t rankCount);
  // Of the hops, those between hosts, where so many hosts hold as many ranks each, a host's next to
  // each other. Exact; an upper bound for pairwise and PAT, for tree and doubling where ranks are
  // no power of two, and for rail where a host holds more than four.
  int32_t (*hostHops)(int32_t rankCount, int32_t hostCount);
  // Where its schedule follows the hosts (ScheduleOptions::hostCount): what it costs then, and the
  // algorithm that it is with one host, whose prices hold for it too. Null and empty: it does not.
  Cost (*costOnHosts)(const Spread& spread) = nullptr;
  std::string_view onOneHost{};
  // Of a vector so short that it ends after so many of its chunks (layout.h): the others are never
  // sent. Hops are at most so many. Null: no chunk of it is ever empty alone, or
  // it is counted whole, as what a network reduces is.
  Cost (*costOfFirst)(const ShortVector& vector) = nullptr;
  // With some: several hosts need a network that reduces, the chunks are those of one head.
  Heads heads = Heads::kNone;
  bool relays = false;  // over ranks that neither have a message nor want it (NCCL_PXN_DISABLE)

  bool followsHosts() const { return costOnHosts != nullptr; }
  bool reducesInNetwork() const { return heads != Heads::kNone; }
  // Needs no more than ranks and links, and is not just another's double among so many: hosts hold
  // several each, equally many.
  bool isOfItsOwn(int32_t rankCount, int32_t hostCount) const {
    return !reducesInNetwork() && (!followsHosts() || (hostCount > 1 && hostCount < rankCount));
  }
  int32_t chunksOf(const ScheduleOptions& options) const {
    return chunkCount(options.rankCount) *
           (heads == Heads::kOneAnAdapter && options.rankCount > 1 ? options.headCount : 1);
  }
  // Ranks that stand for the network, behind the others.
  int32_t networksOf(const ScheduleOptions& options) const;
};

Cost costOf(const Algorithm& algorithm, const Spread& spread);
// Of a vector of which so many chunks a block hold something.
Cost costOf(const Algorithm& algorithm, const ShortVector& vector);
// How its blocks, of which all are as long, are cut.
Chunks chunksOf(const Algorithm& algorithm, int32_t rankCount, uint64_t vectorBytes);

// Never empty; the first is the one to take when nothing is known.
std::span<const Algorithm> algorithms(Collective collective);

// By name, upper and lower case alike; null when the collective has none of that name.
const Algorithm* findAlgorithm(Collective collective, std::string_view name);

// Bytes that the busiest rank sends (receives), as a multiple of the whole vector's bytes.
double sentFactor(const Algorithm& algorithm, int32_t rankCount);
double receivedFactor(const Algorithm& algorithm, int32_t rankCount);

// One rank's program. With an order among the options ranks take the places that it gives them:
// whoever is next to another there is what the algorithm takes for its neighbour, whatever their
// numbers. REQUIRES: a permutation of all ranks, or none. Those of the network keep theirs.
Program buildProgram(const Algorithm& algorithm, const ScheduleOptions& options, Rank rank);

// All ranks' programs together, for proof, simulation and print.
Schedule makeSchedule(const Algorithm& algorithm, const ScheduleOptions& options);

}  // namespace tutti::schedule
