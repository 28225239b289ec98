#include "topology/simplify.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "topology/bandwidths.h"

namespace tutti::topology {
namespace {

constexpr uint32_t kClassDisplay = 0x03, kClassAccelerator = 0x12;

bool isBare(const PciDevice& device) {
  return !device.gpu && device.nics.empty() && device.children.empty() && device.peers.empty();
}

// Bridges that lead to nothing any more go with what they led to.
void drop(std::vector<PciDevice>& devices, std::vector<std::string>& dropped) {
  for (PciDevice& device : devices) drop(device.children, dropped);
  std::erase_if(devices, [&](const PciDevice& device) {
    const uint32_t base = device.deviceClass >> 16;
    if (!isBare(device)) return false;
    if (base == kClassDisplay || base == kClassAccelerator) dropped.push_back(device.busId);
    return true;
  });
}

// Of one lane times the lanes; 0 where one of the two is not known.
double widthOf(const PciDevice& device) {
  return pciLaneGbPerSecond(device.linkSpeed).value_or(0) * device.linkWidth;
}

void join(PciDevice& device) {
  for (PciDevice& child : device.children) join(child);
  const bool isPassage = !device.gpu && device.nics.empty() && device.peers.empty();
  if (!isPassage || device.children.size() != 1) return;
  PciDevice child = std::move(device.children.front());
  const double width = widthOf(device);
  if (width > 0 && (widthOf(child) == 0 || width < widthOf(child))) {
    child.linkSpeed = device.linkSpeed;
    child.linkWidth = device.linkWidth;
  }
  device = std::move(child);
}

}  // namespace

void dropUnnamedGpus(Description& description) {
  std::vector<std::string> dropped;
  for (CpuNode& cpu : description.cpus) drop(cpu.devices, dropped);
  for (const std::string& busId : dropped)
    description.assumptions.push_back(
        fmt::format("{}: a display or accelerator that NVML does not name: left out", busId));
}

void dropGpus(Description& description) {
  std::vector<std::string> dropped;
  for (CpuNode& cpu : description.cpus) drop(cpu.devices, dropped);
  if (!dropped.empty())
    description.assumptions.push_back(fmt::format(
        "{} displays and accelerators are left out: no rank runs on a GPU", dropped.size()));
}

void joinBridges(Description& description) {
  for (CpuNode& cpu : description.cpus) {
    for (PciDevice& device : cpu.devices) join(device);
  }
}

}  // namespace tutti::topology
