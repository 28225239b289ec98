// The double binary tree between nodes: two trees over nodes 0 to n - 1 in which no node has
// children in both, so that together they load every node alike (Sanders, Speck, Traeff 2009).
#pragma once

#include <array>
#include <cstdint>

namespace tutti::graph {

inline constexpr int32_t kNoTreeNode = -1;
inline constexpr int32_t kTreesBetweenNodes = 2;

struct NodePlace {
  int32_t parent = kNoTreeNode;  // the root has none
  std::array<int32_t, 2> children{kNoTreeNode, kNoTreeNode};
  // Which of its parent's children a node is, so that both ends fasten the link at one place.
  int32_t childIndex = 0;
};

// REQUIRES: 0 <= tree < 2, 0 <= node < nodeCount.
NodePlace placeInTree(int32_t tree, int32_t node, int32_t nodeCount);

}  // namespace tutti::graph
