// The file that describes a cluster, in YAML (docs/SIMULATOR.md shows one):
//
//   cluster: 64 DGX H100 on rails
//   nodes:                                  # groups of nodes that are alike
//     - count: 64
//       topology: dgx_h100.xml              # relative to this file; profile: completes it
//     - count: 2
//       machine: {gpus: 8, sm: 90, nvswitch_links: 18, ports: 8, port_gbps: 400}
//   network: {shape: rails, nodes_per_leaf: 32, oversubscription: 1, routing: hash}
//   placement: block
//   what_if:
//     - {link: "node 3 port 0 -> leaf 0", factor: 0.5}
//     - {rank: 17, factor: 0.8}
//
// Pure: what it names is read by the caller.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "sim/cluster.h"
#include "topology/description.h"

namespace tutti::sim {

// Reads a topology file, completed by a profile unless that is "".
using ReadDescription = std::function<Result<topology::Description>(const std::string& topology,
                                                                    const std::string& profile)>;

// Nodes and ranks that a file may describe.
inline constexpr int32_t kMostNodes = 1 << 18;
inline constexpr int32_t kMostRanks = 1 << 20;

struct ClusterFileOptions {
  std::string source;      // the file's path: for messages, and for what it names
  int32_t nodeCount = 0;   // so many nodes of the first group instead of what the file says
  int32_t rankCount = 0;   // so many ranks: nodes of the first group, or the first GPUs of one node
  bool mayBePipe = false;  // by which somebody hands the text over
};

// The cluster, or one error with file:line:column.
Result<Cluster> parseCluster(std::string_view text, const ClusterFileOptions& options,
                             const ReadDescription& read);

}  // namespace tutti::sim
