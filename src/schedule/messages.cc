#include "schedule/messages.h"

#include <algorithm>

namespace tutti::schedule {
namespace {

struct End {
  Rank rank;
  bool (*moves)(const Program&, const Step&, Rank peer);
};

const Program& programOf(const Schedule& schedule, Rank rank) {
  return schedule.programs[static_cast<size_t>(index(rank))];
}

// The step of theirs that is the other end of the message which `step` of mine moves.
std::optional<size_t> otherEnd(const Schedule& schedule, const End& mine, size_t step,
                               const End& theirs) {
  const Program& program = programOf(schedule, mine.rank);
  const auto end = program.steps.begin() + static_cast<std::ptrdiff_t>(step);
  auto before = std::count_if(program.steps.begin(), end, [&](const Step& earlier) {
    return mine.moves(program, earlier, theirs.rank);
  });
  const Program& other = programOf(schedule, theirs.rank);
  for (size_t i = 0; i < other.steps.size(); ++i) {
    if (theirs.moves(other, other.steps[i], mine.rank) && before-- == 0) return i;
  }
  return std::nullopt;
}

}  // namespace

bool sendsTo(const Program& program, const Step& step, Rank peer) {
  return std::ranges::any_of(program.destinations(step), [&](const Operand& to) {
    return to.place == Place::kLink && program.sendsTo[static_cast<size_t>(to.index)] == peer;
  });
}

bool receivesFrom(const Program& program, const Step& step, Rank peer) {
  return std::ranges::any_of(program.sources(step), [&](const Operand& from) {
    return from.place == Place::kLink &&
           program.receivesFrom[static_cast<size_t>(from.index)] == peer;
  });
}

std::optional<size_t> receivingStep(const Schedule& schedule, Rank sender, size_t step,
                                    Rank receiver) {
  return otherEnd(schedule, {sender, sendsTo}, step, {receiver, receivesFrom});
}

std::optional<size_t> sendingStep(const Schedule& schedule, Rank receiver, size_t step,
                                  Rank sender) {
  return otherEnd(schedule, {receiver, receivesFrom}, step, {sender, sendsTo});
}

}  // namespace tutti::schedule
