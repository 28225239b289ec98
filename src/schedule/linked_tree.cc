#include "schedule/linked_tree.h"

#include <utility>
#include <vector>

#include "schedule/building.h"

namespace tutti::schedule {
namespace {

void addUp(ProgramBuilder& program, const TreeLinks& tree, int32_t chunk) {
  std::vector<Operand> sources;
  for (const Rank child : tree.down) {
    if (child != kNobody) sources.push_back(program.from(child));
  }
  sources.push_back(in(chunk));
  const bool isRoot = tree.up == kNobody;
  program.add({.chunk = chunk,
               .sources = std::move(sources),
               .destinations = {isRoot ? out(chunk) : program.to(tree.up)},
               .post = isRoot});
}

// A root does not send down in the step that finishes its chunk: where another tree runs over the
// same link, its messages would overtake those of the chunks before.
void addDown(ProgramBuilder& program, const TreeLinks& tree, int32_t chunk) {
  const bool isRoot = tree.up == kNobody;
  std::vector<Operand> destinations;
  if (!isRoot) destinations.push_back(out(chunk));
  for (const Rank child : tree.down) {
    if (child != kNobody) destinations.push_back(program.to(child));
  }
  program.add({.chunk = chunk,
               .sources = {isRoot ? out(chunk) : program.from(tree.up)},
               .destinations = std::move(destinations)});
}

}  // namespace

Program linkedTreeAllReduce(std::span<const TreeLinks> trees, int32_t rankCount) {
  if (rankCount == 1) return copyAlone(true);
  ProgramBuilder program;
  for (size_t i = 0; i < trees.size(); ++i) addUp(program, trees[i], static_cast<int32_t>(i));
  for (size_t i = 0; i < trees.size(); ++i) addDown(program, trees[i], static_cast<int32_t>(i));
  return std::move(program).take();
}

}  // namespace tutti::schedule
