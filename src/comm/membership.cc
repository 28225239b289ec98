#include "comm/membership.h"

#include <algorithm>

namespace tutti::comm {

std::vector<Rank> membersOf(std::span<const SplitChoice> choices, int32_t color) {
  std::vector<Rank> members;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i].color == color) members.push_back(Rank{static_cast<int32_t>(i)});
  }
  std::ranges::stable_sort(
      members, {}, [&choices](Rank rank) { return choices[static_cast<size_t>(index(rank))].key; });
  return members;
}

Result<std::vector<Rank>> remainingRanks(int32_t rankCount, Rank self,
                                         std::span<const int> excluded) {
  std::vector<bool> isExcluded(static_cast<size_t>(rankCount));
  for (size_t i = 0; i < excluded.size(); ++i) {
    const int rank = excluded[i];
    if (rank < 0 || rank >= rankCount) {
      return invalidArgument("excludeRanksList[{}] is {}; the ranks are 0 to {}", i, rank,
                             rankCount - 1);
    }
    if (rank == index(self)) {
      return invalidArgument(
          "excludeRanksList[{}] is {}, this rank itself: only the ranks that remain call "
          "ncclCommShrink",
          i, rank);
    }
    if (isExcluded[static_cast<size_t>(rank)])
      return invalidArgument("excludeRanksList names rank {} twice", rank);
    isExcluded[static_cast<size_t>(rank)] = true;
  }
  std::vector<Rank> remaining;
  for (int32_t rank = 0; rank < rankCount; ++rank) {
    if (!isExcluded[static_cast<size_t>(rank)]) remaining.push_back(Rank{rank});
  }
  return remaining;
}

}  // namespace tutti::comm
