// What a call takes with each algorithm, from what its schedule does: messages that wait for each
// other, messages that are sent and received, bytes that are. What each of these takes with that
// algorithm on a machine is measured, and kept as tuning.h says. Pure, any thread.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "plan/crossings.h"
#include "schedule/catalog.h"
#include "wire/types.h"

namespace tutti::plan {

// What is counted of a call, each with its price in microseconds. What is sent, received and copied
// counts as often as the busiest rank does it, or, where ranks share CPUs, as often as a CPU's
// ranks do together, whichever is more; a hop there counts as often as ranks share a CPU.
enum class CostTerm : uint8_t {
  kCall,          // once
  kHop,           // a message on the longest chain of which each waits for the one before
  kLine,          // sent or received, so short that it fits its mark's line
  kMessage,       // the same, longer; a piece of a chunk counts as one
  kSlotMb,        // 10^6 bytes sent or received, whichever is more, through slots
  kColdMb,        // those of them whose slots a cache no longer holds when they come round again
  kReferencedMb,  // the same, read from the sender's buffer (long, where ranks can)
  // In place of those, for messages between hosts:
  kNetHop,       // a message between hosts on the longest chain, once a piece
  kNetMessage,   // a piece sent to, or received from, another host
  kNetLink,      // a link to or from another host on which the busiest rank does
  kNetMb,        // 10^6 bytes that a host's ranks send and receive
  kNetFoldedMb,  // those received that are folded on arrival, out of slots; others land
  kNetWireMb,    // 10^6 bytes that a host sends or receives, whichever is more; priced by its wire
};
inline constexpr size_t kCostTermCount = 13;
inline constexpr size_t kFirstNetTerm = 7;
std::string_view nameOf(CostTerm term);  // "hop"
using CostTerms = std::array<double, kCostTermCount>;

// A call's size, and who makes it.
struct CostedCall {
  int32_t rankCount = 1;
  double ranksPerCpu = 1;          // at least 1
  uint64_t bytes = 0;              // of the whole vector
  bool readsPeers = false;         // ranks are threads of one process
  uint32_t slotCount = 8;          // of a link
  uint32_t slotBytes = 64 * 1024;  // of each
  bool isOneHost = true;
  int32_t hostCount = 1;                        // that hold as many ranks each, next to each other
  std::optional<schedule::Spread> inNetwork{};  // of hosts whose network reduces
  Crossings crossings{};                        // of this algorithm
};
// What the call's schedule does, and how its blocks are cut: what goes through a network that
// reduces is not cut where a short vector ends.
struct Counted {
  schedule::Cost cost;
  schedule::Chunks chunks;
  double meanBytes = 0;  // of a chunk
};
Counted countedOf(const schedule::Algorithm& algorithm, const CostedCall& call);
// How often each term occurs.
CostTerms countTerms(const schedule::Algorithm& algorithm, const CostedCall& call);

// What ranks have prices of their own. Where ranks share CPUs a wait is a turn of the scheduler:
// one list for both kinds names a good algorithm in 93 % of the cells of 2 CPUs, two in 95 %
// (docs/results/2026-11-21-choice.md).
struct RankKind {
  bool readsPeers = false;  // threads of one process
  bool isCrowded = false;
  auto operator<=>(const RankKind&) const = default;
};

// Prices of one algorithm on one kind of rank, those of the network 0. Algorithms differ in what
// the terms do not say (who waits for whom, what stays in which cache), so each has its own.
struct CostPrices {
  Collective collective = Collective::kAllReduce;
  RankKind kind{};
  std::string_view algorithm{};  // of the catalogue
  CostTerms us{};
  bool operator==(const CostPrices&) const = default;
};

double predictUs(const CostPrices& prices, const CostTerms& counts);

// One measured call.
struct CostSample {
  CostTerms counts{};
  double us = 0;
  double knownUs = 0;  // that other prices account for
};
// Prices, none negative, that come nearest to the samples by relative error (least squares). With
// `usual`, the prices of all algorithms together, terms that the samples say little about stay near
// those: what holds for 8 ranks must not be nonsense for 64.
CostTerms fitPrices(std::span<const CostSample> samples, const CostTerms* usual = nullptr);

// A tuning's prices from measured calls: of each algorithm, drawn to those of its kind of ranks.
struct MeasuredCall {
  Collective collective = Collective::kAllReduce;
  RankKind kind{};
  std::string_view algorithm{};  // of the catalogue
  CostSample sample{};
};
std::vector<CostPrices> fitAll(std::span<const MeasuredCall> calls);
// Prices of the network's terms alone, by calls whose other terms are accounted for.
CostTerms fitNetwork(std::span<const CostSample> samples);

}  // namespace tutti::plan
