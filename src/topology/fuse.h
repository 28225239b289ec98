// What several ranks of a node found out, as one description: each may have seen only part (its own
// GPU in a container, its own NIC).
#pragma once

#include <vector>

#include "base/status.h"
#include "topology/description.h"

namespace tutti::topology {

// The union, by host, NUMA node and bus id; network devices without a PCI place by name. Facts that
// one knows and the other does not are taken; facts that contradict each other (compute capability,
// NVLinks, two ranks for one GPU) are an error that names both sources. Ports get new numbers where
// two are equal. The order of the parts decides nothing but the numbers of ports.
Result<Description> fuse(const std::vector<Description>& parts);

}  // namespace tutti::topology
