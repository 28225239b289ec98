#include "schedule/placements.h"

#include <algorithm>
#include <optional>
#include <span>

#include "schedule/messages.h"

namespace tutti::schedule {
namespace {

class Finder {
 public:
  Finder(const Schedule& schedule, Rank rank, bool inPlace)
      : schedule_(schedule), rank_(rank), inPlace_(inPlace), program_(programOf(rank)) {}

  // The step whose message may offer the place of what `step` receives.
  std::optional<size_t> offerFor(size_t step) const {
    const Step& receives = program_.steps[step];
    const auto from = program_.sources(receives);
    const std::optional<int32_t> chunk = onlyOutput(receives);
    if (from.size() != 1 || from[0].place != Place::kLink || receives.post || !chunk)
      return std::nullopt;
    const Rank peer = program_.receivesFrom[static_cast<size_t>(from[0].index)];
    const std::optional<size_t> offers = lastContribution(peer, step);
    if (!offers) return std::nullopt;
    if (!answersNext(peer, *offers, step) || isTouched(*chunk, *offers, step)) return std::nullopt;
    return offers;
  }

 private:
  const Program& programOf(Rank rank) const {
    return schedule_.programs[static_cast<size_t>(index(rank))];
  }

  // The chunk of the only output that the step writes.
  std::optional<int32_t> onlyOutput(const Step& step) const {
    std::optional<int32_t> chunk;
    for (const Operand& to : program_.destinations(step)) {
      if (to.place != Place::kOutput) continue;
      if (chunk) return std::nullopt;
      chunk = to.index;
    }
    return chunk;
  }

  // The last step before that does nothing but send something of the same chunk to the peer.
  std::optional<size_t> lastContribution(Rank peer, size_t before) const {
    for (size_t i = before; i-- > 0;) {
      const Step& step = program_.steps[i];
      const bool isOfChunk = step.chunk == program_.steps[before].chunk;
      if (isOfChunk && step.destinationCount == 1 && sendsTo(program_, step, peer)) return i;
    }
    return std::nullopt;
  }

  // Whether the peer's first message to this rank, once it has received that of step `offers`, is
  // the one that step `receives` waits for.
  bool answersNext(Rank peer, size_t offers, size_t receives) const {
    const Program& theirs = programOf(peer);
    const auto taken = receivingStep(schedule_, rank_, offers, peer);
    const auto sent = sendingStep(schedule_, rank_, receives, peer);
    if (!taken || !sent || *taken > *sent) return false;
    const std::span between = std::span(theirs.steps).subspan(*taken, *sent - *taken);
    return std::ranges::none_of(between,
                                [&](const Step& step) { return sendsTo(theirs, step, rank_); });
  }

  bool isPlace(const Operand& operand, int32_t chunk) const {
    const bool isSameBuffer = operand.place == Place::kOutput || inPlace_;
    return operand.place != Place::kLink && isSameBuffer && operand.index == chunk;
  }

  // Before `offers` a step may have left a reference to the place with a rank that still reads
  // there; in between none may look at it.
  bool isTouched(int32_t chunk, size_t offers, size_t receives) const {
    for (size_t i = 0; i < receives; ++i) {
      const Step& step = program_.steps[i];
      const auto from = program_.sources(step);
      const auto to = program_.destinations(step);
      const bool sends = std::ranges::any_of(
          to, [](const Operand& operand) { return operand.place == Place::kLink; });
      if (i == offers || (i < offers && !sends)) continue;
      const auto touches = [&](const Operand& operand) { return isPlace(operand, chunk); };
      if (std::ranges::any_of(from, touches) || std::ranges::any_of(to, touches)) return true;
    }
    return false;
  }

  const Schedule& schedule_;
  const Rank rank_;
  const bool inPlace_;
  const Program& program_;
};

}  // namespace

Placements placements(const Schedule& schedule, Rank rank, bool inPlace) {
  const size_t steps = schedule.programs[static_cast<size_t>(index(rank))].steps.size();
  Placements found{.offers = std::vector<int32_t>(steps, Placements::kNone),
                   .placed = std::vector<uint8_t>(steps, 0)};
  const Finder finder(schedule, rank, inPlace);
  for (size_t step = 0; step < steps; ++step) {
    const std::optional<size_t> offers = finder.offerFor(step);
    // A message has room for one offer: the first step that wants one.
    if (!offers || found.offers[*offers] != Placements::kNone) continue;
    found.offers[*offers] = static_cast<int32_t>(step);
    found.placed[step] = 1;
  }
  return found;
}

}  // namespace tutti::schedule
