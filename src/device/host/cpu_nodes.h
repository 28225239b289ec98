// Which NUMA node a thread is bound to, and memory that lies there.
#pragma once

#include <cstddef>
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

  // Pages of this memory that nobody has touched yet will lie on the calling thread's node, if it
  // is bound to one that has room, whoever touches them. Nothing where the thread has a policy of
  // its own for its memory (numactl), or where a sandbox forbids it. REQUIRES: whole pages.
  void keepNear(void* memory, size_t bytes) const;

 private:
  std::vector<int32_t> nodeOfCpu_;  // -1: of none; empty: there is one node
};

}  // namespace tutti::device::host
