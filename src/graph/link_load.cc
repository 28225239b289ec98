#include "graph/link_load.h"

namespace tutti::graph {

using topology::NodeId;

void LinkLoad::addRoute(NodeId from, NodeId to, double gbPerSecond) {
  for (const topology::LinkId hop : paths_.between(from, to).hops) gbPerSecond_[hop] += gbPerSecond;
}

void LinkLoad::addBoth(NodeId one, NodeId other, double gbPerSecond) {
  addRoute(one, other, gbPerSecond);
  addRoute(other, one, gbPerSecond);
}

void LinkLoad::add(const NodeGraph& graph, const Channel& channel) {
  if (graph.pattern == Pattern::kSwitch || graph.pattern == Pattern::kDirect) return;
  const double speed = graph.intraGbPerSecond;
  const bool isRing = graph.pattern == Pattern::kRing;
  for (size_t i = 0; i + 1 < channel.gpus.size(); ++i) {
    if (isRing) {
      addRoute(channel.gpus[i], channel.gpus[i + 1], speed);
    } else {
      addBoth(channel.gpus[i], channel.gpus[i + 1], speed / 2);
    }
  }
  if (channel.entry == topology::kNoNode) {
    if (isRing && channel.gpus.size() > 1)
      addRoute(channel.gpus.back(), channel.gpus.front(), speed);
    return;
  }
  if (isRing) {
    addRoute(channel.entry, channel.gpus.front(), speed);
    addRoute(channel.gpus.back(), channel.exit, speed);
    return;
  }
  const bool isAlone = channel.gpus.size() == 1;
  const double first = isAlone || graph.pattern == Pattern::kTree ? 1
                       : graph.pattern == Pattern::kSplitTree     ? .5
                                                                  : .75;
  addBoth(channel.gpus[0], channel.entry, speed * first);
  if (!isAlone) addBoth(channel.gpus[1], channel.entry, speed * (1 - first));
}

LinkLoad::Busiest LinkLoad::busiest() const {
  Busiest found;
  for (const auto& [link, taken] : gbPerSecond_) {
    const double share = taken / topology_[link].gbPerSecond;
    if (share > found.share) found = {link, taken, share};
  }
  return found;
}

}  // namespace tutti::graph
