// Two binary trees over the ranks, each for one half of the vector, with the root on top of both.
// Every other rank has children in one of them at most, so that traffic is even and both halves
// move at the speed of a link.
//
// In the tree where it is a leaf, a rank waits for nobody on the way up, and nobody waits for it on
// the way down: so this comes first up and last down, and neither tree holds up the other.
#include <algorithm>
#include <bit>
#include <optional>
#include <vector>

#include "schedule/algorithms.h"
#include "schedule/building.h"

namespace tutti::schedule {
namespace {

// One rank's place in one of the trees. Positions go from 0, the root, to n - 1; odd ones are
// leaves. Below an even position lie those between it and the next ones of a higher power of two:
// a subtree's positions are consecutive, its top in between. The second tree has the other ranks at
// its odd positions.
class Tree {
 public:
  Tree(const ScheduleOptions& options, int32_t chunk, Rank rank)
      : size_(options.rankCount), root_(options.root), chunk_(chunk) {
    const int32_t distance = (index(rank) - index(root_) + size_) % size_;
    position_ = distance == 0 || chunk == 0 ? distance : toSecond(distance);
  }

  int32_t chunk() const { return chunk_; }
  bool isRoot() const { return position_ == 0; }
  bool isLeaf() const { return !left() && !right(); }

  Rank parent() const {
    const int32_t without = position_ - lowestBit();
    const int32_t nearest = without | (2 * lowestBit());
    return rankAt(nearest < size_ ? nearest : without);
  }
  // The children, whose subtrees lie before and after this position.
  std::optional<Rank> left() const {
    if (lowestBit() < 2) return std::nullopt;
    return rankAt(position_ - lowestBit() / 2);
  }
  std::optional<Rank> right() const {
    const uint32_t reach =
        isRoot() ? std::bit_ceil(static_cast<uint32_t>(size_)) : static_cast<uint32_t>(lowestBit());
    for (auto step = static_cast<int32_t>(reach / 2); step > 0; step /= 2) {
      if (position_ + step < size_) return rankAt(position_ + step);
    }
    return std::nullopt;
  }

 private:
  int32_t lowestBit() const { return position_ & -position_; }

  // An odd number of ranks is mirrored, an even one shifted: both make odd of even.
  int32_t toSecond(int32_t distance) const {
    return size_ % 2 == 1 ? size_ - distance : distance % (size_ - 1) + 1;
  }
  int32_t fromSecond(int32_t position) const {
    if (size_ % 2 == 1) return size_ - position;
    return position == 1 ? size_ - 1 : position - 1;
  }
  Rank rankAt(int32_t position) const {
    const bool isFirst = position == 0 || chunk_ == 0;
    return rankAfter(root_, isFirst ? position : fromSecond(position), size_);
  }

  int32_t size_;
  Rank root_;
  int32_t chunk_;
  int32_t position_ = 0;
};

// The rank's places, the one where it is a leaf first. Two ranks are one tree.
std::vector<Tree> treesFromBelow(const ScheduleOptions& options, Rank rank) {
  std::vector<Tree> trees;
  for (int32_t chunk = 0; chunk < (options.rankCount == 2 ? 1 : 2); ++chunk) {
    trees.emplace_back(options, chunk, rank);
  }
  std::stable_partition(trees.begin(), trees.end(), [](const Tree& tree) { return tree.isLeaf(); });
  return trees;
}
// The one where it is a leaf last.
std::vector<Tree> treesFromAbove(const ScheduleOptions& options, Rank rank) {
  std::vector<Tree> trees = treesFromBelow(options, rank);
  std::stable_partition(trees.begin(), trees.end(),
                        [](const Tree& tree) { return !tree.isLeaf(); });
  return trees;
}

std::vector<Operand> toChildren(ProgramBuilder& program, const Tree& tree) {
  std::vector<Operand> destinations{out(tree.chunk())};
  if (tree.left()) destinations.push_back(program.to(*tree.left()));
  if (tree.right()) destinations.push_back(program.to(*tree.right()));
  return destinations;
}

// Folds in the order of positions. The root finishes the chunk, and sends it down again when
// `returns`.
void addUp(ProgramBuilder& program, const Tree& tree, bool returns) {
  std::vector<Operand> sources;
  if (tree.left()) sources.push_back(program.from(*tree.left()));
  sources.push_back(in(tree.chunk()));
  if (tree.right()) sources.push_back(program.from(*tree.right()));
  std::vector<Operand> destinations;
  if (!tree.isRoot()) {
    destinations = {program.to(tree.parent())};
  } else if (returns) {
    destinations = toChildren(program, tree);
  } else {
    destinations = {out(tree.chunk())};
  }
  program.add({.chunk = tree.chunk(),
               .sources = std::move(sources),
               .destinations = std::move(destinations),
               .post = tree.isRoot()});
}

void addDown(ProgramBuilder& program, const Tree& tree) {
  program.add({.chunk = tree.chunk(),
               .sources = {tree.isRoot() ? in(tree.chunk()) : program.from(tree.parent())},
               .destinations = toChildren(program, tree)});
}

}  // namespace

Program treeAllReduce(const ScheduleOptions& options, Rank rank) {
  if (options.rankCount == 1) return copyAlone(true);
  ProgramBuilder program;
  for (const Tree& tree : treesFromBelow(options, rank)) addUp(program, tree, true);
  for (const Tree& tree : treesFromAbove(options, rank)) {
    if (!tree.isRoot()) addDown(program, tree);
  }
  return std::move(program).take();
}

Program treeBroadcast(const ScheduleOptions& options, Rank rank) {
  if (options.rankCount == 1) return copyAlone(false);
  ProgramBuilder program;
  for (const Tree& tree : treesFromAbove(options, rank)) addDown(program, tree);
  return std::move(program).take();
}

Program treeReduce(const ScheduleOptions& options, Rank rank) {
  if (options.rankCount == 1) return copyAlone(true);
  ProgramBuilder program;
  for (const Tree& tree : treesFromBelow(options, rank)) addUp(program, tree, false);
  return std::move(program).take();
}

}  // namespace tutti::schedule
