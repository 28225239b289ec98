#include "sim/call_timer.h"

#include <utility>

namespace tutti::sim {
namespace {

// Shapes that are remembered; a program that calls with ever new sizes starts anew.
constexpr size_t kMostKnown = 1 << 16;

// A receive is its sender's send, so that both are one call.
SimCall callOf(const plan::CallShape& shape, int32_t rankCount, Rank self) {
  SimCall call{.collective = shape.collective,
               .type = shape.type,
               .bytes = plan::vectorBytes(shape, rankCount),
               .root = shape.peer,
               .sender = Rank{0}};
  if (shape.collective == Collective::kSend) call.sender = self;
  if (shape.collective == Collective::kRecv) {
    call.collective = Collective::kSend;
    call.root = self;
    call.sender = shape.peer;
  }
  if (call.collective != Collective::kSend && !hasRoot(call.collective)) call.root = Rank{0};
  return call;
}

}  // namespace

Result<std::unique_ptr<CallTimer>> CallTimer::make(Cluster cluster, const Timing& timing) {
  std::unique_ptr<CallTimer> timer(new CallTimer(std::move(cluster), timing));
  TUTTI_TRY_ASSIGN(timer->plan_, planVirtual(timer->cluster_));
  return timer;
}

Result<CallTimer::Cost> CallTimer::find(const SimCall& call) {
  // Nothing leaves a rank: what is left is the call itself.
  const bool isLocal = cluster_.rankCount() == 1 ||
                       (call.collective == Collective::kSend && call.root == call.sender);
  if (isLocal || call.bytes == 0) {
    const LaunchCost launch = cluster_.hasGpus()
                                  ? launchCost(timing_.system, timing_.launch, call.collective, 1)
                                  : LaunchCost{};
    return Cost{.us = call.bytes == 0 ? 0 : std::max(launch.moreUs, launch.leastUs), .way = ""};
  }
  TUTTI_TRY_ASSIGN(const Choices choices, chooseFor(estimator_, call, timing_));
  const Choices::Way& way = playedOf(choices);
  return Cost{.us = way.estimate.us,
              .way = way.name,
              .busiest = way.estimate.busiestLink,
              .bytesUs = way.estimate.bytesUs,
              .method = way.method};
}

Result<CallTimer::Cost*> CallTimer::known(const SimCall& call) {
  const Key key{call.collective, call.root, call.sender, call.bytes};
  const auto found = known_.find(key);
  if (found != known_.end()) return &found->second;
  TUTTI_TRY_ASSIGN(Cost cost, find(call));
  if (known_.size() == kMostKnown) known_.clear();
  return &known_.emplace(key, std::move(cost)).first->second;
}

Result<const CallTimer::Cost*> CallTimer::costOf(const plan::CallShape& shape, Rank self) {
  TUTTI_TRY_ASSIGN(const Cost* cost, known(callOf(shape, cluster_.rankCount(), self)));
  return cost;
}

Result<const CallTimer::Cost*> CallTimer::costWithUse(const plan::CallShape& shape, Rank self) {
  const SimCall call = callOf(shape, cluster_.rankCount(), self);
  TUTTI_TRY_ASSIGN(Cost * cost, known(call));
  if (cost->use == nullptr && cost->method) {
    const Method& method = *cost->method;
    const auto [at, isNew] = uses_.try_emplace(
        UseKey{call.collective, method.algorithm, method.channelCount, call.root, call.sender});
    if (isNew) {
      TUTTI_TRY_ASSIGN(at->second, estimator_.linkUseOf(call, method));
    }
    cost->use = &at->second;
  }
  return std::as_const(cost);
}

}  // namespace tutti::sim
