// What calls take on a cluster, or on a communicator's part of it, call by call: each shape is
// worked out once. For virtual communicators and traces. Pure; one thread at a time.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "plan/plan.h"
#include "sim/choice.h"

namespace tutti::sim {

class CallTimer {
 public:
  // Searches the cluster's graphs.
  static Result<std::unique_ptr<CallTimer>> make(Cluster cluster, const Timing& timing);

  struct Cost {
    double us = 0;
    std::string way;       // "ring LL128"; "" where nothing is moved
    int32_t busiest = -1;  // link that its bytes load most; -1: none
    double bytesUs = 0;    // of `us`: while its bytes move
    // How they lie on the links. Of costWithUse() only; null where nothing is moved.
    const LinkUse* use = nullptr;
    std::optional<Method> method{};  // none: nothing is moved
  };
  // The call as rank `self` makes it. The reference holds until the next call. kInvalidArgument
  // when the cluster has no way between its ranks.
  Result<const Cost*> costOf(const plan::CallShape& shape, Rank self);
  // The same, with how its bytes lie on the links, which is kept as long as the timer.
  Result<const Cost*> costWithUse(const plan::CallShape& shape, Rank self);

  const Cluster& cluster() const { return cluster_; }

 private:
  struct Key {
    Collective collective = Collective::kAllReduce;
    Rank root{0};
    Rank sender{0};
    uint64_t bytes = 0;
    auto operator<=>(const Key&) const = default;
  };
  CallTimer(Cluster cluster, const Timing& timing)
      : cluster_(std::move(cluster)), timing_(timing), estimator_(cluster_, plan_) {}
  Result<Cost> find(const SimCall& call);
  Result<Cost*> known(const SimCall& call);

  // Calls that differ in size only use the links alike.
  struct UseKey {
    Collective collective = Collective::kAllReduce;
    std::string algorithm;
    int32_t channelCount = 0;
    Rank root{0};
    Rank sender{0};
    auto operator<=>(const UseKey&) const = default;
  };

  const Cluster cluster_;
  const Timing timing_;
  VirtualPlan plan_;
  Estimator estimator_;
  std::map<Key, Cost> known_;
  std::map<UseKey, LinkUse> uses_;
};

}  // namespace tutti::sim
