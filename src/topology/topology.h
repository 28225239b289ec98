// A machine as a graph: nodes (processors, GPUs, switches, NICs, network ports) and the links
// between them, with what each can carry. Plain values, made by buildTopology() from a description
// (description.h), read by paths, search, printer and simulator. Nothing here looks at the machine.
//
// It may hold several hosts: those of one NVLink domain, or the nodes of a described cluster. Hosts
// are connected only through their network ports (a path of kind NET).
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "topology/description.h"

namespace tutti::topology {

enum class NodeId : int32_t {};  // index into Topology::nodes
enum class LinkId : int32_t {};  // index into Topology::links
inline constexpr NodeId kNoNode{-1};
inline constexpr LinkId kNoLink{-1};
constexpr size_t index(NodeId id) { return static_cast<size_t>(id); }
constexpr size_t index(LinkId id) { return static_cast<size_t>(id); }

enum class NodeKind : uint8_t {
  kCpu,       // a NUMA node: its cores, its memory and its PCI host bridges
  kPci,       // a PCI switch or bridge
  kGpu,       //
  kNvSwitch,  // all NVSwitches of a host as one: each GPU reaches each other at its full width
  kNic,       // a network device, with one or more ports
  kNet,       // a port: where the network begins; links beyond it belong to nobody here
};

enum class LinkKind : uint8_t {
  kNvLink,  // NVLink or xGMI, between GPUs, to an NVSwitch or to a POWER9 processor
  kC2c,     // NVLink-C2C between a GPU and its own CPU
  kPci,     // between a device or switch and what is above it
  kSys,     // between NUMA nodes of a host: UPI, xGMI, ...
  kNet,     // from a NIC to its port
};

// What is below is per node kind; the others' fields keep their defaults.
struct Node {
  NodeKind kind = NodeKind::kCpu;
  int32_t host = 0;    // index into Topology::hosts
  int32_t number = 0;  // GPU: CUDA device; CPU: NUMA node; net: device number; otherwise counted
                       // within host and kind
  std::string busId = {};  // "0000:0f:00.0"; "" where the node has none
  std::string name = {};   // as people call it: "GPU 3", "CPU 1", "PCI 0000:0c:00.0", "NVSwitch",
                           // "NIC mlx5_0", "mlx5_0"
  // What it hangs below in the tree of processors, PCI, NICs and ports; kNoNode for CPUs and
  // NVSwitches.
  NodeId parent = kNoNode;
  std::vector<LinkId> links = {};  // outgoing

  struct GpuFacts {
    int32_t rank = -1;        // in the job; -1: none
    int32_t smVersion = 0;    // compute capability × 10: 90 is 9.0
    bool directNet = false;   // NICs may read and write its memory (GPUDirect RDMA)
    bool peerOverPci = true;  // other GPUs may access its memory over PCI
    bool hasSwitch = false;   // its NVLinks go to an NVSwitch
    bool operator==(const GpuFacts&) const = default;
  };
  GpuFacts gpu = {};
  struct CpuFacts {
    CpuArch arch = CpuArch::kUnknown;
    CpuVendor vendor = CpuVendor::kUnknown;
    int32_t family = 0;
    int32_t model = 0;
    std::string affinity = {};  // the mask of its logical processors, as in the XML
    bool operator==(const CpuFacts&) const = default;
  };
  CpuFacts cpu = {};
  struct NetFacts {
    std::string device = {};  // "mlx5_0", "eth0"
    double gbPerSecond = 0;   // of the port, one direction
    double latencyUs = 0;     // what the provider says; 0: not known
    int32_t port = 0;
    uint64_t guid = 0;       // ports of one guid share one adapter
    bool directGpu = false;  // it can move GPU memory (GPUDirect RDMA)
    bool inNetworkReduction = false;
    int32_t rail = -1;           // which of the cluster's rails it is on; -1: not known
    int32_t maxConnections = 0;  // 0: not known
    bool operator==(const NetFacts&) const = default;
  };
  NetFacts net = {};

  bool operator==(const Node&) const = default;
};

// One direction of a link. Each physical link is two of them, made together.
struct Link {
  NodeId from = kNoNode;
  NodeId to = kNoNode;
  LinkKind kind = LinkKind::kPci;
  double gbPerSecond = 0;  // 10^9 bytes a second, one direction
  int32_t lanes = 0;       // NVLinks in the bundle, PCI lanes; 0: does not apply
  LinkId reverse = kNoLink;

  bool operator==(const Link&) const = default;
};

struct Host {
  uint64_t hash = 0;  // equal for ranks of one host; 0: not known
  bool operator==(const Host&) const = default;
};

struct Topology {
  std::vector<Host> hosts;
  std::vector<Node> nodes;  // by host, then kind, then number: the same machine gives the same
                            // order
  std::vector<Link> links;
  std::vector<std::string> assumptions;  // one line each for what was not found out but supposed

  const Node& operator[](NodeId id) const { return nodes[index(id)]; }
  const Link& operator[](LinkId id) const { return links[index(id)]; }
  bool operator==(const Topology&) const = default;
};

// Of one kind, in the topology's order; those of one host where `host` is given.
inline constexpr int32_t kAllHosts = -1;
std::vector<NodeId> nodesOf(const Topology& topology, NodeKind kind, int32_t host = kAllHosts);

// kNoNode where there is none.
NodeId findGpuByRank(const Topology& topology, int32_t rank);
NodeId findByBusId(const Topology& topology, std::string_view busId, int32_t host = 0);
LinkId findLink(const Topology& topology, NodeId from, NodeId to);
// The links to what hangs below a node, by bus id; things without one last.
std::vector<LinkId> linksDown(const Topology& topology, NodeId node);

// The graph of a description. Errors (kInvalidArgument) name the place in the source: a link to
// nowhere, two devices with one bus id, two GPUs with one rank, a NIC without a port, no CPU at
// all.
Result<Topology> buildTopology(const Description& description);

// Only what communication among these ranks can use: GPUs of other ranks, GPUs that no kept one
// reaches, and, where all ranks are of one host, network devices go. CPUs and their links stay. An
// empty list keeps every GPU.
Topology trim(const Topology& topology, const std::vector<int32_t>& ranks);

std::string_view nameOf(NodeKind kind);
std::string_view nameOf(LinkKind kind);

}  // namespace tutti::topology
