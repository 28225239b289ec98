// All-to-all of several hosts that hold as many ranks each: what a rank has for another seat of
// another host goes to the rank of its own host in that seat first, which passes it on. So a rank
// has links to its own seat of other hosts only: one a host instead of one a rank, over whatever
// adapter belongs to the seat.
#include <utility>

#include "schedule/algorithms.h"
#include "schedule/building.h"
#include "schedule/seating.h"

namespace tutti::schedule {
namespace {

// Messages to a counterpart that run ahead of those that come from there: with one, each would wait
// for the other's trip; with as many as there are seats, so many slots would be needed.
constexpr int32_t kUnderWay = 4;

void addOwnHost(ProgramBuilder& program, const Seating& seating, Rank rank) {
  for (int32_t distance = 1; distance < seating.seatCount(); ++distance) {
    const Rank peer = seating.neighbour(distance);
    program.add(
        {.chunk = index(peer), .sources = {in(index(peer))}, .destinations = {program.to(peer)}});
  }
  program.add(
      {.chunk = index(rank), .sources = {in(index(rank))}, .destinations = {out(index(rank))}});
  for (int32_t distance = 1; distance < seating.seatCount(); ++distance) {
    const Rank peer = seating.at(seating.host(), seating.seatBefore(distance));
    program.add({.chunk = index(peer),
                 .sources = {program.from(peer)},
                 .destinations = {out(index(peer))}});
  }
}

// What this host's ranks have for the counterpart there, the own block first, against what it has
// from its host's. In place: no block of that host's is overwritten before all have been sent.
void addExchange(ProgramBuilder& program, const Seating& seating, int32_t host) {
  const int32_t seats = seating.seatCount();
  for (int32_t distance = 1; distance < seats; ++distance) {
    const int32_t block = index(seating.at(host, seating.seatAfter(distance)));
    program.add({.chunk = block,
                 .sources = {in(block)},
                 .destinations = {program.to(seating.neighbour(distance))}});
  }
  const Rank counterpart = seating.counterpart(host);
  for (int32_t sent = 0; sent < seats + kUnderWay - 1; ++sent) {
    if (sent < seats) {
      const Rank origin = seating.at(seating.host(), seating.seatBefore(sent));
      program.add({.chunk = index(counterpart),
                   .sources = {sent == 0 ? in(index(counterpart)) : program.from(origin)},
                   .destinations = {program.to(counterpart)}});
    }
    const int32_t received = sent - (kUnderWay - 1);
    if (received < 0) continue;
    const int32_t block = index(seating.at(host, seating.seatBefore(received)));
    program.add(
        {.chunk = block, .sources = {program.from(counterpart)}, .destinations = {out(block)}});
  }
}

}  // namespace

// Hosts meet in pairs, as ranks do in pairwise.
Program railAllToAll(const ScheduleOptions& options, Rank rank) {
  const Seating seating(options, rank);
  const int32_t hosts = seating.hostCount();
  ProgramBuilder program;
  addOwnHost(program, seating, rank);
  for (int32_t round = 0; round < hosts; ++round) {
    const int32_t partner = (round - seating.host() + hosts) % hosts;
    if (partner != seating.host()) addExchange(program, seating, partner);
  }
  return std::move(program).take();
}

}  // namespace tutti::schedule
