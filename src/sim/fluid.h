// Bytes under way: each flow has so many left, and goes at the rate that fair sharing gives it
// (fair_share.h) until some flow starts or stops. Tells when flows will have ended; the event loop
// is its owner's. Pure; one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "sim/fair_share.h"

namespace tutti::sim {

class Fluid {
 public:
  // Bytes per microsecond of each link.
  explicit Fluid(std::vector<double> capacities) : share_(std::move(capacities)) {}

  // As FairShare's; `most` in bytes per microsecond.
  int32_t add(FairShare::Flow flow) {
    const double alone = flow.crossings.empty() ? flow.most : 0;
    const int32_t number = share_.add(std::move(flow));
    if (static_cast<size_t>(number) == flows_.size()) flows_.emplace_back();
    at(number).alone = alone;
    return number;
  }
  void remove(int32_t flow) {
    Flow& it = at(flow);
    ++it.version;
    it.isGoing = false;
    share_.remove(flow);
  }
  const std::vector<FairShare::Crossing>& crossingsOf(int32_t flow) const {
    return share_.crossingsOf(flow);
  }

  // REQUIRES: the flow has none under way.
  void start(int32_t flow, double bytes, double nowUs) {
    Flow& it = at(flow);
    it.left = bytes;
    it.sinceUs = nowUs;
    it.rate = 0;
    ++it.version;
    it.isGoing = true;
    unpriced_.push_back(flow);
    if (it.alone <= 0) share_.start(flow);
  }
  void stop(int32_t flow) {
    Flow& it = at(flow);
    ++it.version;
    it.isGoing = false;
    if (it.alone <= 0) share_.stop(flow);
  }

  // After all starts and stops of a time: tell(flow, endUs, version) for each flow that will end at
  // another time than was told. An end told before with a version that is not current any more is
  // no end.
  template <typename Tell>
  void settle(double nowUs, Tell tell) {
    const auto go = [&](int32_t flow) {
      Flow& it = at(flow);
      it.left -= it.rate * (nowUs - it.sinceUs);
      it.sinceUs = nowUs;
      it.rate = it.alone > 0 ? it.alone : share_.rate(flow);
      ++it.version;
      constexpr double kNeverUs = 1e300;
      const double us = it.rate > 0 ? std::max(0.0, it.left) / it.rate : kNeverUs;
      tell(flow, nowUs + us, it.version);
    };
    for (const int32_t flow : share_.update()) {
      if (share_.isActive(flow)) go(flow);
    }
    // The same rate as the flow before it had: no change to the sharing, yet a new end.
    for (const int32_t flow : unpriced_) {
      if (at(flow).isGoing && at(flow).rate <= 0) go(flow);
    }
    unpriced_.clear();
  }
  bool isCurrent(int32_t flow, uint32_t version) const {
    return flows_[static_cast<size_t>(flow)].version == version;
  }

 private:
  struct Flow {
    double left = 0;  // bytes
    double sinceUs = 0;
    double rate = 0;
    double alone = 0;  // its rate where it crosses no link that others cross; 0: it does
    uint32_t version = 0;
    bool isGoing = false;
  };
  Flow& at(int32_t flow) { return flows_[static_cast<size_t>(flow)]; }

  FairShare share_;
  std::vector<Flow> flows_;
  std::vector<int32_t> unpriced_;  // started since the last settle()
};

}  // namespace tutti::sim
