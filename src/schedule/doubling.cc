#include <bit>
#include <utility>
#include <vector>

#include "schedule/algorithms.h"
#include "schedule/building.h"

namespace tutti::schedule {
namespace {

// A power of two of the ranks double; each of the others, the odd ones of the first, has its lower
// neighbour do it for both.
class Group {
 public:
  Group(int32_t rankCount, Rank rank)
      : size_(static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(rankCount)))),
        pairCount_(rankCount - size_),
        rank_(rank) {}

  bool isPaired() const { return index(rank_) < 2 * pairCount_; }
  bool isRepresented() const { return isPaired() && index(rank_) % 2 == 1; }
  Rank representative() const { return Rank{index(rank_) - 1}; }
  Rank represented() const { return Rank{index(rank_) + 1}; }

  int32_t size() const { return size_; }
  int32_t place() const { return isPaired() ? index(rank_) / 2 : index(rank_) - pairCount_; }
  Rank partner(int32_t distance) const {
    const int32_t other = place() ^ distance;
    return Rank{other < pairCount_ ? 2 * other : other + pairCount_};
  }

 private:
  int32_t size_;
  int32_t pairCount_;
  Rank rank_;
};

Program representedProgram(const Group& group) {
  ProgramBuilder program;
  program.add(
      {.chunk = 0, .sources = {in(0)}, .destinations = {program.to(group.representative())}});
  program.add(
      {.chunk = 0, .sources = {program.from(group.representative())}, .destinations = {out(0)}});
  return std::move(program).take();
}

}  // namespace

// The partial sum so far stands in the output, and both partners fold theirs in the order of their
// ranks: one expression, so equal bits. A rank's own contribution goes through its output too, as
// in the one-shot: there it is rounded as the copy is that the partner folds.
Program doublingAllReduce(const ScheduleOptions& options, Rank rank) {
  if (options.rankCount == 1) return copyAlone(true);
  const Group group(options.rankCount, rank);
  if (group.isRepresented()) return representedProgram(group);

  ProgramBuilder program;
  std::vector<Operand> sources{in(0)};
  if (group.isPaired()) sources.push_back(program.from(group.represented()));
  program.add({.chunk = 0,
               .sources = std::move(sources),
               .destinations = {out(0), program.to(group.partner(1))}});
  for (int32_t distance = 1; distance < group.size(); distance *= 2) {
    const Operand theirs = program.from(group.partner(distance));
    const bool isUpper = (group.place() & distance) != 0;
    const bool isLast = distance * 2 == group.size();
    std::vector<Operand> destinations{out(0)};
    if (!isLast) destinations.push_back(program.to(group.partner(distance * 2)));
    if (isLast && group.isPaired()) destinations.push_back(program.to(group.represented()));
    program.add({.chunk = 0,
                 .sources = isUpper ? std::vector{theirs, out(0)} : std::vector{out(0), theirs},
                 .destinations = std::move(destinations),
                 .post = isLast});
  }
  return std::move(program).take();
}

}  // namespace tutti::schedule
