// A member's end of a group of a network that reduces, and the thread that makes all calls to it:
// the network's library may never return from one.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "net/foreign_calls.h"
#include "net/reduction.h"

namespace tutti::net {

class HeldGroup {
 public:
  HeldGroup(std::string network, std::unique_ptr<CallThread> calls,
            std::shared_ptr<ReductionGroup> group)
      : network_(std::move(network)), calls_(std::move(calls)), group_(std::move(group)) {}
  // The group goes on its thread, after the jobs that were posted there. That takes half a second
  // at most: what has not returned by then is left behind, with all that it uses, and told.
  ~HeldGroup();
  HeldGroup(const HeldGroup&) = delete;
  HeldGroup& operator=(const HeldGroup&) = delete;

  const std::string& network() const { return network_; }
  CallThread& calls() { return *calls_; }
  // For whoever posts the jobs that use it, and lets go of it in one.
  std::shared_ptr<ReductionGroup> take() { return std::move(group_); }

 private:
  const std::string network_;
  std::unique_ptr<CallThread> calls_;
  std::shared_ptr<ReductionGroup> group_;
};

// Ends a thread of calls to such a network, or to a fabric, as HeldGroup does.
void endCalls(std::unique_ptr<CallThread> calls);

}  // namespace tutti::net
