// A described cluster as plain data: kinds of nodes (a topology each), nodes, the network between
// them, where ranks sit, and every link of it by number. What simulation, flows and virtual
// communicators ask. Built once, read by any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "sim/network.h"
#include "topology/paths.h"
#include "topology/topology.h"

namespace tutti::sim {

// All nodes of a kind are alike.
struct NodeKind {
  std::string name;             // "8 × sm90", or the topology file's name
  topology::Topology topology;  // of one host; its GPUs have ranks 0, 1, ... by device
  topology::Paths paths;
  std::vector<topology::NodeId> gpus;   // by device number
  std::vector<topology::NodeId> ports;  // by device number
  std::vector<topology::NodeId> cpus;
  std::vector<std::vector<topology::NodeId>> nearestPorts;  // of each GPU
  int32_t cpuRankCount = 0;      // ranks on processors; none where there are GPUs
  double memoryGbPerSecond = 0;  // between the CPU ranks of a node, all together
  int32_t rankCount() const {
    return gpus.empty() ? cpuRankCount : static_cast<int32_t>(gpus.size());
  }
  // Finds all above out of the topology, whose GPUs get ranks 0, 1, ... by device.
  void describe();
  // The topology's, and one for what CPU ranks pass to each other.
  int32_t linkCount() const {
    return static_cast<int32_t>(topology.links.size()) + (cpuRankCount > 0 ? 1 : 0);
  }
};

// `gpuCount`: only the first GPUs; 0: all.
Result<NodeKind> makeNodeKind(const topology::Description& description, std::string name,
                              int32_t gpuCount = 0);

enum class Placement : uint8_t { kBlock, kCyclic };  // node by node; a rank a node in turn

struct NodeGroup {
  int32_t kind = 0;
  int32_t count = 1;
};

// Where a flow leaves one node and enters another; topology::kNoNode: by the nearest port, of equal
// ones by the flow's number.
struct FlowEnds {
  Rank from{0};
  Rank to{0};
  uint64_t flow = 0;  // tells the flows between two ranks apart: the channel
  topology::NodeId exit = topology::kNoNode;
  topology::NodeId entry = topology::kNoNode;
};

struct FlowRoute {
  std::vector<int32_t> links;                          // in order, of the cluster
  topology::PathKind kind = topology::PathKind::kDis;  // NET between nodes
  int32_t switchCount = 0;                             // of the network, passed on the way
  double portLatencyUs = 0;                            // what the ports say of themselves
};

class Cluster {
 public:
  struct Parts {
    std::string name;
    std::vector<NodeKind> kinds;
    std::vector<NodeGroup> groups;
    NetworkDescription network;
    Placement placement = Placement::kBlock;
  };
  // kInvalidArgument: no rank at all, or several nodes and one without a port.
  static Result<Cluster> make(Parts parts);

  // The same cluster as a communicator of these ranks sees it: its ranks 0, 1, ... are they, in
  // this order; nodes without any are left out; links keep their names and speeds.
  // kInvalidArgument: no rank, one twice, or one that is not there.
  Result<Cluster> part(std::span<const Rank> ranks) const;

  const std::string& name() const { return name_; }
  int32_t rankCount() const { return static_cast<int32_t>(placeOf_.size()); }
  int32_t nodeCount() const { return static_cast<int32_t>(nodes_.size()); }
  int32_t mostRanksPerNode() const;
  bool hasGpus() const { return !kinds_.front().gpus.empty(); }
  const std::vector<NodeKind>& kinds() const { return kinds_; }
  const Network& network() const { return network_; }

  int32_t nodeOf(Rank rank) const { return place(rank).node; }
  int32_t localOf(Rank rank) const { return place(rank).local; }
  int32_t kindOf(int32_t node) const { return nodes_[static_cast<size_t>(node)].kind; }
  const NodeKind& kindAt(int32_t node) const { return kinds_[static_cast<size_t>(kindOf(node))]; }
  const std::vector<Rank>& ranksOf(int32_t node) const {
    return nodes_[static_cast<size_t>(node)].ranks;
  }

  // The links: those inside the nodes, node by node, then the network's.
  int32_t linkCount() const { return networkBase_ + network_.linkCount(); }
  double gbPerSecond(int32_t link) const;
  std::string nameOfLink(int32_t link) const;  // "node 3: GPU 0 -> NVSwitch"
  // Of each link its number in `whole`, which this is a part of; -1: it is not there.
  std::vector<int32_t> linksIn(const Cluster& whole) const;
  bool isNetworkLink(int32_t link) const { return link >= networkBase_; }
  // What if: the link carries this share of what it should, 0: it has failed. Errors name links
  // that come near to the name.
  Status scaleLink(const std::string& name, double factor);
  // The rank works at this share of its speed.
  Status slowRank(int32_t rank, double factor);
  double speedOf(Rank rank) const;

  // An error when failed links leave no way.
  Result<FlowRoute> route(const FlowEnds& ends) const;

 private:
  struct NodePlace {
    int32_t number = 0;  // as names of links have it
    int32_t kind = 0;
    int32_t firstLink = 0;
    int32_t firstPort = 0;
    std::vector<Rank> ranks;  // by local number
  };
  struct RankPlace {
    int32_t node = 0;
    int32_t local = 0;
  };
  struct PartNode;
  const RankPlace& place(Rank rank) const { return placeOf_[static_cast<size_t>(index(rank))]; }
  void placeRanks(Placement placement);
  void addPart(const NodePlace& whole, const PartNode& from, int32_t kind);
  Status scaleAs(const Cluster& whole, std::span<const Rank> ranks);
  void addPath(int32_t node, const topology::Path& path, FlowRoute& route) const;
  Status routeInside(const FlowEnds& ends, FlowRoute& route) const;
  Result<topology::NodeId> portFor(Rank rank, uint64_t flow, bool isOut) const;
  int32_t portNumber(int32_t node, topology::NodeId port) const;
  topology::NodeId endOf(Rank rank) const;

  std::string name_;
  std::vector<NodeKind> kinds_;
  std::vector<NodePlace> nodes_;
  std::vector<RankPlace> placeOf_;
  Network network_;
  int32_t networkBase_ = 0;
  std::vector<std::pair<int32_t, double>> scaled_;  // links inside nodes, by number, sorted
  std::vector<std::pair<int32_t, double>> slowed_;  // ranks, by number, sorted
};

}  // namespace tutti::sim
