#include "graph/merge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "graph/graphs_testing.h"
#include "graph/node_tree.h"
#include "schedule/catalog.h"
#include "schedule/prover.h"

namespace tutti::graph {
namespace {

using schedule::kNobody;
using schedule::TreeLinks;

std::vector<Rank> shuffled(std::vector<Rank> ranks, SeededRng& rng) {
  for (size_t i = ranks.size(); i > 1; --i) std::swap(ranks[i - 1], ranks[rng.below(i)]);
  return ranks;
}

struct ClusterSpec {
  std::vector<int32_t> sizes;  // ranks of each node
  int32_t channels = 1;
  Pattern pattern = Pattern::kTree;
};

// Ranks dealt to nodes at random, orders at random: the merge may rely on neither.
std::vector<NodePart> randomParts(const ClusterSpec& spec, SeededRng& rng) {
  std::vector<Rank> ranks(
      static_cast<size_t>(std::accumulate(spec.sizes.begin(), spec.sizes.end(), 0)));
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = Rank{static_cast<int32_t>(i)};
  ranks = shuffled(std::move(ranks), rng);
  std::vector<NodePart> parts;
  size_t next = 0;
  for (const int32_t size : spec.sizes) {
    NodePart part;
    part.ranks.assign(ranks.begin() + static_cast<ptrdiff_t>(next),
                      ranks.begin() + static_cast<ptrdiff_t>(next) + size);
    next += static_cast<size_t>(size);
    std::ranges::sort(part.ranks);
    part.treePattern = spec.pattern;
    // Nodes may offer more channels than others; the fewest count.
    const auto channels = spec.channels + static_cast<int32_t>(rng.below(2));
    for (int32_t channel = 0; channel < channels; ++channel) {
      const auto rail = static_cast<int32_t>(rng.below(4));
      part.rings.push_back({shuffled(part.ranks, rng), rail, static_cast<int32_t>(rng.below(4))});
      part.chains.push_back(shuffled(part.ranks, rng));
      part.heads.push_back(part.ranks[rng.below(part.ranks.size())]);
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<int32_t> randomSizes(SeededRng& rng, uint64_t mostNodes, uint64_t mostRanks) {
  std::vector<int32_t> sizes(1 + rng.below(mostNodes));
  for (int32_t& size : sizes) size = 1 + static_cast<int32_t>(rng.below(mostRanks));
  return sizes;
}

void expectOneTree(const MergedGraph& merged, int32_t channel, int32_t tree) {
  int32_t roots = 0, links = 0;
  for (int32_t i = 0; i < merged.rankCount(); ++i) {
    const TreeLinks own = merged.treeLinks(channel, tree, Rank{i});
    if (own.up == kNobody) {
      ++roots;
    } else {
      const auto siblings = merged.treeLinks(channel, tree, own.up).down;
      ASSERT_NE(std::ranges::find(siblings, Rank{i}), siblings.end())
          << "rank " << i << "'s parent " << index(own.up) << " does not know it";
    }
    for (const Rank child : own.down) {
      if (child == kNobody) continue;
      ++links;
      ASSERT_EQ(merged.treeLinks(channel, tree, child).up, Rank{i});
    }
    // Up from any rank one comes to the root.
    Rank at{i};
    int32_t climbed = 0;
    while (merged.treeLinks(channel, tree, at).up != kNobody) {
      at = merged.treeLinks(channel, tree, at).up;
      ASSERT_LE(++climbed, merged.rankCount()) << "a circle above rank " << i;
    }
  }
  EXPECT_EQ(roots, 1);
  EXPECT_EQ(links, merged.rankCount() - 1);
}

void expectValid(const MergedGraph& merged) {
  for (int32_t channel = 0; channel < merged.ringCount(); ++channel) {
    const auto ring = merged.ring(channel);
    ASSERT_EQ(ring.size(), static_cast<size_t>(merged.rankCount()));
    ASSERT_EQ(std::set<Rank>(ring.begin(), ring.end()).size(), ring.size());
    // Each node is entered once.
    int32_t entered = 0;
    for (size_t i = 0; i < ring.size(); ++i)
      entered += merged.nodeOf(ring[i]) != merged.nodeOf(ring[(i + 1) % ring.size()]);
    EXPECT_EQ(entered, merged.nodeCount() == 1 ? 0 : merged.nodeCount());
  }
  for (int32_t channel = 0; channel < merged.treeChannelCount(); ++channel) {
    for (int32_t tree = 0; tree < merged.treesPerChannel(); ++tree)
      expectOneTree(merged, channel, tree);
  }
}

constexpr std::array kTreePatterns = {Pattern::kTree, Pattern::kSplitTree, Pattern::kBalancedTree};

TEST(NodeTree, HasNoNodeWithChildrenInBothTrees) {
  for (int32_t count = 1; count <= 200; ++count) {
    for (int32_t node = 0; node < count; ++node) {
      const auto isInner = [&](int32_t tree) {
        return placeInTree(tree, node, count).children[0] != kNoTreeNode;
      };
      // The roots' one child comes on top where there are few nodes.
      if (placeInTree(0, node, count).parent == kNoTreeNode ||
          placeInTree(1, node, count).parent == kNoTreeNode)
        continue;
      EXPECT_FALSE(isInner(0) && isInner(1)) << node << " of " << count;
    }
  }
}

TEST(NodeTree, IsAsDeepAsTheLogarithm) {
  for (const int32_t count : {2, 3, 17, 64, 1000, 16384}) {
    for (int32_t node = 0; node < count; ++node) {
      for (int32_t tree = 0; tree < kTreesBetweenNodes; ++tree) {
        int32_t depth = 0;
        for (int32_t at = node; placeInTree(tree, at, count).parent != kNoTreeNode;
             at = placeInTree(tree, at, count).parent)
          ASSERT_LE(++depth, std::bit_width(static_cast<uint32_t>(count)));
      }
    }
  }
}

TEST(Merge, MakesClosedRingsAndTreesOfAnyNodes) {
  SeededRng rng(4711);
  for (int round = 0; round < 200; ++round) {
    const ClusterSpec spec{.sizes = randomSizes(rng, 20, 9),
                           .channels = 1 + static_cast<int32_t>(rng.below(3)),
                           .pattern = kTreePatterns[rng.below(3)]};
    Result<MergedGraph> merged = merge(randomParts(spec, rng));
    ASSERT_TRUE(merged.ok()) << merged.status().message();
    ASSERT_GE(merged->ringCount(), spec.channels);
    expectValid(*merged);
    if (HasFatalFailure()) return;
  }
}

TEST(Merge, GivesRingsAndTreesWhoseSchedulesAreProved) {
  SeededRng rng(815);
  for (int round = 0; round < 120; ++round) {
    const ClusterSpec spec{.sizes = randomSizes(rng, 10, 8),
                           .pattern = kTreePatterns[rng.below(3)]};
    Result<MergedGraph> merged = merge(randomParts(spec, rng));
    ASSERT_TRUE(merged.ok());
    const int32_t ranks = merged->rankCount();
    if (ranks > 64) continue;
    for (const Collective collective :
         {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter}) {
      const schedule::Proof proof =
          schedule::prove(schedule::makeSchedule(*schedule::findAlgorithm(collective, "ring"),
                                                 {.rankCount = ranks, .order = merged->ring(0)}),
                          {.inPlace = true});
      ASSERT_TRUE(proof.ok()) << proof.refusal;
    }
    for (const bool inPlace : {false, true}) {
      for (const int32_t slots : {1, 2, 8}) {
        const schedule::Proof proof =
            schedule::prove(treeSchedule(*merged, 0), {.slotCount = slots, .inPlace = inPlace});
        ASSERT_TRUE(proof.ok()) << ranks << " ranks: " << proof.refusal;
      }
    }
  }
}

TEST(Merge, NumbersNodesByTheirFirstRank) {
  Result<MergedGraph> merged =
      merge({{.ranks = {Rank{2}, Rank{3}}}, {.ranks = {Rank{0}, Rank{1}}}});
  ASSERT_TRUE(merged.ok());
  EXPECT_EQ(merged->nodeOf(Rank{0}), 0);
  EXPECT_EQ(merged->nodeOf(Rank{3}), 1);
  EXPECT_EQ(merged->localRank(Rank{3}), 1);
}

TEST(Merge, KeepsRingsOnTheirRails) {
  // Channel 0 comes in on rail 0 and leaves on rail 1, channel 1 the other way.
  std::vector<NodePart> parts;
  for (int32_t node = 0; node < 4; ++node) {
    const Rank a{2 * node}, b{2 * node + 1};
    parts.push_back({.ranks = {a, b},
                     .rings = {{.order = {a, b}, .entryRail = 0, .exitRail = 1},
                               {.order = {b, a}, .entryRail = 1, .exitRail = 0}}});
  }
  Result<MergedGraph> merged = merge(std::move(parts));
  ASSERT_TRUE(merged.ok());
  const auto ring = merged->ring(0);
  // The second node is entered on rail 1, so by its channel 1.
  EXPECT_EQ(
      std::vector<Rank>(ring.begin(), ring.end()),
      (std::vector<Rank>{Rank{0}, Rank{1}, Rank{3}, Rank{2}, Rank{4}, Rank{5}, Rank{7}, Rank{6}}));
}

TEST(Merge, UsesHeadsOnlyWhereTheyPay) {
  const auto parts = [] {
    return std::vector<NodePart>{{.ranks = {Rank{0}, Rank{1}}, .heads = {Rank{1}}},
                                 {.ranks = {Rank{2}, Rank{3}}, .heads = {Rank{2}}}};
  };
  const auto heads = [&](const MergeOptions& options) { return merge(parts(), options)->heads(); };
  EXPECT_EQ(heads({}), (std::vector<std::vector<Rank>>{{Rank{1}, Rank{2}}}));
  EXPECT_TRUE(heads({.leastNodesForHeads = 3}).empty());
  EXPECT_TRUE(heads({.mostRanksANodeForHeads = 1}).empty());
}

std::string refusalOf(std::vector<NodePart> parts) {
  Result<MergedGraph> merged = merge(std::move(parts));
  return merged.ok() ? "" : std::string(merged.status().message());
}

TEST(Merge, RefusesPartsThatDoNotFit) {
  EXPECT_NE(refusalOf({}), "");
  EXPECT_NE(refusalOf({{.ranks = {Rank{0}}}, {.ranks = {Rank{0}}}}).find("rank 0 is on node 0"),
            std::string::npos);
  EXPECT_NE(refusalOf({{.ranks = {Rank{0}, Rank{2}}}}).find("rank 2, ranks are 0 to 1"),
            std::string::npos);
  EXPECT_NE(refusalOf({{.ranks = {Rank{0}, Rank{1}}, .rings = {{.order = {Rank{0}, Rank{0}}}}}})
                .find("visits rank 0 twice"),
            std::string::npos);
  EXPECT_NE(refusalOf({{.ranks = {Rank{0}, Rank{1}}, .rings = {{.order = {Rank{1}}}}}})
                .find("leaves out rank 0"),
            std::string::npos);
  EXPECT_NE(refusalOf({{.ranks = {Rank{0}}, .chains = {{Rank{5}}}}}).find("rank 5 of another node"),
            std::string::npos);
}

TEST(Merge, TakesSixteenThousandNodes) {
  constexpr int32_t kNodes = 16384, kLocal = 8, kChannels = 8;
  std::vector<NodePart> parts(kNodes);
  for (int32_t node = 0; node < kNodes; ++node) {
    NodePart& part = parts[static_cast<size_t>(node)];
    for (int32_t i = 0; i < kLocal; ++i) part.ranks.push_back(Rank{node * kLocal + i});
    for (int32_t channel = 0; channel < kChannels; ++channel) {
      part.rings.push_back({.order = part.ranks});
      part.chains.push_back(part.ranks);
    }
  }
  Result<MergedGraph> merged = merge(std::move(parts));
  ASSERT_TRUE(merged.ok());
  EXPECT_EQ(merged->rankCount(), kNodes * kLocal);
  EXPECT_EQ(merged->ringCount(), kChannels);
  // Every rank finds its place in the trees without looking at the others.
  int32_t roots = 0;
  for (int32_t i = 0; i < merged->rankCount(); ++i)
    roots += merged->treeLinks(kChannels - 1, 1, Rank{i}).up == kNobody;
  EXPECT_EQ(roots, 1);
}

}  // namespace
}  // namespace tutti::graph
