#include <utility>
#include <vector>

#include "schedule/algorithms.h"
#include "schedule/building.h"

namespace tutti::schedule {

// The rank's own contribution passes through its output, like the others' through their links:
// there it is scaled and rounded to the element type once, as the copies the others fold are. Read
// from the input, it would enter this rank's sum unrounded and the ranks' bits could differ.
Program oneShotAllReduce(const ScheduleOptions& options, Rank rank) {
  const int32_t n = options.rankCount;
  if (n == 1) return copyAlone(true);
  ProgramBuilder program;
  std::vector<Operand> copies{out(0)};
  for (int32_t distance = 1; distance < n; ++distance) {
    copies.push_back(program.to(rankAfter(rank, distance, n)));
  }
  program.add({.chunk = 0, .sources = {in(0)}, .destinations = std::move(copies)});
  program.add({.chunk = 0,
               .sources = inRankOrder(program, n, rank, out(0)),
               .destinations = {out(0)},
               .post = true,
               .lag = options.hostCount > 1 && options.lagSlots >= 2 ? 1 : 0});
  return std::move(program).take();
}

}  // namespace tutti::schedule
