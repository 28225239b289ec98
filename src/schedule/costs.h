// What each algorithm's schedule costs for whole vectors, and how many of its hops lie between
// hosts: the formulas of catalog.cc's table, where a test counts them in the schedules. Pure, any
// thread.
#pragma once

#include "schedule/catalog.h"

namespace tutti::schedule {

int32_t treeCount(int32_t n);  // that carry a chunk each, of n ranks

// REQUIRES for all: at least one rank.
Cost ringAllReduceCost(int32_t n);
Cost ringHalfCost(int32_t n);  // all-gather and reduce-scatter: each half of a ring all-reduce
Cost chainCost(int32_t n);
Cost oneShotCost(int32_t n);
Cost pairwiseCost(int32_t n);
Cost directAllToAllCost(int32_t n);
Cost gatherCost(int32_t n);
Cost scatterCost(int32_t n);
Cost transferCost(int32_t n);
Cost treeAllReduceCost(int32_t n);
Cost treeHalfCost(int32_t n);
Cost directAllGatherCost(int32_t n);
Cost directBroadcastCost(int32_t n);
Cost directReduceCost(int32_t n);
Cost twoShotAllReduceCost(int32_t n);
Cost twoShotBroadcastCost(int32_t n);
Cost twoShotReduceCost(int32_t n);
Cost doublingCost(int32_t n);
Cost patHalfCost(int32_t n);
Cost patAllReduceCost(int32_t n);
Cost hierarchicalCost(const Spread& spread);
Cost railCost(const Spread& spread);
Cost collnetChainCost(const Spread& spread);
Cost collnetDirectCost(const Spread& spread);
// Of these two hops are a bound.
Cost collnetGatherCost(const Spread& spread);
Cost collnetScatterCost(const Spread& spread);

// Of hops, those between hosts that hold as many ranks each, a host's next to each other.
int32_t ringHalfHostHops(int32_t n, int32_t hosts);
int32_t ringAllReduceHostHops(int32_t n, int32_t hosts);
int32_t chainHostHops(int32_t n, int32_t hosts);
int32_t treeHalfHostHops(int32_t n, int32_t hosts);
int32_t treeAllReduceHostHops(int32_t n, int32_t hosts);
int32_t doublingHostHops(int32_t n, int32_t hosts);
int32_t railHostHops(int32_t n, int32_t hosts);
int32_t collnetHostHops(int32_t n, int32_t hosts);
int32_t collnetBlockHostHops(int32_t n, int32_t hosts);

}  // namespace tutti::schedule
