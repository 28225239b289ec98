#include "device/host/cpu_nodes.h"

#include "base/affinity.h"
#include "base/read_file.h"

namespace tutti::device::host {
CpuNodes::CpuNodes(const std::string& root) {
  const std::string folder = root + "sys/devices/system/node/";
  const std::vector<int32_t> nodes = parseNumberList(readFile(folder + "online")).numbers;
  if (nodes.size() < 2) return;
  for (const int32_t node : nodes) {
    const std::string list = readFile(folder + "node" + std::to_string(node) + "/cpulist");
    for (const int32_t cpu : parseNumberList(list).numbers) {
      if (static_cast<size_t>(cpu) >= nodeOfCpu_.size())
        nodeOfCpu_.resize(static_cast<size_t>(cpu) + 1, -1);
      nodeOfCpu_[static_cast<size_t>(cpu)] = node;
    }
  }
}

int32_t CpuNodes::nodeOf(const std::vector<int32_t>& cpus) const {
  int32_t common = -1;
  for (const int32_t cpu : cpus) {
    const auto place = static_cast<size_t>(cpu);
    const int32_t node = place < nodeOfCpu_.size() ? nodeOfCpu_[place] : -1;
    if (node < 0 || (common >= 0 && node != common)) return -1;
    common = node;
  }
  return common;
}

int32_t CpuNodes::nodeOfThread() const { return nodeOfCpu_.empty() ? -1 : nodeOf(affinityCpus()); }

}  // namespace tutti::device::host
