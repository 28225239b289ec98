// Max-min fair rates: each flow gets as much as it can without taking from one that has less.
// Kept up to date as flows come and go; only what hangs together with a change by full links is
// worked out anew. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tutti::sim {

// A flow stands for many alike, so it may cross a link several times over.
class FairShare {
 public:
  struct Link {
    double capacity = 0;
    std::vector<std::pair<int32_t, int32_t>> flows;  // that may cross it, and how many at once
  };
  struct Flow {
    double most = 0;  // its own limit
    std::vector<int32_t> links;
  };
  FairShare(std::vector<Link> links, std::vector<Flow> flows);

  void start(int32_t flow);
  void stop(int32_t flow);
  // Works out the rates; the flows whose rate has changed, in order.
  const std::vector<int32_t>& update();
  double rate(int32_t flow) const { return rates_[static_cast<size_t>(flow)]; }

 private:
  void collect();
  void fill();

  std::vector<Link> links_;
  std::vector<Flow> flows_;
  std::vector<double> rates_;  // 0: not active
  std::vector<bool> isActive_;
  std::vector<int32_t> touched_;  // flows that came or went since the last update
  // Scratch of an update.
  std::vector<int32_t> openFlows_, openLinks_, changed_;
  std::vector<bool> isFlowSeen_, isLinkSeen_;
  std::vector<double> left_, weight_, before_;
};

}  // namespace tutti::sim
