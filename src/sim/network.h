// The network between the nodes of a described cluster: its switches and links by shape, and which
// links a flow takes. Links are numbers; names are made when asked for, so that 100,000 ports cost
// little. Pure, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tutti::sim {

enum class Shape : uint8_t {
  kSwitch,     // one switch that all ports share, never the bottleneck
  kRails,      // port k of each node goes to a leaf of rail k; spines join all leaves
  kLeafSpine,  // a node's ports go to one leaf; spines join all leaves
  kFatTree,    // leaves and aggregation switches in pods, cores between pods
  kDragonfly,  // groups of routers, all to all within a group and between groups; minimal routes
};
enum class Routing : uint8_t {
  kHash,      // each flow takes one of the equal ways, by a hash (ECMP): flows may collide
  kBalanced,  // by the receiving port, in turn: what adaptive routing comes near to
};
std::string_view nameOf(Shape shape);
std::string_view nameOf(Routing routing);

struct NetworkDescription {
  Shape shape = Shape::kSwitch;
  Routing routing = Routing::kHash;
  int32_t railCount = 0;            // kRails; 0: as many as a node has ports
  double portGbPerSecond = 0;       // of the link at a port; 0: what the port has
  double switchLatencyUs = 0.35;    // of each switch on the way, cable included
  int32_t nodesPerLeaf = 32;        // with a port at one leaf or router
  int32_t spineCount = 0;           // or aggregation switches of a pod; 0: a link a port, as below
  double oversubscription = 1;      // of a leaf: what its ports carry over what its uplinks carry
  int32_t leavesPerPod = 8;         // kFatTree; kDragonfly: routers of a group
  double coreOversubscription = 1;  // kFatTree: the same of an aggregation switch
  double localGbPerSecond = 0;      // kDragonfly, between routers of a group; 0: what a
                                    // router's ports carry
  double globalGbPerSecond = 0;     // kDragonfly, between two groups; 0: the same
  uint64_t seed = 0;                // of the hash
  bool operator==(const NetworkDescription&) const = default;
};

struct NetworkPort {
  int32_t node = 0;
  int32_t rail = 0;
  double gbPerSecond = 0;
};

class Network {
 public:
  Network() = default;
  Network(const NetworkDescription& description, std::vector<NetworkPort> ports);

  int32_t linkCount() const { return static_cast<int32_t>(capacities_.size()); }
  double gbPerSecond(int32_t link) const { return capacities_[static_cast<size_t>(link)]; }
  // 0: failed; flows avoid it where there is another way.
  void setGbPerSecond(int32_t link, double value) {
    capacities_[static_cast<size_t>(link)] = value;
  }
  std::string nameOf(int32_t link) const;  // "leaf 3 -> spine 1"
  const NetworkDescription& description() const { return description_; }

  // kLeafSpine and kFatTree, whose leaves have equal ports: what each tier has. `coresPerSpine` is
  // 0 of two tiers.
  struct Tiers {
    int32_t leafCount = 0;
    int32_t spinesPerPod = 0;
    int32_t podCount = 1;
    int32_t coresPerSpine = 0;
    double leafUpGbPerSecond = 0;   // of one link
    double spineUpGbPerSecond = 0;  // of one link
  };
  Tiers tiers() const;

  // Appends the links from one port to another. `flow` tells flows apart for the hash. An error
  // when failed links leave no way.
  struct Ends {
    int32_t from = 0;
    int32_t to = 0;
    uint64_t flow = 0;
  };
  Status route(const Ends& ends, std::vector<int32_t>& links) const;
  // The first link from a port and the last to one.
  int32_t upLink(int32_t port) const { return port; }
  int32_t downLink(int32_t port) const { return portCount() + port; }

 private:
  int32_t portCount() const { return static_cast<int32_t>(ports_.size()); }
  int32_t leafOf(int32_t port) const;
  void addUplinks();
  void addPods();
  void addDragonfly();
  // A fixed and a varying number of equal ways; -1 when all have failed.
  template <typename IsOpen>
  int32_t pick(const Ends& ends, int32_t wayCount, IsOpen isOpen) const;
  Status routeOverSpines(const Ends& ends, std::vector<int32_t>& links) const;
  Status routeOverPods(const Ends& ends, std::vector<int32_t>& links) const;
  Status routeOverGroups(const Ends& ends, std::vector<int32_t>& links) const;
  bool isOpen(int32_t link) const { return capacities_[static_cast<size_t>(link)] > 0; }
  Status noWay(const Ends& ends) const;

  NetworkDescription description_;
  std::vector<NetworkPort> ports_;
  std::vector<double> capacities_;  // ports up, ports down, then by shape
  int32_t leafCount_ = 0;           // or routers
  int32_t leavesPerRail_ = 0;
  int32_t spineCount_ = 0;   // or aggregation switches of a pod
  int32_t corePerAgg_ = 0;   // kFatTree
  int32_t groupCount_ = 0;   // pods or groups
  int32_t firstUp_ = 0;      // leaf -> spine, [leaf][spine]; router -> router, [group][from][to]
  int32_t firstDown_ = 0;    // spine -> leaf, the same order
  int32_t firstCoreUp_ = 0;  // aggregation -> core, [pod][agg][core]; group -> group, [from][to]
  int32_t firstCoreDown_ = 0;
};

}  // namespace tutti::sim
