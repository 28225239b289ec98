// For tests: the machines of tests/golden/topologies, and others' files where a tree of them is at
// hand.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/settings.h"
#include "topology/paths.h"
#include "topology/topology.h"
#include "topology/xml.h"

namespace tutti::topology {

inline std::string readText(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline std::filesystem::path goldenFolder() {
  return std::filesystem::path(TUTTI_SOURCE_DIR) / "tests/golden/topologies";
}

// Files that the project does not ship; may not exist.
inline std::filesystem::path foreignFolder() {
  return std::filesystem::path(TUTTI_TEST_DATA) / "topologies";
}

inline std::vector<std::string> machinesIn(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".xml") && !name.ends_with(".graph.xml"))
      names.push_back(name.substr(0, name.size() - 4));
  }
  std::ranges::sort(names);
  return names;
}

inline Description describe(const std::filesystem::path& folder, const std::string& name) {
  Result<Description> description = parseXml(readText(folder / (name + ".xml")), name + ".xml");
  EXPECT_TRUE(description.ok()) << description.status().message();
  return description.ok() ? std::move(description).value() : Description{};
}

inline Topology machine(const std::string& name) {
  Result<Topology> topology = buildTopology(describe(goldenFolder(), name));
  EXPECT_TRUE(topology.ok()) << topology.status().message();
  return topology.ok() ? std::move(topology).value() : Topology{};
}

inline NodeId gpu(const Topology& topology, int32_t rank) { return findGpuByRank(topology, rank); }

inline NodeId port(const Topology& topology, int32_t number, int32_t host = 0) {
  for (const NodeId each : nodesOf(topology, NodeKind::kNet, host)) {
    if (topology[each].number == number) return each;
  }
  return kNoNode;
}

inline NodeId cpu(const Topology& topology, int32_t number, int32_t host = 0) {
  for (const NodeId each : nodesOf(topology, NodeKind::kCpu, host)) {
    if (topology[each].number == number) return each;
  }
  return kNoNode;
}

}  // namespace tutti::topology
