// What an operation says of a link that will never move again: whose fault that is.
#include <string_view>
#include <utility>

#include "launch/launcher.h"

namespace tutti::launch {
namespace {

std::string_view describe(wire::LinkFault fault) {
  switch (fault) {
    case wire::LinkFault::kNone: return "moved";
    case wire::LinkFault::kAborted: return "aborted its communicator";
    case wire::LinkFault::kDestroyed: return "destroyed its communicator";
    case wire::LinkFault::kLost: return "ended, or the way to its host failed,";
  }
  return "left";
}

}  // namespace

// Of the link that is awaited: the rank whose process carries it, where that is neither end's.
std::optional<Rank> Operation::carrierOf(const Run& run) const {
  const kernels::Execution::Awaited awaited = run.execution.awaited();
  return launcher_.parts_.links.carrier(Rank{awaited.peer}, run.plan->lane, awaited.isSender);
}

// The peer will never move the awaited link again. For all ranks: one that waits for this rank
// would otherwise name this one.
Status Operation::giveUp(const Run& run, wire::LinkFault fault) {
  const kernels::Execution::Awaited awaited = run.execution.awaited();
  const transport::Parting parting =
      launcher_.parts_.links.parting(Rank{awaited.peer}, run.plan->lane, awaited.isSender);
  const auto rankCount = static_cast<int32_t>(launcher_.parts_.peers.size());
  if (fault == wire::LinkFault::kAborted && !parting.text.empty() && parting.guilty < rankCount) {
    return launcher_.watch_.give(
        {.code = parting.code, .guilty = parting.guilty, .text = parting.text});
  }
  if (parting.isOwn) return blameNetwork(run, parting.text);
  const auto& peer = launcher_.parts_.peers[static_cast<size_t>(awaited.peer)];
  const bool isLost = fault == wire::LinkFault::kLost;
  // It may have said why before the link was made.
  if (isLost) TUTTI_TRY(launcher_.watch_.giveTold(peer.rank));
  // Whose connection has ended without a word.
  if (const auto carrier = carrierOf(run); carrier && isLost && parting.guilty < 0)
    return loseCarrier(run, *carrier, parting.text);
  return launcher_.watch_.give(
      {.code = Code::kRemoteError,
       .guilty = peer.rank,
       .text = fmt::format("{} {} while rank {} waited for it in {}{}{}{}", describe(peer),
                           describe(fault), launcher_.parts_.recorder->rank(),
                           name(run.call.shape.collective), isLost ? ": " : "",
                           isLost ? parting.text : "", launcher_.watch_.lastCallOf(peer.rank))});
}

// This rank's own network hangs, which the others cannot see.
Status Operation::blameNetwork(const Run& run, std::string_view hang) {
  return launcher_.watch_.explain(
      remoteError("rank {}: {} is stuck: {}", launcher_.parts_.recorder->rank(),
                  name(run.call.shape.collective), hang),
      run.number, {});
}

Status Operation::loseCarrier(const Run& run, Rank number, std::string_view why) {
  const kernels::Execution::Awaited awaited = run.execution.awaited();
  const int32_t self = launcher_.parts_.recorder->rank();
  const auto& carrier = launcher_.parts_.peers[static_cast<size_t>(index(number))];
  return launcher_.watch_.give(
      {.code = Code::kRemoteError,
       .guilty = carrier.rank,
       .text = fmt::format("{}, {} while rank {} waited for it in {}: {}{}",
                           describeCarrier(carrier, awaited.isSender ? self : awaited.peer,
                                           awaited.isSender ? awaited.peer : self),
                           describe(wire::LinkFault::kLost), self, name(run.call.shape.collective),
                           why, launcher_.watch_.lastCallOf(carrier.rank))});
}

}  // namespace tutti::launch
