// In the first tree a node's lowest set bit is its height: odd nodes are leaves, node 0 is the
// root, and below a node of height h lie the nodes within 2^h on both sides, as far as they exist.
// The second tree is the first, mirrored where the number of nodes is even and shifted by one where
// it is odd; both turn the leaves into inner nodes.
#include "graph/node_tree.h"

#include <bit>
#include <utility>

namespace tutti::graph {
namespace {

int32_t lowestBit(int32_t node) { return node & -node; }

int32_t parentInFirst(int32_t node, int32_t nodeCount) {
  if (node == 0) return kNoTreeNode;
  const int32_t without = node - lowestBit(node);
  const int32_t nearest = without | (lowestBit(node) << 1);
  return nearest < nodeCount ? nearest : without;
}

std::array<int32_t, 2> childrenInFirst(int32_t node, int32_t nodeCount) {
  std::array<int32_t, 2> children{kNoTreeNode, kNoTreeNode};
  if (node == 0) {
    if (nodeCount > 1)
      children[0] = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(nodeCount - 1)));
    return children;
  }
  const int32_t half = lowestBit(node) / 2;
  if (half == 0) return children;
  children[0] = node - half;
  for (int32_t step = half; step > 0; step /= 2) {
    if (node + step >= nodeCount) continue;
    children[1] = node + step;
    break;
  }
  return children;
}

NodePlace placeInFirst(int32_t node, int32_t nodeCount) {
  NodePlace place{.parent = parentInFirst(node, nodeCount),
                  .children = childrenInFirst(node, nodeCount)};
  if (place.parent != kNoTreeNode)
    place.childIndex = childrenInFirst(place.parent, nodeCount)[0] == node ? 0 : 1;
  return place;
}

}  // namespace

NodePlace placeInTree(int32_t tree, int32_t node, int32_t nodeCount) {
  if (tree == 0) return placeInFirst(node, nodeCount);
  const bool isMirrored = nodeCount % 2 == 0;
  const auto moved = [&](int32_t each) {
    return isMirrored ? nodeCount - 1 - each : (each + nodeCount - 1) % nodeCount;
  };
  const auto back = [&](int32_t each) {
    if (each == kNoTreeNode) return each;
    return isMirrored ? nodeCount - 1 - each : (each + 1) % nodeCount;
  };
  NodePlace place = placeInFirst(moved(node), nodeCount);
  place.parent = back(place.parent);
  for (int32_t& child : place.children) child = back(child);
  return place;
}

}  // namespace tutti::graph
