// How the ranks of a job divide themselves among several roots. Pure.
//
// Group g has consecutive ranks and meets at root g, together with a guest: the first rank of the
// group after it. So the first ranks, which are guests at the root before their own, know their
// neighbours in a ring, over which they pass on who is in their groups; then they tell their own.
// With one root for all, it would answer every rank; so each answers as many as its group has, and
// one more.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/ids.h"

namespace tutti::bootstrap {

struct RankGroups {
  int32_t rankCount = 1;
  int32_t groupCount = 1;  // 1 to rankCount

  // The first `rankCount % groupCount` groups have one rank more than the others.
  int32_t firstOf(int32_t group) const {
    return group * (rankCount / groupCount) + std::min(group, rankCount % groupCount);
  }
  int32_t sizeOf(int32_t group) const { return firstOf(group + 1) - firstOf(group); }
  int32_t groupOf(Rank rank) const {
    const int32_t size = rankCount / groupCount;
    const int32_t inLonger = (rankCount % groupCount) * (size + 1);
    const int32_t at = index(rank);
    return at < inLonger ? at / (size + 1) : (at - inLonger) / size + rankCount % groupCount;
  }
  int32_t after(int32_t group) const { return (group + 1) % groupCount; }
  int32_t before(int32_t group) const { return (group + groupCount - 1) % groupCount; }
};

}  // namespace tutti::bootstrap
