#include "sim/fair_share.h"

#include <algorithm>

namespace tutti::sim {

FairShare::FairShare(std::vector<double> capacities)
    : links_(capacities.size()),
      isLinkSeen_(capacities.size()),
      left_(capacities.size()),
      weight_(capacities.size()),
      risingOn_(capacities.size()) {
  for (size_t i = 0; i < capacities.size(); ++i) links_[i].capacity = capacities[i];
}

int32_t FairShare::add(Flow flow) {
  if (free_.empty()) {
    free_.push_back(static_cast<int32_t>(flows_.size()));
    flows_.emplace_back();
    rates_.push_back(0);
    isActive_.push_back(false);
    isFlowSeen_.push_back(false);
    before_.push_back(0);
  }
  const int32_t number = free_.back();
  free_.pop_back();
  for (const Crossing& each : flow.crossings)
    links_[static_cast<size_t>(each.link)].flows.push_back({number, each.count});
  flows_[static_cast<size_t>(number)] = std::move(flow);
  return number;
}

void FairShare::remove(int32_t flow) {
  stop(flow);
  removed_.push_back(flow);
}

// Only now: the links of a flow that went are those whose others get more.
void FairShare::detachRemoved() {
  for (const int32_t flow : removed_) {
    for (const Crossing& each : flows_[static_cast<size_t>(flow)].crossings) {
      std::vector<Crosser>& list = links_[static_cast<size_t>(each.link)].flows;
      const auto at = std::ranges::find(list, flow, &Crosser::flow);
      *at = list.back();
      list.pop_back();
    }
    free_.push_back(flow);
  }
  removed_.clear();
}

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
    for (const auto& [link, own] : flows_[static_cast<size_t>(openFlows_[i])].crossings) {
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
    int32_t rising = 0;
    for (const auto& [flow, count] : links_[static_cast<size_t>(link)].flows) {
      if (!isActive_[static_cast<size_t>(flow)]) continue;
      weight += count;
      ++rising;
    }
    weight_[static_cast<size_t>(link)] = weight;
    risingOn_[static_cast<size_t>(link)] = rising;
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
      return std::ranges::any_of(it.crossings, [&](const Crossing& each) {
        const auto i = static_cast<size_t>(each.link);
        return left_[i] <= level * weight_[i] * kRounding;
      });
    };
    std::vector<int32_t> stopped;
    for (const int32_t flow : rising) {
      if (stops(flow)) stopped.push_back(flow);
    }
    for (const int32_t flow : stopped) rates_[static_cast<size_t>(flow)] = level;
    for (const int32_t flow : stopped) {
      for (const auto& [link, count] : flows_[static_cast<size_t>(flow)].crossings) {
        const auto i = static_cast<size_t>(link);
        left_[i] = std::max(0.0, left_[i] - level * count);
        // Exactly nothing once nobody rises there; a rest of rounding would be a level.
        weight_[i] = --risingOn_[i] == 0 ? 0 : weight_[i] - count;
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
  detachRemoved();
  return changed_;
}

}  // namespace tutti::sim
