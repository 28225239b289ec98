#include "device/host/cpu_nodes.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <climits>

#include "base/affinity.h"
#include "base/read_file.h"

namespace tutti::device::host {
namespace {

bool hasOwnPolicy() {
  int mode = MPOL_DEFAULT;
  return ::syscall(SYS_get_mempolicy, &mode, nullptr, 0UL, nullptr, 0UL) != 0 ||
         mode != MPOL_DEFAULT;
}

}  // namespace

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

void CpuNodes::keepNear(void* memory, size_t bytes) const {
  constexpr size_t kWordBits = sizeof(unsigned long) * CHAR_BIT;
  std::array<unsigned long, 1024 / kWordBits> nodes{};  // the most that Linux is built for
  const int32_t node = nodeOfThread();
  if (node < 0 || static_cast<size_t>(node) / kWordBits >= nodes.size() || hasOwnPolicy()) return;
  nodes[static_cast<size_t>(node) / kWordBits] = 1UL << (static_cast<size_t>(node) % kWordBits);
  const unsigned long bits = nodes.size() * kWordBits + 1;  // the kernel takes one less
  ::syscall(SYS_mbind, memory, bytes, MPOL_PREFERRED, nodes.data(), bits, 0U);
}

int32_t CpuNodes::nodeOfThread() const { return nodeOfCpu_.empty() ? -1 : nodeOf(affinityCpus()); }

}  // namespace tutti::device::host
