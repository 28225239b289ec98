#include "device/host/cpu_nodes.h"

#include <charconv>
#include <string_view>

#include "base/affinity.h"
#include "base/read_file.h"

namespace tutti::device::host {
namespace {

// The kernel's lists, "0-3,8". What is none gives what stands before the fault.
std::vector<int32_t> numbersOf(std::string_view list) {
  std::vector<int32_t> numbers;
  const char* at = list.data();
  const char* end = at + list.size();
  while (at < end) {
    int32_t first = 0;
    auto parsed = std::from_chars(at, end, first);
    if (parsed.ec != std::errc() || first < 0 || first >= kMostCpus) break;
    int32_t last = first;
    if (parsed.ptr < end && *parsed.ptr == '-') {
      parsed = std::from_chars(parsed.ptr + 1, end, last);
      if (parsed.ec != std::errc() || last >= kMostCpus) break;
    }
    for (int32_t number = first; number <= last; ++number) numbers.push_back(number);
    if (parsed.ptr >= end || *parsed.ptr != ',') break;
    at = parsed.ptr + 1;
  }
  return numbers;
}

}  // namespace

CpuNodes::CpuNodes(const std::string& root) {
  const std::string folder = root + "sys/devices/system/node/";
  const std::vector<int32_t> nodes = numbersOf(readFile(folder + "online"));
  if (nodes.size() < 2) return;
  for (const int32_t node : nodes) {
    for (const int32_t cpu :
         numbersOf(readFile(folder + "node" + std::to_string(node) + "/cpulist"))) {
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
