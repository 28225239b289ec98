// Every chunk goes down a binomial tree from its owner, or up one to it: the rank some distance
// after the owner hangs below the one at that distance without its lowest set bit. All chunks'
// trees are one, turned round the circle, so each rank stands at every distance once, and a step a
// distance is all: what arrives goes on in the step that reads it. A rank talks only to those a
// power of two away.
//
// Distances are worked off in their order, which is depth first: a link's next message is sent when
// the one before has been read, so that a slot a link will do.
#include <utility>
#include <vector>

#include "schedule/algorithms.h"
#include "schedule/building.h"

namespace tutti::schedule {
namespace {

// A rank at some distance after the owner of a chunk.
class Node {
 public:
  Node(int32_t rankCount, Rank rank, int32_t distance)
      : rankCount_(rankCount), rank_(rank), distance_(distance) {}

  int32_t chunk() const { return index(rankBefore(rank_, distance_, rankCount_)); }
  bool isOwner() const { return distance_ == 0; }
  Rank parent() const { return rankBefore(rank_, lowestBit(), rankCount_); }
  // Nearest first.
  std::vector<Rank> children() const {
    std::vector<Rank> ranks;
    for (int32_t step = 1; step < lowestBit() && distance_ + step < rankCount_; step *= 2) {
      ranks.push_back(rankAfter(rank_, step, rankCount_));
    }
    return ranks;
  }

 private:
  // The owner's is above all.
  int32_t lowestBit() const { return isOwner() ? rankCount_ : distance_ & -distance_; }

  int32_t rankCount_;
  Rank rank_;
  int32_t distance_;
};

std::vector<Operand> toOutputAndChildren(ProgramBuilder& program, const Node& node) {
  std::vector<Operand> destinations{out(node.chunk())};
  for (const Rank child : node.children()) destinations.push_back(program.to(child));
  return destinations;
}

// Own contribution first, then the children's in the order of their distances.
std::vector<Operand> contributions(ProgramBuilder& program, const Node& node) {
  std::vector<Operand> sources{in(node.chunk())};
  for (const Rank child : node.children()) sources.push_back(program.from(child));
  return sources;
}

// All chunks but the rank's own, the deepest first.
void addReducePhase(ProgramBuilder& program, int32_t rankCount, Rank rank) {
  for (int32_t distance = rankCount - 1; distance > 0; --distance) {
    const Node node(rankCount, rank, distance);
    program.add({.chunk = node.chunk(),
                 .sources = contributions(program, node),
                 .destinations = {program.to(node.parent())}});
  }
}

void addGatherPhase(ProgramBuilder& program, int32_t rankCount, Rank rank) {
  for (int32_t distance = 1; distance < rankCount; ++distance) {
    const Node node(rankCount, rank, distance);
    program.add({.chunk = node.chunk(),
                 .sources = {program.from(node.parent())},
                 .destinations = toOutputAndChildren(program, node)});
  }
}

}  // namespace

Program patAllReduce(const ScheduleOptions& options, Rank rank) {
  const int32_t n = options.rankCount;
  const Node own(n, rank, 0);
  ProgramBuilder program;
  addReducePhase(program, n, rank);
  program.add({.chunk = own.chunk(),
               .sources = contributions(program, own),
               .destinations = toOutputAndChildren(program, own),
               .post = true});
  addGatherPhase(program, n, rank);
  return std::move(program).take();
}

Program patReduceScatter(const ScheduleOptions& options, Rank rank) {
  const Node own(options.rankCount, rank, 0);
  ProgramBuilder program;
  addReducePhase(program, options.rankCount, rank);
  program.add({.chunk = own.chunk(),
               .sources = contributions(program, own),
               .destinations = {out(own.chunk())},
               .post = true});
  return std::move(program).take();
}

Program patAllGather(const ScheduleOptions& options, Rank rank) {
  const Node own(options.rankCount, rank, 0);
  ProgramBuilder program;
  program.add({.chunk = own.chunk(),
               .sources = {in(own.chunk())},
               .destinations = toOutputAndChildren(program, own)});
  addGatherPhase(program, options.rankCount, rank);
  return std::move(program).take();
}

}  // namespace tutti::schedule
