// What a call takes with each algorithm, from what its schedule does: messages that wait for each
// other, messages that are sent and received, bytes that are. What each of these takes on a machine
// is measured by `tutti tune` and kept in a file that later runs read (TUTTI_TUNING_FILE). Pure,
// any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "schedule/catalog.h"
#include "wire/types.h"

namespace tutti::plan {

// What is counted of a call, each with its price in microseconds. Where ranks outnumber CPUs, all
// that a rank does itself counts as often as ranks share a CPU.
enum class CostTerm : uint8_t {
  kCall,          // once
  kHop,           // a message on the longest chain of which each waits for the one before
  kMessage,       // sent or received by the busiest rank
  kSlotMb,        // 10^6 bytes sent or received, whichever is more, through slots
  kReferencedMb,  // the same, read from the sender's buffer (long, between threads)
};
inline constexpr size_t kCostTermCount = 5;
std::string_view nameOf(CostTerm term);  // "hop"
using CostTerms = std::array<double, kCostTermCount>;

// A call's size, and who makes it.
struct CostedCall {
  int32_t rankCount = 1;
  int32_t cpuCount = 1;     // that these ranks share
  uint64_t bytes = 0;       // of the whole vector
  bool readsPeers = false;  // ranks are threads of one process
};
// How often each term occurs.
CostTerms countTerms(const schedule::Algorithm& algorithm, const CostedCall& call);

// Prices of one collective on one kind of rank.
struct CostPrices {
  Collective collective = Collective::kAllReduce;
  bool readsPeers = false;
  CostTerms us{};
  bool operator==(const CostPrices&) const = default;
};

struct Tuning {
  std::string machine{};
  std::string date{};
  std::string how{};     // the command
  int32_t cpuCount = 1;  // that the ranks shared
  std::vector<CostPrices> prices{};

  // null: not measured.
  const CostPrices* pricesOf(Collective collective, bool readsPeers) const;
  bool operator==(const Tuning&) const = default;
};

double predictUs(const CostPrices& prices, const CostTerms& counts);

// The file. Errors name source and line.
std::string writeTuning(const Tuning& tuning);
Result<Tuning> parseTuning(std::string_view text, const std::string& source);

// One measured call.
struct CostSample {
  CostTerms counts{};
  double us = 0;
};
// Prices, none negative, that come nearest to the samples by relative error (least squares).
CostTerms fitPrices(std::span<const CostSample> samples);

}  // namespace tutti::plan
