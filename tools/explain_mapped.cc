#include "tools/explain_mapped.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "kernels/execution.h"
#include "schedule/messages.h"

namespace tutti::tools {
namespace {

using schedule::Operand;
using schedule::Place;
using schedule::Program;

// By rank: schedule::Placements::placed.
std::vector<std::vector<uint8_t>> placedSteps(const schedule::Schedule& schedule) {
  std::vector<std::vector<uint8_t>> placed;
  for (int32_t rank = 0; rank < schedule.rankCount; ++rank)
    placed.push_back(schedule::placements(schedule, Rank{rank}, false).placed);
  return placed;
}

// Those who offer a place for what the rank's step sends them.
std::vector<Rank> offeringReceivers(const schedule::Schedule& schedule,
                                    const std::vector<std::vector<uint8_t>>& placed, Rank rank,
                                    size_t step) {
  std::vector<Rank> found;
  const Program& program = schedule.programs[static_cast<size_t>(index(rank))];
  for (const Operand& to : program.destinations(program.steps[step])) {
    if (to.place != Place::kLink) continue;
    const Rank peer = program.sendsTo[static_cast<size_t>(to.index)];
    const std::optional<size_t> taker = schedule::receivingStep(schedule, rank, step, peer);
    if (taker && placed[static_cast<size_t>(index(peer))][*taker] != 0) found.push_back(peer);
  }
  return found;
}

}  // namespace

MappedFacts explainMapped(const plan::Agreement& agreement, const plan::CallShape& shape,
                          const plan::Plan& plan, const schedule::Schedule& schedule) {
  const size_t longest = std::min(plan.layout.pieceElements, plan.layout.chunkElements);
  const bool isLong = longest * sizeOf(shape.type) >= kernels::kSharedMinBytes;
  MappedFacts facts{.isAny = agreement.isOneHost && agreement.rankCount > 1 && isLong};
  if (!facts.isAny) return facts;
  const plan::MappedSteps steps = plan::Planner(agreement).mappedSteps(shape, plan, false);
  const bool mayPlace = !steps.placements.placed.empty();
  std::vector<std::vector<uint8_t>> placed;
  if (mayPlace) placed = placedSteps(schedule);
  for (size_t i = 0; i < steps.referable.size(); ++i) {
    MappedStepFacts step{.step = i, .namesMemory = steps.referable[i] != 0};
    if (mayPlace) {
      step.offersFor = steps.placements.offers[i];
      step.isPlaced = steps.placements.placed[i] != 0;
      step.placesAt = offeringReceivers(schedule, placed, agreement.rank, i);
    }
    const bool sends =
        std::ranges::any_of(plan.program->destinations(plan.program->steps[i]),
                            [](const Operand& to) { return to.place == Place::kLink; });
    step.namesMemory = step.namesMemory && sends;
    if (step.namesMemory || step.isPlaced || !step.placesAt.empty())
      facts.steps.push_back(std::move(step));
  }
  return facts;
}

std::vector<std::string> textOf(const MappedFacts& facts) {
  std::vector<std::string> lines;
  for (const MappedStepFacts& step : facts.steps) {
    std::string text;
    const auto add = [&text](const std::string& more) {
      text += (text.empty() ? "" : "; ") + more;
    };
    for (const Rank peer : step.placesAt)
      add(fmt::format("puts its result into the output of rank {}", index(peer)));
    if (step.namesMemory)
      add(fmt::format("{}names its memory, which the receiver reads",
                      step.placesAt.empty() ? "" : "without a place "));
    if (step.offersFor >= 0)
      add(fmt::format("offers a place for the result of step {}", step.offersFor));
    if (step.isPlaced) add("finds its result in its output");
    lines.push_back(fmt::format("{:>4}  {}", step.step, text));
  }
  return lines;
}

}  // namespace tutti::tools
