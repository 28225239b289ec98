// A cluster file from disk, with the topologies that it names.
#pragma once

#include "base/status.h"
#include "sim/cluster_file.h"

namespace tutti::sim {

// `options.source` is the file. One error with its place, or that it cannot be read.
Result<Cluster> readCluster(const ClusterFileOptions& options);

}  // namespace tutti::sim
