// The planner's findings of a communicator, for whoever wants to see them: the graphs of a host's
// GPUs, and which algorithm calls of which size take. Nothing of it ends a start: what fails is
// logged.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/settings.h"
#include "graph/search.h"
#include "launch/gpu_batch.h"
#include "plan/plan.h"
#include "topology/description.h"
#include "topology/topology.h"

namespace tutti::comm {

// Of the GPUs of one host that ranks run on.
struct HostGraphs {
  topology::Topology topology;  // those GPUs and what joins them
  std::vector<graph::FoundGraph> found;
  std::string source;  // "the search", or the file that NCCL_GRAPH_FILE names
};

// nullopt where ranks run on fewer than two GPUs of the machine (whose GPUs have ranks set), and
// where it cannot be planned, which is logged. A graph file that does not fit the machine is warned
// of, with the difference, and the search's graphs are taken.
std::optional<HostGraphs> planHost(const Settings& settings, const topology::Description& machine);

// On the host's first rank INFO lines; on the rank that NCCL_GRAPH_DUMP_FILE_RANK names
// NCCL_GRAPH_DUMP_FILE.
void showGraphs(const Settings& settings, const HostGraphs& graphs, bool isFirst, Rank self);

// A line a channel.
std::string describe(const HostGraphs& graphs);

// What calls take, a line a collective: "AllReduce      doubling, ring from 32768 bytes". CPU
// ranks.
std::string describeChoices(const plan::Agreement& agreement);
// The same of GPU ranks' kernels, for floats; before it, what was asked of them.
std::string describeChoices(const launch::GpuBatcher::Limits& limits);

}  // namespace tutti::comm
