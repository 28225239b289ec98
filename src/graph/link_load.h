// What a node's channels take of each link, counted from their routes. Pure, any thread.
#pragma once

#include <map>

#include "graph/graph.h"
#include "topology/paths.h"
#include "topology/topology.h"

namespace tutti::graph {

class LinkLoad {
 public:
  LinkLoad(const topology::Topology& topology, const topology::Paths& paths)
      : topology_(topology), paths_(paths) {}

  // REQUIRES: neighbours are of one host. Heads of kSwitch and kDirect have none and add nothing.
  void add(const NodeGraph& graph, const Channel& channel);

  // The link of which most of what it carries is taken; nothing taken: no link.
  struct Busiest {
    topology::LinkId link{};
    double gbPerSecond = 0;  // taken
    double share = 0;        // of what it carries
  };
  Busiest busiest() const;

 private:
  void addRoute(topology::NodeId from, topology::NodeId to, double gbPerSecond);
  void addBoth(topology::NodeId one, topology::NodeId other, double gbPerSecond);

  const topology::Topology& topology_;
  const topology::Paths& paths_;
  std::map<topology::LinkId, double> gbPerSecond_;
};

}  // namespace tutti::graph
