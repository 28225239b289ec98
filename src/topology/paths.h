// The best path between any two GPUs, network ports and processors of a topology: how close they
// are, what it carries, which links it takes, and whether the two may really talk that way or must
// go through a relay.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "topology/topology.h"

namespace tutti::topology {

// How close two nodes are. The names are those of the reference system and of `nvidia-smi topo -m`.
enum class PathKind : uint8_t {
  kLoc,  // the same node
  kNvl,  // NVLink (directly or over NVSwitches)
  kNvb,  // NVLink through another GPU
  kC2c,  // NVLink-C2C between a GPU and its CPU
  kPix,  // at most one PCI switch or bridge
  kPxb,  // several PCI switches, no CPU
  kP2c,  // GPU to NIC through the GPU's own CPU, which it reaches by C2C
  kPxn,  // NVLink to a GPU that is nearer to the NIC, and from there
  kPhb,  // through a CPU (PCI host bridge)
  kSys,  // between NUMA nodes
  kNet,  // over the network
  kDis,  // not connected
};

std::string_view nameOf(PathKind kind);        // "NVL"
bool isCloser(PathKind one, PathKind other);   // strictly
bool isWithin(PathKind kind, PathKind level);  // as close as `level` or closer

struct Path {
  NodeId from = kNoNode;  // both kNoNode between hosts
  NodeId to = kNoNode;
  PathKind kind = PathKind::kDis;
  double gbPerSecond = 0;         // the narrowest link's; LOC: kLocalGbPerSecond; DIS: 0
  std::vector<LinkId> hops = {};  // from `from` to `to`; empty for LOC, DIS and NET between hosts
  // The node that moves the data on where the ends cannot reach each other's memory: the GPU of an
  // NVB or PXN path, the CPU (host memory) of a pair without peer access or GPUDirect; kNoNode for
  // a direct path.
  NodeId relay = kNoNode;

  bool isDirect() const {
    return relay == kNoNode && kind != PathKind::kDis && kind != PathKind::kNet;
  }
};

inline constexpr double kLocalGbPerSecond = 5000;

// What is allowed. `std::nullopt` is the default rule, which depends on the machine:
//   peers: up to PXB; on AMD hosts with at most two GPUs up to SYS
//   GPUDirect: up to PXB, with C2C up to P2C
struct PathPolicy {
  std::optional<PathKind> peerLevel = std::nullopt;  // NCCL_P2P_LEVEL: GPUs farther apart do not
                                                     // access each other; kLoc: never
  std::optional<PathKind> directNetLevel = std::nullopt;  // NCCL_NET_GDR_LEVEL: same for NICs and
                                                          // GPU memory
  bool relayOverGpus = true;                              // NVB paths; NCCL_NVB_DISABLE=1 clears it
  bool relayToNics = true;                                // PXN paths; NCCL_PXN_DISABLE=1 clears it
  bool relayToNicsOverC2c = true;                         // NCCL_PXN_C2C
  bool directNetOverC2c = true;                           // NCCL_NET_GDR_C2C
};

// "LOC", "nvl", ..., "SYS", or the numbers of old: 0 LOC, 1 PIX, 2 PXB, 3 and 4 PHB, 5 SYS. "" is
// nullopt. An error names the setting, the value and what is allowed.
Result<std::optional<PathKind>> parseLevel(std::string_view setting, std::string_view text);

// All paths between GPUs, NET ports, CPUs and NVSwitches. Memory: by the square of a host's ends,
// linear in hosts.
class Paths {
 public:
  // The path, DIS when there is none. Both ends are of the kinds above (asserted).
  const Path& between(NodeId from, NodeId to) const;
  // What leads out of a host: its path to another whose ports are as wide or wider. Between two
  // hosts it is the narrower one's.
  const Path& outside(int32_t host) const { return hosts_[static_cast<size_t>(host)].outside; }

  // The closest, then widest, then lowest-numbered ports from a GPU (or CPU): all that tie on
  // closeness and width.
  std::vector<NodeId> nearestPorts(const Topology& topology, NodeId from) const;
  // The CPU whose memory is nearest to the node.
  NodeId nearestCpu(const Topology& topology, NodeId from) const;

 private:
  friend Paths computePaths(const Topology& topology, const PathPolicy& policy);
  // Of one host, or all there is to say about the way to others.
  struct HostPaths {
    size_t ends = 0;
    std::vector<Path> table{};  // [row of from][row of to]
    Path outside{};
  };
  Path& at(int32_t host, size_t row, size_t column) {
    HostPaths& paths = hosts_[static_cast<size_t>(host)];
    return paths.table[row * paths.ends + column];
  }

  std::vector<int32_t> hostOf_;  // by NodeId
  std::vector<int32_t> slotOf_;  // NodeId -> row; -1 for nodes that no path begins or ends at
  std::vector<HostPaths> hosts_;
};

Paths computePaths(const Topology& topology, const PathPolicy& policy = {});

// Whether the GPU's memory may be given to the port's NIC, or to the other GPU, by the policy and
// the hardware.
bool mayAccessPeer(const Topology& topology, const PathPolicy& policy, const Path& gpuToGpu);
bool mayUseDirectNet(const Topology& topology, const PathPolicy& policy, const Path& gpuToNet);

}  // namespace tutti::topology
