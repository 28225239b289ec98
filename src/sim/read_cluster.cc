#include "sim/read_cluster.h"

#include <fstream>
#include <sstream>

#include "topology/registry.h"

namespace tutti::sim {
namespace {

Result<topology::Description> readNode(const std::string& file, const std::string& profile) {
  TUTTI_TRY_ASSIGN(topology::Description description, topology::readDescription(file));
  if (profile.empty()) return description;
  return topology::completeFromFile(description, profile);
}

}  // namespace

Result<Cluster> readCluster(const ClusterFileOptions& options) {
  std::ifstream file(options.source);
  if (!file) return invalidArgument("{}: cannot be read", options.source);
  std::stringstream text;
  text << file.rdbuf();
  return parseCluster(text.str(), options, readNode);
}

}  // namespace tutti::sim
