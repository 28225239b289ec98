#include "sim/fair_share.h"

#include <algorithm>

namespace tutti::sim {

FairShare::FairShare(std::vector<Link> links, std::vector<Flow> flows)
    : links_(std::move(links)),
      flows_(std::move(flows)),
      rates_(flows_.size()),
      isActive_(flows_.size()),
      isFlowSeen_(flows_.size()),
      isLinkSeen_(links_.size()),
      left_(links_.size()),
      weight_(links_.size()),
      before_(flows_.size()) {}

void FairShare::start(int32_t flow) {
  isActive_[static_cast<size_t>(flow)] = true;
  touched_.push_back(flow);
}

void FairShare::stop(int32_t flow) {
  isActive_[static_cast<size_t>(flow)] = false;
  touched_.push_back(flow);
}

// All flows that share links with those that changed, and with those, and so on.
void FairShare::collect() {
  openFlows_.clear();
  openLinks_.clear();
  const auto see = [&](int32_t flow) {
    if (isFlowSeen_[static_cast<size_t>(flow)]) return;
    isFlowSeen_[static_cast<size_t>(flow)] = true;
    openFlows_.push_back(flow);
  };
  for (const int32_t flow : touched_) see(flow);
  touched_.clear();
  for (size_t i = 0; i < openFlows_.size(); ++i) {
    for (const int32_t link : flows_[static_cast<size_t>(openFlows_[i])].links) {
      if (isLinkSeen_[static_cast<size_t>(link)]) continue;
      isLinkSeen_[static_cast<size_t>(link)] = true;
      openLinks_.push_back(link);
      for (const auto& [other, count] : links_[static_cast<size_t>(link)].flows) {
        if (isActive_[static_cast<size_t>(other)]) see(other);
      }
    }
  }
}

// Water rises in all flows alike; whoever meets a full link, or its own limit, stops there.
void FairShare::fill() {
  for (const int32_t link : openLinks_) {
    left_[static_cast<size_t>(link)] = links_[static_cast<size_t>(link)].capacity;
    double weight = 0;
    for (const auto& [flow, count] : links_[static_cast<size_t>(link)].flows)
      weight += isActive_[static_cast<size_t>(flow)] ? count : 0;
    weight_[static_cast<size_t>(link)] = weight;
  }
  std::vector<int32_t>& rising = openFlows_;
  while (!rising.empty()) {
    // The lowest level at which something stops.
    double level = 1e300;
    for (const int32_t link : openLinks_) {
      const auto i = static_cast<size_t>(link);
      if (weight_[i] > 0) level = std::min(level, left_[i] / weight_[i]);
    }
    for (const int32_t flow : rising)
      level = std::min(level, flows_[static_cast<size_t>(flow)].most);
    constexpr double kRounding = 1 + 1e-9;
    const auto stops = [&](int32_t flow) {
      const Flow& it = flows_[static_cast<size_t>(flow)];
      if (it.most <= level * kRounding) return true;
      return std::ranges::any_of(it.links, [&](int32_t link) {
        const auto i = static_cast<size_t>(link);
        return left_[i] <= level * weight_[i] * kRounding;
      });
    };
    std::vector<int32_t> stopped;
    for (const int32_t flow : rising) {
      if (stops(flow)) stopped.push_back(flow);
    }
    for (const int32_t flow : stopped) rates_[static_cast<size_t>(flow)] = level;
    // A flow crosses a link as often as the link says.
    for (const int32_t flow : stopped) {
      for (const int32_t link : flows_[static_cast<size_t>(flow)].links) {
        const auto i = static_cast<size_t>(link);
        const auto& crossing = links_[i].flows;
        const auto at = std::ranges::lower_bound(crossing, flow, {},
                                                 [](const auto& each) { return each.first; });
        left_[i] = std::max(0.0, left_[i] - level * at->second);
        weight_[i] -= at->second;
      }
    }
    std::erase_if(rising, [&](int32_t flow) { return std::ranges::binary_search(stopped, flow); });
  }
}

const std::vector<int32_t>& FairShare::update() {
  changed_.clear();
  if (touched_.empty()) return changed_;
  collect();
  std::vector<int32_t> all = openFlows_;
  std::ranges::sort(all);
  for (const int32_t flow : all) {
    const auto i = static_cast<size_t>(flow);
    before_[i] = rates_[i];
    rates_[i] = 0;
    isFlowSeen_[i] = false;
  }
  for (const int32_t link : openLinks_) isLinkSeen_[static_cast<size_t>(link)] = false;
  openFlows_.clear();
  for (const int32_t flow : all) {
    if (isActive_[static_cast<size_t>(flow)]) openFlows_.push_back(flow);
  }
  fill();
  for (const int32_t flow : all) {
    const auto i = static_cast<size_t>(flow);
    if (rates_[i] != before_[i]) changed_.push_back(flow);
  }
  return changed_;
}

}  // namespace tutti::sim
