// As many channels of one speed as fit through a node: depth first, widest routes first, within a
// number of steps, so that the same machine gives the same channels everywhere. Pure, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/fabric.h"
#include "graph/graph.h"

namespace tutti::graph {

struct PackingTask {
  Pattern pattern = Pattern::kRing;  // or one of the trees
  double gbPerSecond = 0;            // of one channel
  Fabric::Kinds limits;              // farthest routes allowed
  bool crossNic = false;             // a ring may leave by another port than it came in by
  bool sameOrder = false;            // all channels take the GPUs in one order
  int32_t mostChannels = 1;
};

// Ends are the fabric's.
struct PackedChannel {
  std::vector<int32_t> gpus;
  int32_t entry = -1;  // the port; -1 without ports
  int32_t exit = -1;
};

// The most that channels of these shapes can carry, all alike: until the first link is full.
double widestSpeed(const Fabric& fabric, const PackingTask& task,
                   const std::vector<PackedChannel>& channels);

// A ring loads each route with the channel's speed. A chain's link carries half of it in each
// direction: up and down, half of an all-reduce's bytes each. The tree between the nodes takes the
// channel's speed from the ports both ways, at the first GPU or shared with the second (Pattern).
class Packer {
 public:
  // Gives up after `patience` steps without another channel; takes each step from `budget`.
  Packer(const Fabric& fabric, const PackingTask& task, int64_t patience, int64_t& budget);
  // The most channels found; fewest hops among equal numbers where the budget lets it look.
  std::vector<PackedChannel> run();

 private:
  struct Choice {
    int32_t end;
    int32_t port;
    size_t farness;
    double width;
    double room;  // of the last link: what the other end can still take
  };

  bool isDone() const;
  void addChannel();
  void addSameAgain();
  void startAt(int32_t gpu, int32_t port);
  void extend();
  void finish();
  void keep(int32_t exit);
  std::vector<Choice> starts() const;
  std::vector<Choice> nexts() const;
  std::vector<int32_t> exits() const;
  // Whether a choice before this one stands for it too: the other GPU is as good in all respects.
  bool isLikeOneBefore(std::span<const Choice> choices, size_t place) const;
  bool canEnd(int32_t gpu, int32_t port) const;
  bool isEndLeft() const;

  // Takes from each hop, all or nothing.
  bool take(const Route& route, double gbPerSecond);
  void giveBack(const Route& route, double gbPerSecond);
  bool takeBoth(int32_t one, int32_t other, double gbPerSecond);
  void giveBackBoth(int32_t one, int32_t other, double gbPerSecond);
  bool takeLink(int32_t from, int32_t to);
  void giveBackLink(int32_t from, int32_t to);
  double width(const Route& route) const;
  double room(const Route& route) const;

  const Fabric& fabric_;
  const PackingTask& task_;
  int64_t patience_;
  int64_t stepsLeft_;
  int64_t& budget_;
  bool hasPorts_;
  std::vector<double> left_;  // of each link
  std::vector<bool> isVisited_;
  PackedChannel current_;
  std::vector<PackedChannel> channels_;
  std::vector<PackedChannel> best_;
};

}  // namespace tutti::graph
