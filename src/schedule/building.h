// What the algorithms' files share. Included by them only.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "schedule/schedule.h"

namespace tutti::schedule {

inline Operand in(int32_t chunk) { return ProgramBuilder::input(chunk); }
inline Operand out(int32_t chunk) { return ProgramBuilder::output(chunk); }

// One rank has nobody to talk to.
inline Program copyAlone(bool post) {
  ProgramBuilder program;
  program.add({.chunk = 0, .sources = {in(0)}, .destinations = {out(0)}, .post = post});
  return std::move(program).take();
}

// The rank some places after another, round the circle; 0 <= distance <= rankCount.
inline Rank rankAfter(Rank rank, int32_t distance, int32_t rankCount) {
  return Rank{(index(rank) + distance) % rankCount};
}
inline Rank rankBefore(Rank rank, int32_t distance, int32_t rankCount) {
  return rankAfter(rank, rankCount - distance, rankCount);
}

// The other ranks, the nearest first: each pair has each other at the same place, and ranks that
// share a CPU, which are neighbours, come before those of other CPUs.
inline std::vector<Rank> nearestFirst(Rank rank, int32_t rankCount) {
  std::vector<Rank> peers;
  for (int32_t distance = 1; static_cast<int32_t>(peers.size()) < rankCount - 1; ++distance) {
    const int32_t peer = index(rank) ^ distance;
    if (peer < rankCount) peers.push_back(Rank{peer});
  }
  return peers;
}

// One operand a rank in the order of their numbers, the same on every rank: the other ranks'
// messages with the rank's own in its place.
inline std::vector<Operand> inRankOrder(ProgramBuilder& program, int32_t rankCount, Rank rank,
                                        const Operand& own) {
  std::vector<Operand> sources;
  for (int32_t peer = 0; peer < rankCount; ++peer) {
    sources.push_back(Rank{peer} == rank ? own : program.from(Rank{peer}));
  }
  return sources;
}

// The same round the circle from the rank after the one that folds, its own last: what a ring sums
// for a chunk of that rank, in its order.
inline std::vector<Operand> inRingOrder(ProgramBuilder& program, int32_t rankCount, Rank rank,
                                        const Operand& own) {
  std::vector<Operand> sources;
  for (int32_t distance = 1; distance < rankCount; ++distance) {
    sources.push_back(program.from(rankAfter(rank, distance, rankCount)));
  }
  sources.push_back(own);
  return sources;
}

}  // namespace tutti::schedule
