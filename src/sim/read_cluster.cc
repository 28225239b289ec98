#include "sim/read_cluster.h"

#include <filesystem>

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

Result<std::string> readText(const ClusterFileOptions& options, size_t maxBytes) {
  std::error_code unknown;  // the reader tells of it
  const bool isPipe = options.mayBePipe && std::filesystem::is_fifo(options.source, unknown);
  if (!isPipe) return readWholeFile(options.source, maxBytes);
  return readFileOrPipe(options.source, maxBytes);
}

}  // namespace

Result<Cluster> readCluster(const ClusterFileOptions& options) {
  constexpr size_t kMostBytes = 16_MiB;
  TUTTI_TRY_ASSIGN(const std::string text, readText(options, kMostBytes));
  if (text.size() > kMostBytes)
    return invalidArgument("{}: more than 16 MiB: no cluster file", options.source);
  return parseCluster(text, options, readNode);
}

}  // namespace tutti::sim
