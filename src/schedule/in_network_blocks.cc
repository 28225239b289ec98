// All-gather and reduce-scatter of hosts that hold as many ranks each, over a network that gathers
// and scatters. What crosses at a time is a set: a chunk of the blocks of one seat of all hosts. A
// head hands in its host's part of it, or a part for each host, and the network, a rank more as in
// in_network.cc, gives it the other hosts' parts, or the sum of all for its own.
//
// All heads of a host have a set a round, and all its ranks go through the rounds in one order, so
// that who waits for a neighbour waits for an earlier step. Results lag behind what is handed in by
// the rounds that are with the network.
#include <utility>
#include <vector>

#include "schedule/algorithms.h"
#include "schedule/building.h"
#include "schedule/seating.h"

namespace tutti::schedule {
namespace {

// Chunks of a block that each head has.
constexpr int32_t kChunks = 4;
// A head's sets that are with the network at a time: one on its way, one that is handed in. The
// reducer keeps as many (transport/collnet).
constexpr int32_t kUnderWay = 2;

struct Round {
  int32_t number = 0;  // of each head's chunks of a block
  int32_t seat = 0;    // whose blocks they are of
};

// One rank's view of the rounds.
class Rounds {
 public:
  Rounds(const ScheduleOptions& options, Rank rank)
      : seating_(options, rank),
        heads_(options.headCount),
        self_(index(rank) % seating_.seatCount()),
        ranks_(options.rankCount) {}

  int32_t count() const { return kChunks * seats(); }
  // Of the results: without a network they are there at once.
  int32_t lag() const { return hasNetwork() ? kUnderWay - 1 : 0; }
  Round at(int32_t number) const { return {.number = number / seats(), .seat = number % seats()}; }
  int32_t heads() const { return heads_; }
  int32_t hosts() const { return seating_.hostCount(); }
  int32_t seats() const { return seating_.seatCount(); }
  int32_t host() const { return seating_.host(); }
  int32_t self() const { return self_; }
  bool isHead() const { return self_ < heads_; }
  bool hasNetwork() const { return hosts() > 1; }
  Rank network() const { return Rank{ranks_ + self_}; }  // of a head
  Rank neighbour(int32_t seat) const { return seating_.at(host(), seat); }
  Rank counterpart(int32_t other) const { return seating_.counterpart(other); }
  int32_t chunk(int32_t ofHost, const Round& round, int32_t head) const {
    const int32_t block = index(seating_.at(ofHost, round.seat));
    return (block * kChunks + round.number) * heads_ + head;
  }

 private:
  Seating seating_;
  int32_t heads_, self_, ranks_;
};

void addNeighbours(ProgramBuilder& program, const Rounds& rounds,
                   std::vector<Operand>& destinations) {
  for (int32_t distance = 1; distance < rounds.seats(); ++distance)
    destinations.push_back(
        program.to(rounds.neighbour((rounds.self() + distance) % rounds.seats())));
}

// A chunk of each block of the host, from every rank to every other.
void addExchange(ProgramBuilder& program, const Rounds& rounds, int32_t number, int32_t head) {
  const auto chunkOf = [&](int32_t seat) {
    return rounds.chunk(rounds.host(), {.number = number, .seat = seat}, head);
  };
  const int32_t own = chunkOf(rounds.self());
  ProgramBuilder::StepSpec step{.chunk = own, .sources = {in(own)}, .destinations = {out(own)}};
  addNeighbours(program, rounds, step.destinations);
  program.add(step);
  for (int32_t seat = 0; seat < rounds.seats(); ++seat) {
    if (seat == rounds.self()) continue;
    program.add({.chunk = chunkOf(seat),
                 .sources = {program.from(rounds.neighbour(seat))},
                 .destinations = {out(chunkOf(seat))}});
  }
}

// A head's part of this host, once all of it is there.
void addHandIn(ProgramBuilder& program, const Rounds& rounds, const Round& round) {
  for (int32_t head = 0; round.seat == 0 && head < rounds.heads(); ++head)
    addExchange(program, rounds, round.number, head);
  if (!rounds.isHead() || !rounds.hasNetwork()) return;
  const int32_t chunk = rounds.chunk(rounds.host(), round, rounds.self());
  program.add(
      {.chunk = chunk, .sources = {out(chunk)}, .destinations = {program.to(rounds.network())}});
}

// The other hosts' parts: a head has its own from the network, and passes them on.
void addGathered(ProgramBuilder& program, const Rounds& rounds, const Round& round) {
  for (int32_t host = 0; host < rounds.hosts(); ++host) {
    if (host == rounds.host()) continue;
    if (rounds.isHead()) {
      const int32_t chunk = rounds.chunk(host, round, rounds.self());
      ProgramBuilder::StepSpec step{.chunk = chunk,
                                    .sources = {program.from(rounds.network())},
                                    .destinations = {out(chunk)}};
      addNeighbours(program, rounds, step.destinations);
      program.add(step);
    }
    for (int32_t head = 0; head < rounds.heads(); ++head) {
      if (head == rounds.self()) continue;
      const int32_t chunk = rounds.chunk(host, round, head);
      program.add({.chunk = chunk,
                   .sources = {program.from(rounds.neighbour(head))},
                   .destinations = {out(chunk)}});
    }
  }
}

// A head folds what its host has for one of all hosts, in the order of seats.
void addPart(ProgramBuilder& program, const Rounds& rounds, const Round& round, int32_t host) {
  const int32_t chunk = rounds.chunk(host, round, rounds.self());
  ProgramBuilder::StepSpec step{.chunk = chunk, .post = !rounds.hasNetwork()};
  for (int32_t seat = 0; seat < rounds.seats(); ++seat)
    step.sources.push_back(seat == rounds.self() ? in(chunk)
                                                 : program.from(rounds.neighbour(seat)));
  if (rounds.hasNetwork()) {
    step.destinations = {program.to(rounds.network())};
  } else if (round.seat == rounds.self()) {
    step.destinations = {out(chunk)};
  } else {
    step.destinations = {program.to(rounds.neighbour(round.seat))};
  }
  program.add(step);
}

void addParts(ProgramBuilder& program, const Rounds& rounds, const Round& round) {
  for (int32_t host = 0; host < rounds.hosts(); ++host) {
    for (int32_t head = 0; head < rounds.heads(); ++head) {
      if (head == rounds.self()) continue;
      const int32_t chunk = rounds.chunk(host, round, head);
      program.add({.chunk = chunk,
                   .sources = {in(chunk)},
                   .destinations = {program.to(rounds.neighbour(head))}});
    }
    if (rounds.isHead()) addPart(program, rounds, round, host);
  }
}

// The sums of all hosts' parts for this one, to the rank whose block it is.
void addScattered(ProgramBuilder& program, const Rounds& rounds, const Round& round) {
  const bool isOwn = round.seat == rounds.self();
  if (rounds.isHead() && rounds.hasNetwork()) {
    const int32_t chunk = rounds.chunk(rounds.host(), round, rounds.self());
    program.add({.chunk = chunk,
                 .sources = {program.from(rounds.network())},
                 .destinations = {isOwn ? out(chunk) : program.to(rounds.neighbour(round.seat))},
                 .post = true});
  }
  for (int32_t head = 0; isOwn && head < rounds.heads(); ++head) {
    if (head == rounds.self()) continue;
    const int32_t chunk = rounds.chunk(rounds.host(), round, head);
    program.add({.chunk = chunk,
                 .sources = {program.from(rounds.neighbour(head))},
                 .destinations = {out(chunk)}});
  }
}

// Every host's part to all others.
void addGather(ProgramBuilder& program, const Rounds& rounds, const Round& round) {
  for (int32_t host = 0; host < rounds.hosts(); ++host) {
    ProgramBuilder::StepSpec step{.chunk = rounds.chunk(host, round, rounds.self()),
                                  .sources = {program.from(rounds.counterpart(host))}};
    for (int32_t other = 0; other < rounds.hosts(); ++other) {
      if (other != host) step.destinations.push_back(program.to(rounds.counterpart(other)));
    }
    program.add(step);
  }
}

// To every host what all have for it.
void addScatter(ProgramBuilder& program, const Rounds& rounds, const Round& round) {
  for (int32_t host = 0; host < rounds.hosts(); ++host) {
    ProgramBuilder::StepSpec step{.chunk = rounds.chunk(host, round, rounds.self()),
                                  .destinations = {program.to(rounds.counterpart(host))}};
    for (int32_t member = 0; member < rounds.hosts(); ++member)
      step.sources.push_back(program.from(rounds.counterpart(member)));
    program.add(step);
  }
}

// The network of the heads in one seat.
template <typename Add>
Program networkProgram(const ScheduleOptions& options, Rank network, const Add& add) {
  const Rounds rounds(options, Rank{index(network) - options.rankCount});
  ProgramBuilder program;
  for (int32_t number = 0; number < rounds.count(); ++number)
    add(program, rounds, rounds.at(number));
  return std::move(program).take();
}

}  // namespace

Program collnetDirectAllGather(const ScheduleOptions& options, Rank rank) {
  if (options.rankCount == 1) return copyAlone(false);
  if (index(rank) >= options.rankCount) return networkProgram(options, rank, addGather);
  const Rounds rounds(options, rank);
  ProgramBuilder program;
  for (int32_t number = 0; number < rounds.count() + rounds.lag(); ++number) {
    if (number < rounds.count()) addHandIn(program, rounds, rounds.at(number));
    if (number >= rounds.lag()) addGathered(program, rounds, rounds.at(number - rounds.lag()));
  }
  return std::move(program).take();
}

Program collnetDirectReduceScatter(const ScheduleOptions& options, Rank rank) {
  if (options.rankCount == 1) return copyAlone(true);
  if (index(rank) >= options.rankCount) return networkProgram(options, rank, addScatter);
  const Rounds rounds(options, rank);
  ProgramBuilder program;
  for (int32_t number = 0; number < rounds.count() + rounds.lag(); ++number) {
    if (number < rounds.count()) addParts(program, rounds, rounds.at(number));
    if (number >= rounds.lag()) addScattered(program, rounds, rounds.at(number - rounds.lag()));
  }
  return std::move(program).take();
}

int32_t collnetBlockChunkCount(int32_t rankCount) {
  return rankCount == 1 ? 1 : kChunks * rankCount;
}

}  // namespace tutti::schedule
