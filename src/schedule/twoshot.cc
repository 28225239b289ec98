// Two hops: every chunk has an owner, which gets it from all ranks that have a part in it and sends
// what it made of it to all that want it. Each rank begins with the one after it, so that they do
// not all turn to the same.
#include <utility>
#include <vector>

#include "schedule/algorithms.h"
#include "schedule/building.h"

namespace tutti::schedule {
namespace {

// The chunks of a broadcast or a reduction: the root owns none, it has the most to do already.
class Owners {
 public:
  Owners(int32_t rankCount, Rank root) : rankCount_(rankCount), root_(root) {}
  Rank of(int32_t chunk) const { return rankAfter(root_, chunk + 1, rankCount_); }
  // REQUIRES: not the root.
  int32_t chunkOf(Rank owner) const {
    return (index(owner) - index(root_) + rankCount_) % rankCount_ - 1;
  }
  int32_t chunkCount() const { return rankCount_ - 1; }

 private:
  int32_t rankCount_;
  Rank root_;
};

void addReceive(ProgramBuilder& program, Rank owner, int32_t chunk) {
  program.add({.chunk = chunk, .sources = {program.from(owner)}, .destinations = {out(chunk)}});
}

void addSend(ProgramBuilder& program, Rank owner, int32_t chunk) {
  program.add({.chunk = chunk, .sources = {in(chunk)}, .destinations = {program.to(owner)}});
}

}  // namespace

Program twoShotAllReduce(const ScheduleOptions& options, Rank rank) {
  const int32_t n = options.rankCount;
  const int32_t own = index(rank);
  if (n == 1) return copyAlone(true);
  ProgramBuilder program;
  std::vector<Operand> destinations{out(own)};
  for (int32_t distance = 1; distance < n; ++distance) {
    const Rank owner = rankAfter(rank, distance, n);
    addSend(program, owner, index(owner));
    destinations.push_back(program.to(owner));
  }
  program.add({.chunk = own,
               .sources = inRingOrder(program, n, rank, in(own)),
               .destinations = std::move(destinations),
               .post = true});
  for (const Rank owner : nearestFirst(rank, n)) addReceive(program, owner, index(owner));
  return std::move(program).take();
}

Program twoShotBroadcast(const ScheduleOptions& options, Rank rank) {
  const int32_t n = options.rankCount;
  if (n == 1) return copyAlone(false);
  const Owners owners(n, options.root);
  ProgramBuilder program;
  if (rank == options.root) {
    for (int32_t chunk = 0; chunk < owners.chunkCount(); ++chunk) {
      program.add({.chunk = chunk,
                   .sources = {in(chunk)},
                   .destinations = {out(chunk), program.to(owners.of(chunk))}});
    }
    return std::move(program).take();
  }
  const int32_t own = owners.chunkOf(rank);
  std::vector<Operand> destinations{out(own)};
  for (int32_t distance = 1; distance < n; ++distance) {
    const Rank peer = rankAfter(rank, distance, n);
    if (peer != options.root) destinations.push_back(program.to(peer));
  }
  program.add({.chunk = own,
               .sources = {program.from(options.root)},
               .destinations = std::move(destinations)});
  for (int32_t distance = 1; distance < n; ++distance) {
    const Rank peer = rankBefore(rank, distance, n);
    if (peer != options.root) addReceive(program, peer, owners.chunkOf(peer));
  }
  return std::move(program).take();
}

// The root sends all its contributions before it receives the first result: in place, the results
// overwrite them.
Program twoShotReduce(const ScheduleOptions& options, Rank rank) {
  const int32_t n = options.rankCount;
  if (n == 1) return copyAlone(true);
  const Owners owners(n, options.root);
  ProgramBuilder program;
  for (int32_t distance = 1; distance < n; ++distance) {
    const Rank owner = rankAfter(rank, distance, n);
    if (owner != options.root) addSend(program, owner, owners.chunkOf(owner));
  }
  if (rank == options.root) {
    for (int32_t chunk = 0; chunk < owners.chunkCount(); ++chunk) {
      addReceive(program, owners.of(chunk), chunk);
    }
    return std::move(program).take();
  }
  const int32_t own = owners.chunkOf(rank);
  program.add({.chunk = own,
               .sources = inRankOrder(program, n, rank, in(own)),
               .destinations = {program.to(options.root)},
               .post = true});
  return std::move(program).take();
}

}  // namespace tutti::schedule
