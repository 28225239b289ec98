#include "tools/explain_mapped.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <span>

#include "kernels/execution.h"

namespace tutti::tools {
namespace {

using schedule::Operand;
using schedule::Place;
using schedule::Program;
using schedule::Step;

std::span<const Operand> sourcesOf(const Program& program, const Step& step) {
  return std::span(program.operands).subspan(step.firstOperand, step.sourceCount);
}
std::span<const Operand> destinationsOf(const Program& program, const Step& step) {
  return std::span(program.operands)
      .subspan(step.firstOperand + step.sourceCount, step.destinationCount);
}

bool isLinkTo(const Program& program, const Operand& to, Rank peer) {
  return to.place == Place::kLink && program.sendsTo[static_cast<size_t>(to.index)] == peer;
}
bool isLinkFrom(const Program& program, const Operand& from, Rank peer) {
  return from.place == Place::kLink &&
         program.receivesFrom[static_cast<size_t>(from.index)] == peer;
}

// How many messages to the peer go before the step.
size_t sentBefore(const Program& program, size_t step, Rank peer) {
  size_t count = 0;
  for (size_t i = 0; i < step; ++i)
    count += static_cast<size_t>(
        std::ranges::count_if(destinationsOf(program, program.steps[i]),
                              [&](const Operand& to) { return isLinkTo(program, to, peer); }));
  return count;
}

// The step that takes the number-th message from the peer.
std::optional<size_t> takerOf(const Program& program, Rank peer, size_t number) {
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const bool takes =
        std::ranges::any_of(sourcesOf(program, program.steps[i]),
                            [&](const Operand& from) { return isLinkFrom(program, from, peer); });
    if (takes && number-- == 0) return i;
  }
  return std::nullopt;
}

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
  for (const Operand& to : destinationsOf(program, program.steps[step])) {
    if (to.place != Place::kLink) continue;
    const Rank peer = program.sendsTo[static_cast<size_t>(to.index)];
    const auto at = static_cast<size_t>(index(peer));
    const std::optional<size_t> taker =
        takerOf(schedule.programs[at], rank, sentBefore(program, step, peer));
    if (taker && placed[at][*taker] != 0) found.push_back(peer);
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
  const bool mayPlace = !agreement.isCrowded() && !steps.placements.placed.empty();
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
        std::ranges::any_of(destinationsOf(*plan.program, plan.program->steps[i]),
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
