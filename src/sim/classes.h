// Which lanes, edges and links of a call are alike, so that one of each is simulated for all: an
// equitable partition by colour refinement. Lanes of a class have programs of one form, edges of a
// class go from one class of lanes to one other by the same positions and over the same classes of
// links, and every link of a class is crossed by as many edges of each class. Whatever fair sharing
// and dependencies do to one member at a time, they do to all. Pure.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/status.h"
#include "sim/traffic.h"

namespace tutti::sim {

struct LaneClass {
  int32_t channel = 0;  // of a member
  Rank rank{0};
  int64_t count = 0;
  double speed = 1;
  std::vector<int32_t> outgoing;  // edge classes by position in the program
  std::vector<int32_t> incoming;
};

struct EdgeClass {
  int32_t from = 0;  // lane classes
  int32_t to = 0;
  int64_t count = 0;
  bool isBetweenNodes = false;
  double latencyUs = 0;        // of the network and its ports
  double mostGbPerSecond = 0;  // by its lane inside a node, by its narrowest link otherwise
  std::vector<int32_t> links;  // link classes
};

// Only links that can be short of bandwidth.
struct LinkClass {
  int32_t link = 0;  // a member
  int64_t count = 0;
  double gbPerSecond = 0;
  std::vector<std::pair<int32_t, int32_t>> edges;  // class, how many of it cross one link
};

struct Classes {
  std::vector<LaneClass> lanes;
  std::vector<EdgeClass> edges;
  std::vector<LinkClass> links;
  int64_t laneCount = 0;
  int32_t rounds = 0;
  bool isExact = true;  // false: given up after too many rounds; classes are nearly alike
  std::vector<int32_t> laneClassOf;  // [channel][rank]
};

struct ClassOptions {
  double laneGbPerSecond = 0;  // on the wire, that one lane moves inside a node
  bool onlyEnds = false;       // links in the middle of a route are never short: LogGP
  int32_t mostRounds = 1 << 14;
};

Result<Classes> classify(const Traffic& traffic, const ClassOptions& options);

}  // namespace tutti::sim
