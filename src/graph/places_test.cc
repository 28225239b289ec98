#include "graph/places.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/rng.h"
#include "schedule/catalog.h"
#include "schedule/prover.h"

namespace tutti::graph {
namespace {

std::vector<int32_t> orderFor(const std::vector<Place>& places) {
  const Result<MergedGraph> merged = mergePlaces(places);
  EXPECT_TRUE(merged.ok()) << merged.status().message();
  std::vector<int32_t> numbers;
  for (const Rank rank : orderOf(merged.value())) numbers.push_back(index(rank));
  return numbers;
}

TEST(Places, KeepTheOrderOfRanksWhereTheyAreSetOutInIt) {
  EXPECT_TRUE(orderFor({{.host = 9}}).empty());
  EXPECT_TRUE(orderFor({{.host = 9}, {.host = 9}, {.host = 4}, {.host = 4}}).empty());
  EXPECT_TRUE(orderFor({{.host = 9, .cpuNode = 0}, {.host = 9, .cpuNode = 1}}).empty());
}

TEST(Places, BringRanksOfAHostTogether) {
  EXPECT_EQ(orderFor({{.host = 9}, {.host = 4}, {.host = 9}, {.host = 4}, {.host = 9}}),
            (std::vector<int32_t>{0, 2, 4, 1, 3}));
}

TEST(Places, BringRanksOfANumaNodeTogetherWithinTheHost) {
  EXPECT_EQ(orderFor({{.host = 1, .cpuNode = 0},
                      {.host = 1, .cpuNode = 1},
                      {.host = 1, .cpuNode = 0},
                      {.host = 1, .cpuNode = 1}}),
            (std::vector<int32_t>{0, 2, 1, 3}));
}

// Ranks dealt out at random: a ring enters each host once and each NUMA node once.
TEST(Places, GiveRingsThatEnterEachHostAndNumaNodeOnce) {
  SeededRng rng(4);
  for (int round = 0; round < 100; ++round) {
    std::vector<Place> places(2 + rng.below(40));
    for (Place& place : places)
      place = {.host = rng.below(4), .cpuNode = static_cast<int32_t>(rng.below(3))};
    const MergedGraph merged = mergePlaces(places).value();
    const auto ring = merged.ring(0);
    ASSERT_EQ(ring.size(), places.size());
    std::set<uint64_t> hosts;
    std::set<std::pair<uint64_t, int32_t>> nodes;
    for (const Place& place : places) {
      hosts.insert(place.host);
      nodes.insert({place.host, place.cpuNode});
    }
    size_t hostChanges = 0, nodeChanges = 0;
    for (size_t i = 0; i < ring.size(); ++i) {
      const Place& one = places[static_cast<size_t>(index(ring[i]))];
      const Place& next = places[static_cast<size_t>(index(ring[(i + 1) % ring.size()]))];
      hostChanges += one.host != next.host;
      nodeChanges += one.host != next.host || one.cpuNode != next.cpuNode;
    }
    EXPECT_EQ(hostChanges, hosts.size() > 1 ? hosts.size() : 0);
    EXPECT_LE(nodeChanges, nodes.size());
  }
}

}  // namespace
}  // namespace tutti::graph
