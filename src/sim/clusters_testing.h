// Clusters for tests: parsed from text, or from examples/clusters. Only tests include this.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "sim/read_cluster.h"
#include "topology/registry.h"

namespace tutti::sim {

inline Result<Cluster> tryCluster(const std::string& text, int32_t nodeCount = 0) {
  const auto read = [](const std::string& file, const std::string& profile) {
    auto description = topology::readDescription(file);
    if (!description.ok() || profile.empty()) return description;
    return topology::completeFromFile(description.value(), profile);
  };
  return parseCluster(text, {.source = "c.yaml", .nodeCount = nodeCount}, read);
}

inline Cluster clusterOf(const std::string& text, int32_t nodeCount = 0) {
  Result<Cluster> cluster = tryCluster(text, nodeCount);
  EXPECT_TRUE(cluster.ok()) << cluster.status().message();
  return std::move(cluster).value();
}

inline Cluster exampleCluster(const std::string& name, int32_t nodeCount = 0) {
  const std::string path = std::string(TUTTI_SOURCE_DIR "/examples/clusters/") + name + ".yaml";
  Result<Cluster> cluster = readCluster({.source = path, .nodeCount = nodeCount});
  EXPECT_TRUE(cluster.ok()) << cluster.status().message();
  return std::move(cluster).value();
}

}  // namespace tutti::sim
