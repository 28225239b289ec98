// All-reduce of several hosts over a network that reduces: each host folds its own part, one of its
// ranks (a head) hands it to the network, gets the sum of all hosts back and passes it on. The
// network is a rank more, behind the others: it has no buffers, folds what the heads send, and
// sends the result to each. What plays it is no program but the network; its program is there for
// the proof.
#include <utility>
#include <vector>

#include "schedule/algorithms.h"
#include "schedule/building.h"

namespace tutti::schedule {
namespace {

// A head's messages that are with the network at a time: it takes its time over each.
constexpr int32_t kUnderWay = 4;

// Hosts one after the other, each with the next few places.
class Hosts {
 public:
  explicit Hosts(const ScheduleOptions& options) : options_(options) {}

  int32_t count() const {
    return options_.hostStarts.empty() ? options_.hostCount
                                       : static_cast<int32_t>(options_.hostStarts.size());
  }
  int32_t first(int32_t host) const {
    if (host == count()) return options_.rankCount;
    if (!options_.hostStarts.empty()) return options_.hostStarts[static_cast<size_t>(host)];
    return host * (options_.rankCount / options_.hostCount);
  }
  int32_t hostOf(Rank rank) const {
    int32_t host = 0;
    while (first(host + 1) <= index(rank)) ++host;
    return host;
  }

 private:
  const ScheduleOptions& options_;
};

// A rank among those of its host.
struct Seat {
  Seat(const ScheduleOptions& options, Rank rank) : hosts(options) {
    const int32_t host = hosts.hostOf(rank);
    first = hosts.first(host);
    count = hosts.first(host + 1) - first;
    number = index(rank) - first;
  }
  Rank at(int32_t seat) const { return Rank{first + seat}; }
  bool hasNetwork() const { return hosts.count() > 1; }

  Hosts hosts;
  int32_t first = 0;
  int32_t count = 0;
  int32_t number = 0;
};

// The network of the heads in one seat: chunks `head`, `head + headCount`, ...
Program networkProgram(const ScheduleOptions& options, int32_t head, int32_t headCount) {
  const Hosts hosts(options);
  ProgramBuilder program;
  for (int32_t i = 0; i < kUnderWay; ++i) {
    ProgramBuilder::StepSpec step{.chunk = i * headCount + head};
    for (int32_t host = 0; host < hosts.count(); ++host) {
      const Rank member{hosts.first(host) + head};
      step.sources.push_back(program.from(member));
      step.destinations.push_back(program.to(member));
    }
    program.add(step);
  }
  return std::move(program).take();
}

// From the last seat to the first, where the network is, or else the result.
void addChainUp(ProgramBuilder& program, const Seat& seat, Rank network, int32_t chunk) {
  const bool isHead = seat.number == 0;
  const bool isResult = isHead && !seat.hasNetwork();
  const bool isLast = seat.number + 1 == seat.count;
  ProgramBuilder::StepSpec step{.chunk = chunk, .post = isResult};
  if (!isLast) step.sources.push_back(program.from(seat.at(seat.number + 1)));
  step.sources.push_back(in(chunk));
  if (isResult) {
    step.destinations.push_back(out(chunk));
    if (!isLast) step.destinations.push_back(program.to(seat.at(1)));
  } else {
    step.destinations.push_back(program.to(isHead ? network : seat.at(seat.number - 1)));
  }
  program.add(step);
}

void addChainDown(ProgramBuilder& program, const Seat& seat, Rank network, int32_t chunk) {
  const bool isHead = seat.number == 0;
  if (isHead && !seat.hasNetwork()) return;
  ProgramBuilder::StepSpec step{
      .chunk = chunk,
      .sources = {program.from(isHead ? network : seat.at(seat.number - 1))},
      .destinations = {out(chunk)},
      .post = isHead};
  if (seat.number + 1 < seat.count)
    step.destinations.push_back(program.to(seat.at(seat.number + 1)));
  program.add(step);
}

// A head's own chunk: this host's part, in the order of seats.
void addFold(ProgramBuilder& program, const Seat& seat, Rank network, int32_t chunk) {
  ProgramBuilder::StepSpec step{.chunk = chunk, .post = !seat.hasNetwork()};
  for (int32_t each = 0; each < seat.count; ++each)
    step.sources.push_back(each == seat.number ? in(chunk) : program.from(seat.at(each)));
  step.destinations = {seat.hasNetwork() ? program.to(network) : out(chunk)};
  program.add(step);
}

// To all ranks of the host. One rank alone, which nobody waits for, has it already.
void addResult(ProgramBuilder& program, const Seat& seat, Rank network, int32_t chunk) {
  ProgramBuilder::StepSpec step{.chunk = chunk, .post = seat.hasNetwork()};
  if (seat.hasNetwork()) {
    step.sources = {program.from(network)};
    step.destinations = {out(chunk)};
  } else {
    step.sources = {out(chunk)};
  }
  for (int32_t distance = 1; distance < seat.count; ++distance)
    step.destinations.push_back(program.to(seat.at((seat.number + distance) % seat.count)));
  program.add(step);
}

}  // namespace

Program collnetChainAllReduce(const ScheduleOptions& options, Rank rank) {
  if (options.rankCount == 1) return copyAlone(true);
  const Rank network{options.rankCount};
  if (rank == network) return networkProgram(options, 0, 1);
  const Seat seat(options, rank);
  ProgramBuilder program;
  for (int32_t chunk = 0; chunk < kUnderWay; ++chunk) addChainUp(program, seat, network, chunk);
  for (int32_t chunk = 0; chunk < kUnderWay; ++chunk) addChainDown(program, seat, network, chunk);
  return std::move(program).take();
}

// All hand-ins go before the first fold, and all own results before the first of another head: no
// head waits for another's turn.
Program collnetDirectAllReduce(const ScheduleOptions& options, Rank rank) {
  if (options.rankCount == 1) return copyAlone(true);
  const int32_t heads = options.headCount;
  if (index(rank) >= options.rankCount)
    return networkProgram(options, index(rank) - options.rankCount, heads);
  const Seat seat(options, rank);
  const bool isHead = seat.number < heads;
  const Rank network{options.rankCount + seat.number};
  ProgramBuilder program;
  for (int32_t chunk = 0; chunk < kUnderWay * heads; ++chunk) {
    const int32_t head = chunk % heads;
    if (head == seat.number) continue;
    program.add(
        {.chunk = chunk, .sources = {in(chunk)}, .destinations = {program.to(seat.at(head))}});
  }
  for (int32_t i = 0; isHead && i < kUnderWay; ++i)
    addFold(program, seat, network, i * heads + seat.number);
  for (int32_t i = 0; isHead && i < kUnderWay; ++i)
    addResult(program, seat, network, i * heads + seat.number);
  for (int32_t chunk = 0; chunk < kUnderWay * heads; ++chunk) {
    const int32_t head = chunk % heads;
    if (head == seat.number) continue;
    program.add(
        {.chunk = chunk, .sources = {program.from(seat.at(head))}, .destinations = {out(chunk)}});
  }
  return std::move(program).take();
}

int32_t collnetChunkCount(int32_t rankCount) { return rankCount == 1 ? 1 : kUnderWay; }

}  // namespace tutti::schedule
