// Who belongs to a communicator that is made of another. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace tutti::comm {

inline constexpr int32_t kNoColor = -1;  // NCCL_SPLIT_NOCOLOR

struct SplitChoice {
  int32_t color = kNoColor;
  int32_t key = 0;
};

// The ranks that chose this colour, by key, equal keys by rank. `choices` is by rank.
std::vector<Rank> membersOf(std::span<const SplitChoice> choices, int32_t color);

// The ranks of 0 to rankCount - 1 that are not in the list, in order. kInvalidArgument for a rank
// out of range, listed twice, or the caller's own.
Result<std::vector<Rank>> remainingRanks(int32_t rankCount, Rank self,
                                         std::span<const int> excluded);

}  // namespace tutti::comm
