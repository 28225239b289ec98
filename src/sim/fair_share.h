// Max-min fair rates: each flow gets as much as it can without taking from one that has less.
// Kept up to date as flows come and go; only what hangs together with a change by full links is
// worked out anew. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::sim {

// A flow stands for many alike, so it may cross a link several times over.
class FairShare {
 public:
  struct Crossing {
    int32_t link = 0;
    double count = 1;  // how many of the flow cross it at once
  };
  struct Flow {
    double most = 0;  // its own limit
    std::vector<Crossing> crossings{};
  };
  explicit FairShare(std::vector<double> capacities);

  // A flow that may start. Numbers are dense, from 0; those of removed flows are given again.
  int32_t add(Flow flow);
  void remove(int32_t flow);
  void start(int32_t flow);
  void stop(int32_t flow);
  // Works out the rates; the flows whose rate has changed, in order.
  const std::vector<int32_t>& update();
  double rate(int32_t flow) const { return rates_[static_cast<size_t>(flow)]; }
  bool isActive(int32_t flow) const { return isActive_[static_cast<size_t>(flow)]; }
  const std::vector<Crossing>& crossingsOf(int32_t flow) const {
    return flows_[static_cast<size_t>(flow)].crossings;
  }

 private:
  struct Crosser {
    int32_t flow = 0;
    double count = 1;
  };
  struct Link {
    double capacity = 0;
    std::vector<Crosser> flows;  // that may cross it
  };
  void collect();
  void fill();
  void detachRemoved();

  std::vector<Link> links_;
  std::vector<Flow> flows_;
  std::vector<double> rates_;  // 0: not active
  std::vector<bool> isActive_;
  std::vector<int32_t> touched_;  // flows that came or went since the last update
  std::vector<int32_t> removed_;  // since the last update
  std::vector<int32_t> free_;     // numbers to give again
  // Scratch of an update.
  std::vector<int32_t> openFlows_, openLinks_, changed_;
  std::vector<bool> isFlowSeen_, isLinkSeen_;
  std::vector<double> left_, weight_, before_;
  std::vector<int32_t> risingOn_;  // by link
};

}  // namespace tutti::sim
