#include "sim/hops.h"

#include "schedule/catalog.h"

namespace tutti::sim {
namespace {

// From a leaf of the linked tree up to its root: the deepest.
Hops depthOf(const Traffic& traffic, int32_t tree) {
  const graph::MergedGraph& merged = traffic.plan().merged;
  const Cluster& cluster = traffic.cluster();
  Hops deepest;
  for (int32_t rank = 0; rank < traffic.rankCount(); ++rank) {
    // Only leaves: others are on a leaf's way.
    if (merged.treeLinks(0, tree, Rank{rank}).down[0] != schedule::kNobody) continue;
    Hops here;
    Rank at{rank};
    for (Rank up = merged.treeLinks(0, tree, at).up; up != schedule::kNobody;
         up = merged.treeLinks(0, tree, at).up) {
      (cluster.nodeOf(at) == cluster.nodeOf(up) ? here.inside : here.between) += 1;
      at = up;
    }
    // A hop between nodes costs several inside one.
    constexpr int64_t kWeight = 4;
    if (here.inside + kWeight * here.between > deepest.inside + kWeight * deepest.between)
      deepest = here;
  }
  return deepest;
}

// How many of a ring's edges leave their node.
int64_t crossingsOf(const Traffic& traffic) {
  const auto order = traffic.order(0);
  const int32_t ranks = traffic.rankCount();
  int64_t crossings = 0;
  for (int32_t i = 0; i < ranks; ++i) {
    const auto at = [&](int32_t place) {
      return order.empty() ? Rank{place % ranks} : order[static_cast<size_t>(place % ranks)];
    };
    crossings += traffic.cluster().nodeOf(at(i)) != traffic.cluster().nodeOf(at(i + 1)) ? 1 : 0;
  }
  return crossings;
}

}  // namespace

Hops hopsOf(const Traffic& traffic) {
  if (traffic.followsTrees() && traffic.rankCount() > 1) {
    const Hops up = depthOf(traffic, 0);
    return {2 * up.inside, 2 * up.between};
  }
  const schedule::Algorithm& algorithm =
      *schedule::findAlgorithm(traffic.call().collective, traffic.method().algorithm);
  const int32_t ranks = traffic.rankCount(), hosts = traffic.plan().evenHostCount;
  const int64_t hops = schedule::costOf(algorithm, schedule::evenSpread(ranks, hosts)).hops;
  if (traffic.cluster().nodeCount() == 1) return {hops, 0};
  if (algorithm.name != "ring") {
    const int64_t between = hosts > 1 ? algorithm.hostHops(ranks, hosts) : hops;
    return {hops - between, between};
  }
  const int64_t between = hops * crossingsOf(traffic) / traffic.rankCount();
  return {hops - between, between};
}

}  // namespace tutti::sim
