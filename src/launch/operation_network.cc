// What an operation does while it waits for a network that reduces: the network says nothing of its
// members, and may say nothing of itself.
#include <algorithm>
#include <chrono>
#include <span>

#include "launch/launcher.h"

namespace tutti::launch {
namespace {

constexpr Nanoseconds kWordPatience = std::chrono::milliseconds(500);

}  // namespace

// Whoever waits for a network that reduces waits for its members; as many of them a look as can be
// published, in turns.
void Operation::noteMembers(observe::WaitNote note) {
  const std::span<const Rank> members = launcher_.parts_.links.networkMembers();
  const size_t count = std::min(members.size(), observe::kMaxWaits);
  for (size_t i = 0; i < count; ++i) {
    note.peer = index(members[launcher_.nextMember_++ % members.size()]);
    if (note.peer != launcher_.parts_.recorder->rank()) waits_.push_back(note);
  }
}

// Whether a member has failed, or the network has: its group has ended, or it has all members'
// parts and gives no result. Where a member's failure ended the group, its word is the better one,
// and may come after the end.
Status Operation::judgeNetwork(int64_t idleNanoseconds) {
  channel::LinkSet& links = launcher_.parts_.links;
  if (auto parting = links.networkParting()) {
    return launcher_.watch_.give(
        {.code = parting->code, .guilty = parting->guilty, .text = std::move(parting->text)});
  }
  for (const Run& run : runs_) {
    if (run.stage != Stage::kRunning || idleNanoseconds < kWordPatience.count()) continue;
    const kernels::Execution::Awaited awaited = run.execution.awaited();
    if (!links.isNetwork(Rank{awaited.peer}) ||
        run.execution.awaitedFault() == wire::LinkFault::kNone)
      continue;
    const transport::Parting parting =
        links.parting(Rank{awaited.peer}, run.plan->lane, awaited.isSender);
    return launcher_.watch_.explain(remoteError("rank {}: {} over the network that reduces: {}",
                                                launcher_.parts_.recorder->rank(),
                                                name(run.call.shape.collective), parting.text),
                                    run.number, {});
  }
  TUTTI_TRY(judgeNetworkCall(idleNanoseconds));
  const int64_t patience = launcher_.parts_.timeout.count();
  if (idleNanoseconds < patience / 2 || !links.isNetworkOwing() || idleNanoseconds < patience)
    return {};
  const double seconds = std::chrono::duration<double>(Nanoseconds(idleNanoseconds)).count();
  return launcher_.watch_.give(
      {.code = Code::kRemoteError,
       .guilty = -1,
       .text = fmt::format(
           "collective network {} owes rank {} a result for {:.1f} s: all {} members have handed "
           "in their parts; NCCL_COLLNET_ENABLE=0 goes without it, TUTTI_TIMEOUT_MS sets how "
           "long it may take",
           links.networkName(), launcher_.parts_.recorder->rank(), seconds,
           links.networkMembers().size())});
}

// Whether the network's library has not returned from a call for long.
Status Operation::judgeNetworkCall(int64_t idleNanoseconds) {
  const channel::LinkSet& links = launcher_.parts_.links;
  const transport::Reducer::Stand stand = links.networkStand();
  const bool isSame = stand.call != nullptr && stand.rounds == launcher_.networkRounds_;
  launcher_.networkRounds_ = stand.rounds;
  launcher_.stuckSince_ =
      isSame ? std::min(launcher_.stuckSince_, idleNanoseconds) : idleNanoseconds;
  const int64_t patience = launcher_.parts_.timeout.count();
  if (idleNanoseconds < patience || idleNanoseconds - launcher_.stuckSince_ < patience / 2)
    return {};
  const double seconds = std::chrono::duration<double>(Nanoseconds(idleNanoseconds)).count();
  return launcher_.watch_.explain(
      remoteError(
          "rank {}: collective network {} has not returned from {} for {:.1f} s; "
          "NCCL_COLLNET_ENABLE=0 goes without it, TUTTI_TIMEOUT_MS sets how long it may take",
          launcher_.parts_.recorder->rank(), links.networkName(), stand.call, seconds),
      number_, {});
}

}  // namespace tutti::launch
