// Clusters for tests: parsed from text, or from examples/clusters. Only tests include this.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "sim/cluster_file.h"
#include "topology/registry.h"

namespace tutti::sim {

inline Result<topology::Description> readForTest(const std::string& topologyFile,
                                                 const std::string& profileFile) {
  TUTTI_TRY_ASSIGN(topology::Description description, topology::readDescription(topologyFile));
  if (profileFile.empty()) return description;
  return topology::completeFromFile(description, profileFile);
}

inline Result<Cluster> tryCluster(const std::string& text, int32_t nodeCount = 0) {
  return parseCluster(text, {.source = "c.yaml", .nodeCount = nodeCount}, readForTest);
}

inline Cluster clusterOf(const std::string& text, int32_t nodeCount = 0) {
  Result<Cluster> cluster = tryCluster(text, nodeCount);
  EXPECT_TRUE(cluster.ok()) << cluster.status().message();
  return std::move(cluster).value();
}

inline Cluster exampleCluster(const std::string& name, int32_t nodeCount = 0) {
  const std::string path = std::string(TUTTI_SOURCE_DIR "/examples/clusters/") + name + ".yaml";
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  Result<Cluster> cluster =
      parseCluster(text.str(), {.source = path, .nodeCount = nodeCount}, readForTest);
  EXPECT_TRUE(cluster.ok()) << cluster.status().message();
  return std::move(cluster).value();
}

}  // namespace tutti::sim
