// One hop: every message goes from the rank that has the data straight to the rank that wants it.
// Each rank begins with the one after it, so that they do not all turn to the same.
#include <utility>
#include <vector>

#include "schedule/algorithms.h"
#include "schedule/building.h"

namespace tutti::schedule {
namespace {

// A rank's input to its output and to all others.
void addCopyToAll(ProgramBuilder& program, int32_t rankCount, Rank rank, int32_t chunk) {
  std::vector<Operand> copies{out(chunk)};
  for (int32_t distance = 1; distance < rankCount; ++distance) {
    copies.push_back(program.to(rankAfter(rank, distance, rankCount)));
  }
  program.add({.chunk = chunk, .sources = {in(chunk)}, .destinations = std::move(copies)});
}

void addReceive(ProgramBuilder& program, Rank peer, int32_t chunk) {
  program.add({.chunk = chunk, .sources = {program.from(peer)}, .destinations = {out(chunk)}});
}

void addSend(ProgramBuilder& program, Rank peer, int32_t chunk) {
  program.add({.chunk = chunk, .sources = {in(chunk)}, .destinations = {program.to(peer)}});
}

}  // namespace

Program directAllGather(const ScheduleOptions& options, Rank rank) {
  const int32_t n = options.rankCount;
  ProgramBuilder program;
  addCopyToAll(program, n, rank, index(rank));
  for (const Rank peer : nearestFirst(rank, n)) addReceive(program, peer, index(peer));
  return std::move(program).take();
}

Program directReduceScatter(const ScheduleOptions& options, Rank rank) {
  const int32_t n = options.rankCount;
  ProgramBuilder program;
  for (int32_t distance = 1; distance < n; ++distance) {
    const Rank peer = rankAfter(rank, distance, n);
    addSend(program, peer, index(peer));
  }
  const int32_t own = index(rank);
  program.add({.chunk = own,
               .sources = inRingOrder(program, n, rank, in(own)),
               .destinations = {out(own)},
               .post = true});
  return std::move(program).take();
}

Program directBroadcast(const ScheduleOptions& options, Rank rank) {
  ProgramBuilder program;
  if (rank == options.root) {
    addCopyToAll(program, options.rankCount, rank, 0);
  } else {
    addReceive(program, options.root, 0);
  }
  return std::move(program).take();
}

Program directReduce(const ScheduleOptions& options, Rank rank) {
  ProgramBuilder program;
  if (rank == options.root) {
    program.add({.chunk = 0,
                 .sources = inRankOrder(program, options.rankCount, rank, in(0)),
                 .destinations = {out(0)},
                 .post = true});
  } else {
    addSend(program, options.root, 0);
  }
  return std::move(program).take();
}

}  // namespace tutti::schedule
