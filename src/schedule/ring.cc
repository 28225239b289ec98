#include <vector>

#include "schedule/algorithms.h"
#include "schedule/building.h"

namespace tutti::schedule {
namespace {

// One rank's place in the ring. Positions count along the ring, ids are ranks.
class Ring {
 public:
  // `rounds`: how often a chunk passes all of it, at most.
  Ring(const ScheduleOptions& options, Rank rank, int32_t rounds)
      : options_(options),
        lags_(options.hostCount > 1 && rounds * options.hostCount < options.lagSlots) {
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

  // Of a step whose message has passed so many links on its way: one for each between hosts. Each
  // then takes as many messages as there are such links in the way, and one.
  int32_t lagAfter(int32_t links) const {
    if (!lags_) return 0;
    const int32_t seats = size() / options_.hostCount;
    const int32_t here = position_ + 2 * size();  // links are fewer
    return here / seats - (here - links) / seats;
  }

 private:
  Rank at(int32_t position) const {
    return options_.order.empty() ? Rank{position} : options_.order[static_cast<size_t>(position)];
  }

  const ScheduleOptions& options_;
  const bool lags_;
  int32_t position_ = 0;
};

// Sends the previous rank's chunk on its way, folds this rank's input into each partial that
// arrives, and finishes its own chunk: the one whose partial has then met every other rank. The
// finished chunk also goes to the next rank when the gather phase follows.
void addReducePhase(ProgramBuilder& program, const Ring& ring, bool gatherFollows) {
  const int32_t first = ring.chunkOf(-1);
  program.add({.chunk = first, .sources = {in(first)}, .destinations = {program.to(ring.next())}});
  for (int32_t links = 1; links < ring.size() - 1; ++links) {
    const int32_t chunk = ring.chunkOf(-1 - links);
    program.add({.chunk = chunk,
                 .sources = {program.from(ring.previous()), in(chunk)},
                 .destinations = {program.to(ring.next())},
                 .lag = ring.lagAfter(links)});
  }
  const int32_t own = ring.chunkOf(0);
  std::vector<Operand> destinations{out(own)};
  if (gatherFollows) destinations.push_back(program.to(ring.next()));
  program.add({.chunk = own,
               .sources = {program.from(ring.previous()), in(own)},
               .destinations = std::move(destinations),
               .post = true,
               .lag = ring.lagAfter(ring.size() - 1)});
}

// Takes every other rank's chunk from the previous rank, the nearest owner's first, and passes all
// but the last on: the last belongs to the next rank. `before`: links that a chunk has passed when
// its owner sends it.
void addGatherPhase(ProgramBuilder& program, const Ring& ring, int32_t before) {
  for (int32_t links = 1; links < ring.size(); ++links) {
    const int32_t chunk = ring.chunkOf(-links);
    std::vector<Operand> destinations{out(chunk)};
    if (links != ring.size() - 1) destinations.push_back(program.to(ring.next()));
    program.add({.chunk = chunk,
                 .sources = {program.from(ring.previous())},
                 .destinations = std::move(destinations),
                 .lag = ring.lagAfter(before + links)});
  }
}

}  // namespace

Program ringAllReduce(const ScheduleOptions& options, Rank rank) {
  const Ring ring(options, rank, 2);
  if (ring.isAlone()) return copyAlone(true);
  ProgramBuilder program;
  addReducePhase(program, ring, true);
  addGatherPhase(program, ring, ring.size() - 1);
  return std::move(program).take();
}

Program ringReduceScatter(const ScheduleOptions& options, Rank rank) {
  const Ring ring(options, rank, 1);
  if (ring.isAlone()) return copyAlone(true);
  ProgramBuilder program;
  addReducePhase(program, ring, false);
  return std::move(program).take();
}

Program ringAllGather(const ScheduleOptions& options, Rank rank) {
  const Ring ring(options, rank, 1);
  if (ring.isAlone()) return copyAlone(false);
  ProgramBuilder program;
  const int32_t own = ring.chunkOf(0);
  program.add(
      {.chunk = own, .sources = {in(own)}, .destinations = {out(own), program.to(ring.next())}});
  addGatherPhase(program, ring, 0);
  return std::move(program).take();
}

Program ringBroadcast(const ScheduleOptions& options, Rank rank) {
  const Ring ring(options, rank, 1);
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
  const Ring ring(options, rank, 1);
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
