// All-reduce of several hosts that hold as many ranks each: every chunk is folded inside each host
// first, so that a host sends and receives it once, not once a rank. A chunk's owner is the rank of
// its number; in every other host the rank in the owner's seat folds that host's part and hands it
// to the owner, gets the result back and passes it on.
#include <utility>
#include <vector>

#include "schedule/algorithms.h"
#include "schedule/building.h"
#include "schedule/seating.h"

namespace tutti::schedule {
namespace {

// What waits for other hosts' parts, and for their results. A link between hosts then has the parts
// and results of two pieces.
struct Lags {
  explicit Lags(const ScheduleOptions& options)
      : result(options.lagSlots >= 4 ? 1 : 0), receive(2 * result) {}
  int32_t result;
  int32_t receive;
};

// The chunks of a host's owners, each to whoever sits here as its owner does there.
void addHandIns(ProgramBuilder& program, const Seating& seating, int32_t host, int32_t lag) {
  for (int32_t distance = 1; distance < seating.seatCount(); ++distance) {
    const int32_t chunk = index(seating.at(host, seating.seatAfter(distance)));
    program.add({.chunk = chunk,
                 .sources = {in(chunk)},
                 .destinations = {program.to(seating.neighbour(distance))},
                 .lag = lag});
  }
}

// This host's contributions to a chunk, in the order of seats.
void addContributions(ProgramBuilder& program, const Seating& seating, Rank rank, int32_t chunk,
                      std::vector<Operand>& sources) {
  for (int32_t seat = 0; seat < seating.seatCount(); ++seat) {
    const Rank from = seating.at(seating.host(), seat);
    sources.push_back(from == rank ? in(chunk) : program.from(from));
  }
}

void addNeighbours(ProgramBuilder& program, const Seating& seating,
                   std::vector<Operand>& destinations) {
  for (int32_t distance = 1; distance < seating.seatCount(); ++distance)
    destinations.push_back(program.to(seating.neighbour(distance)));
}

// The own chunk: all hosts' parts, in the order of hosts.
void addResult(ProgramBuilder& program, const Seating& seating, Rank rank, int32_t lag) {
  const int32_t own = index(rank);
  std::vector<Operand> sources;
  for (int32_t host = 0; host < seating.hostCount(); ++host) {
    if (host == seating.host()) {
      addContributions(program, seating, rank, own, sources);
    } else {
      sources.push_back(program.from(seating.counterpart(host)));
    }
  }
  std::vector<Operand> destinations{out(own)};
  for (int32_t distance = 1; distance < seating.hostCount(); ++distance)
    destinations.push_back(program.to(seating.counterpart(seating.hostAfter(distance))));
  addNeighbours(program, seating, destinations);
  program.add({.chunk = own,
               .sources = std::move(sources),
               .destinations = std::move(destinations),
               .post = true,
               .lag = lag});
}

// The results of a host's owners: that of the counterpart comes from there and is passed on.
void addReceives(ProgramBuilder& program, const Seating& seating, int32_t host, int32_t lag) {
  const Rank counterpart = seating.counterpart(host);
  if (host != seating.host()) {
    std::vector<Operand> destinations{out(index(counterpart))};
    addNeighbours(program, seating, destinations);
    program.add({.chunk = index(counterpart),
                 .sources = {program.from(counterpart)},
                 .destinations = std::move(destinations),
                 .lag = lag});
  }
  for (int32_t distance = seating.seatCount() - 1; distance > 0; --distance) {
    const int32_t chunk = index(seating.at(host, seating.seatAfter(distance)));
    program.add({.chunk = chunk,
                 .sources = {program.from(seating.neighbour(distance))},
                 .destinations = {out(chunk)},
                 .lag = lag});
  }
}

}  // namespace

Program hierarchicalAllReduce(const ScheduleOptions& options, Rank rank) {
  if (options.rankCount == 1) return copyAlone(true);
  const Seating seating(options, rank);
  if (seating.hostCount() == 1 || seating.seatCount() == 1) return twoShotAllReduce(options, rank);
  const Lags lags(options);
  ProgramBuilder program;
  for (int32_t distance = 1; distance < seating.hostCount(); ++distance) {
    const Rank owner = seating.counterpart(seating.hostAfter(distance));
    addHandIns(program, seating, seating.hostAfter(distance), 0);
    std::vector<Operand> sources;
    addContributions(program, seating, rank, index(owner), sources);
    program.add({.chunk = index(owner),
                 .sources = std::move(sources),
                 .destinations = {program.to(owner)}});
  }
  addHandIns(program, seating, seating.host(), lags.result);
  addResult(program, seating, rank, lags.result);
  addReceives(program, seating, seating.host(), lags.result);
  for (int32_t distance = 1; distance < seating.hostCount(); ++distance)
    addReceives(program, seating, seating.hostBefore(distance), lags.receive);
  return std::move(program).take();
}

}  // namespace tutti::schedule
