// A topology as text that a person reads: the tree with what each link carries, and the table of
// paths.
#pragma once

#include <string>

#include "topology/paths.h"
#include "topology/topology.h"

namespace tutti::topology {

// One line a node, links in GB/s a direction; behind it what was assumed.
std::string printTree(const Topology& topology);

// "2 CPUs, 8 GPUs, 8 network ports, NVSwitch".
std::string summaryOf(const Topology& topology, int32_t host);

// Closeness and GB/s between each two GPUs of a host, from each GPU (without GPUs: each CPU) to
// each port, with the relay where there is one; what leads out of each host.
std::string printPaths(const Topology& topology, const Paths& paths);

// "0-15,32-47" of "0000ffff,0000ffff"; "" when there is none.
std::string processorsOf(const std::string& affinity);

// "20", "370.8": at most one digit behind the point.
std::string shortNumber(double value);

}  // namespace tutti::topology
