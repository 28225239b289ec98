// The graph XML of NCCL_GRAPH_FILE and NCCL_GRAPH_DUMP_FILE, version 1:
//   <graphs version> <graph id pattern crossnic nchannels speedintra speedinter latencyinter
//   typeintra typeinter samechannels> <channel> <net dev/> <gpu dev/> ... <net dev/>
// GPUs and ports go by their device numbers on one host. Pure, any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "graph/graph.h"
#include "topology/paths.h"
#include "topology/topology.h"
#include "topology/xml_document.h"

namespace tutti::graph {

std::string writeGraphs(const topology::Topology& topology, std::span<const NodeGraph> graphs);

// Where a file's graphs are to be used.
struct GraphPlace {
  const topology::Topology& topology;
  const topology::Paths& paths;
  int32_t host = 0;
};

// In the file's order, those without channels too. One error with file:line:column for what is no
// graph file, and for a graph of another machine: a GPU or port that is not here or left out, one
// that comes twice, two neighbours that are farther apart than the graph says, or GPUs that are all
// closer, links that carry much less than the channels take. The speeds are the file's, as its
// author measured or chose them; one that takes less than the links carry may be meant so.
Result<std::vector<NodeGraph>> parseGraphs(std::string_view text, const std::string& source,
                                           const GraphPlace& place,
                                           const topology::XmlLimits& limits = {});

}  // namespace tutti::graph
