// Which NUMA node a thread is bound to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::device::host {

// Constant after construction, any thread.
class CpuNodes {
 public:
  // Reads files below `root`, which is "/" but for tests; none: one node.
  explicit CpuNodes(const std::string& root = "/");

  // The node that holds all CPUs the calling thread may run on; -1 where there are several such
  // nodes, or the machine has one only.
  int32_t nodeOfThread() const;
  // The same of given CPUs.
  int32_t nodeOf(const std::vector<int32_t>& cpus) const;

 private:
  std::vector<int32_t> nodeOfCpu_;  // -1: of none; empty: there is one node
};

}  // namespace tutti::device::host
