#include <vector>

#include "schedule/algorithms.h"
#include "schedule/building.h"

namespace tutti::schedule {
namespace {

// One rank's place in the ring. Positions count along the ring, ids are ranks.
class Ring {
 public:
  Ring(const ScheduleOptions& options, Rank rank) : options_(options) {
    while (at(position_) != rank) ++position_;
  }

  int32_t size() const { return options_.rankCount; }
  bool isAlone() const { return size() == 1; }
  // The rank some places after (before, when negative) this one; |offset| <= size.
  Rank relative(int32_t offset) const { return at((position_ + offset + size()) % size()); }
  Rank next() const { return relative(1); }
  Rank previous() const { return relative(-1); }
  // This rank's distance from another along the ring, 0 for itself.
  int32_t distanceFrom(Rank other) const {
    int32_t distance = 0;
    while (relative(-distance) != other) ++distance;
    return distance;
  }
  // The chunk that belongs to the rank some places away: chunks are numbered as their owners.
  int32_t chunkOf(int32_t offset) const { return index(relative(offset)); }

 private:
  Rank at(int32_t position) const {
    return options_.order.empty() ? Rank{position} : options_.order[static_cast<size_t>(position)];
  }

  const ScheduleOptions& options_;
  int32_t position_ = 0;
};

// Sends the previous rank's chunk on its way, folds this rank's input into each partial that
// arrives, and finishes its own chunk: the one whose partial has then met every other rank. The
// finished chunk also goes to the next rank when the gather phase follows.
void addReducePhase(ProgramBuilder& program, const Ring& ring, bool gatherFollows) {
  const int32_t first = ring.chunkOf(-1);
  program.add({.chunk = first, .sources = {in(first)}, .destinations = {program.to(ring.next())}});
  for (int32_t offset = -2; offset > -ring.size(); --offset) {
    const int32_t chunk = ring.chunkOf(offset);
    program.add({.chunk = chunk,
                 .sources = {program.from(ring.previous()), in(chunk)},
                 .destinations = {program.to(ring.next())}});
  }
  const int32_t own = ring.chunkOf(0);
  std::vector<Operand> destinations{out(own)};
  if (gatherFollows) destinations.push_back(program.to(ring.next()));
  program.add({.chunk = own,
               .sources = {program.from(ring.previous()), in(own)},
               .destinations = std::move(destinations),
               .post = true});
}

// Takes every other rank's chunk from the previous rank, the nearest owner's first, and passes all
// but the last on: the last belongs to the next rank.
void addGatherPhase(ProgramBuilder& program, const Ring& ring) {
  for (int32_t offset = -1; offset > -ring.size(); --offset) {
    const int32_t chunk = ring.chunkOf(offset);
    std::vector<Operand> destinations{out(chunk)};
    if (offset != -(ring.size() - 1)) destinations.push_back(program.to(ring.next()));
    program.add({.chunk = chunk,
                 .sources = {program.from(ring.previous())},
                 .destinations = std::move(destinations)});
  }
}

}  // namespace

Program ringAllReduce(const ScheduleOptions& options, Rank rank) {
  const Ring ring(options, rank);
  if (ring.isAlone()) return copyAlone(true);
  ProgramBuilder program;
  addReducePhase(program, ring, true);
  addGatherPhase(program, ring);
  return std::move(program).take();
}

Program ringReduceScatter(const ScheduleOptions& options, Rank rank) {
  const Ring ring(options, rank);
  if (ring.isAlone()) return copyAlone(true);
  ProgramBuilder program;
  addReducePhase(program, ring, false);
  return std::move(program).take();
}

Program ringAllGather(const ScheduleOptions& options, Rank rank) {
  const Ring ring(options, rank);
  if (ring.isAlone()) return copyAlone(false);
  ProgramBuilder program;
  const int32_t own = ring.chunkOf(0);
  program.add(
      {.chunk = own, .sources = {in(own)}, .destinations = {out(own), program.to(ring.next())}});
  addGatherPhase(program, ring);
  return std::move(program).take();
}

Program ringBroadcast(const ScheduleOptions& options, Rank rank) {
  const Ring ring(options, rank);
  if (ring.isAlone()) return copyAlone(false);
  ProgramBuilder program;
  const int32_t distance = ring.distanceFrom(options.root);
  const Operand source = distance == 0 ? in(0) : program.from(ring.previous());
  std::vector<Operand> destinations{out(0)};
  if (distance != ring.size() - 1) destinations.push_back(program.to(ring.next()));
  program.add({.chunk = 0, .sources = {source}, .destinations = std::move(destinations)});
  return std::move(program).take();
}

Program ringReduce(const ScheduleOptions& options, Rank rank) {
  const Ring ring(options, rank);
  if (ring.isAlone()) return copyAlone(true);
  ProgramBuilder program;
  const int32_t distance = ring.distanceFrom(options.root);
  std::vector<Operand> sources;
  if (distance != 1) sources.push_back(program.from(ring.previous()));
  sources.push_back(in(0));
  const bool isRoot = distance == 0;
  program.add({.chunk = 0,
               .sources = std::move(sources),
               .destinations = {isRoot ? out(0) : program.to(ring.next())},
               .post = isRoot});
  return std::move(program).take();
}

}  // namespace tutti::schedule
