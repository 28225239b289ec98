#include "sim/read_cluster.h"

#include "base/units.h"
#include "base/whole_file.h"
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
  constexpr size_t kMostBytes = 16_MiB;
  TUTTI_TRY_ASSIGN(const std::string text, readWholeFile(options.source, kMostBytes));
  if (text.size() > kMostBytes)
    return invalidArgument("{}: more than 16 MiB: no cluster file", options.source);
  return parseCluster(text, options, readNode);
}

}  // namespace tutti::sim
