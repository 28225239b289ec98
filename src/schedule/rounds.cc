#include "schedule/algorithms.h"
#include "schedule/building.h"

namespace tutti::schedule {
namespace {

void addLocalCopy(ProgramBuilder& program, Rank rank) {
  const int32_t chunk = index(rank);
  program.add({.chunk = chunk,
               .sources = {ProgramBuilder::input(chunk)},
               .destinations = {ProgramBuilder::output(chunk)}});
}

void addSend(ProgramBuilder& program, int32_t chunk, Rank peer) {
  program.add({.chunk = chunk,
               .sources = {ProgramBuilder::input(chunk)},
               .destinations = {program.to(peer)}});
}

void addReceive(ProgramBuilder& program, int32_t chunk, Rank peer) {
  program.add({.chunk = chunk,
               .sources = {program.from(peer)},
               .destinations = {ProgramBuilder::output(chunk)}});
}

}  // namespace

// The partner's partner is the rank itself, so each round is a matching and a rank sends to the
// partner before it receives from it: in place, the block sent is the block then overwritten.
Program pairwiseAllToAll(const ScheduleOptions& options, Rank rank) {
  const int32_t n = options.rankCount;
  ProgramBuilder program;
  for (int32_t round = 0; round < n; ++round) {
    const Rank partner{(round - index(rank) + n) % n};
    if (partner == rank) {
      addLocalCopy(program, rank);
    } else {
      addSend(program, index(partner), partner);
      addReceive(program, index(partner), partner);
    }
  }
  return std::move(program).take();
}

// A rank waits for nobody before all of its blocks are on their way: where ranks share a CPU, one
// turn a rank is enough, when a round takes one each.
Program directAllToAll(const ScheduleOptions& options, Rank rank) {
  const int32_t n = options.rankCount;
  ProgramBuilder program;
  for (int32_t distance = 1; distance < n; ++distance) {
    const Rank peer{(index(rank) + distance) % n};
    addSend(program, index(peer), peer);
  }
  addLocalCopy(program, rank);
  for (const Rank peer : nearestFirst(rank, n)) addReceive(program, index(peer), peer);
  return std::move(program).take();
}

Program directGather(const ScheduleOptions& options, Rank rank) {
  ProgramBuilder program;
  if (rank != options.root) {
    addSend(program, index(rank), options.root);
    return std::move(program).take();
  }
  addLocalCopy(program, rank);
  for (int32_t distance = 1; distance < options.rankCount; ++distance) {
    const int32_t peer = (index(rank) + distance) % options.rankCount;
    addReceive(program, peer, Rank{peer});
  }
  return std::move(program).take();
}

// The root's own block last: the others wait for theirs, nobody for this one.
Program directScatter(const ScheduleOptions& options, Rank rank) {
  ProgramBuilder program;
  if (rank != options.root) {
    addReceive(program, index(rank), options.root);
    return std::move(program).take();
  }
  for (int32_t distance = 1; distance < options.rankCount; ++distance) {
    const int32_t peer = (index(rank) + distance) % options.rankCount;
    addSend(program, peer, Rank{peer});
  }
  addLocalCopy(program, rank);
  return std::move(program).take();
}

}  // namespace tutti::schedule
