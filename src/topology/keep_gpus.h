// A topology without some of its GPUs. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "topology/topology.h"

namespace tutti::topology {

// All of it but the GPUs whose ranks are not among these: unlike trim(), with its network devices.
Topology keepGpus(const Topology& topology, const std::vector<int32_t>& ranks);

}  // namespace tutti::topology
