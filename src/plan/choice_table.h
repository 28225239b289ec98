// Which algorithm a call takes: one table, collective x ranks x bytes, that the planner reads and
// `tutti explain` prints. Pure, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "wire/types.h"

namespace tutti::plan {

inline constexpr int32_t kAnyRanks = std::numeric_limits<int32_t>::max();
inline constexpr size_t kAnyBytes = std::numeric_limits<size_t>::max();

// Up to so many ranks and bytes of the whole vector (all blocks), this algorithm.
struct ChoiceRow {
  Collective collective;
  int32_t maxRanks;
  size_t maxBytes;
  std::string_view algorithm;  // of the catalogue
};

// The rows for a number of ranks, shortest vectors first; the last is for kAnyBytes. Empty where
// the catalogue has one algorithm only.
std::span<const ChoiceRow> choiceRows(Collective collective, int32_t rankCount);

}  // namespace tutti::plan
