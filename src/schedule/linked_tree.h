// All-reduce over trees that are given rank by rank, as the graphs of a cluster give them: chains
// inside the nodes, binary trees between. (tree.cc makes its own trees from positions.) Pure, any
// thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "schedule/schedule.h"

namespace tutti::schedule {

inline constexpr Rank kNobody{-1};

// One rank's place in one tree.
struct TreeLinks {
  // Both children in the tree between the nodes, and the next GPU of the node's chain.
  static constexpr size_t kMostChildren = 3;
  Rank up = kNobody;                                                // the parent; the root has none
  std::array<Rank, kMostChildren> down{kNobody, kNobody, kNobody};  // filled from the front
  bool operator==(const TreeLinks&) const = default;
};

// A chunk a tree: up to its root, folding the children's partials in their order before the rank's
// own, and down again. All trees span all ranks; each step names one chunk, chunks in order, so no
// cycle of waits can arise, whatever the trees.
Program linkedTreeAllReduce(std::span<const TreeLinks> trees, int32_t rankCount);

}  // namespace tutti::schedule
