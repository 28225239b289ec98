#include "comm/gpu_cpus.h"

#include <algorithm>
#include <cctype>

#include "base/affinity.h"
#include "base/read_file.h"

namespace tutti::comm {

std::vector<int32_t> cpusNear(std::string_view busId, const std::string& root) {
  std::string name(busId);
  std::ranges::transform(name, name.begin(),
                         [](unsigned char letter) { return std::tolower(letter); });
  return parseCpuList(readFile(root + "/sys/bus/pci/devices/" + name + "/local_cpulist"));
}

}  // namespace tutti::comm
