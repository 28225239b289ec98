// A node made from a few figures, for cluster files that do not want a topology XML: processors,
// GPUs on an NVSwitch or on PCI, network ports. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "topology/description.h"

namespace tutti::sim {

struct MachineSpec {
  int32_t socketCount = 1;
  topology::CpuArch arch = topology::CpuArch::kX86;
  topology::CpuVendor vendor = topology::CpuVendor::kIntel;
  int32_t gpuCount = 0;
  int32_t smVersion = 90;
  int32_t switchLinks = 0;    // NVLinks of a GPU to the NVSwitch; 0: GPUs on PCI only
  double c2cGbPerSecond = 0;  // between a GPU and its CPU
  int32_t portCount = 0;
  double portGbps = 100;  // gigabits a second
  double portLatencyUs = 0;
  bool directGpu = true;  // ports may move GPU memory
  std::string pciSpeed = "32.0 GT/s PCIe";
  bool operator==(const MachineSpec&) const = default;
};

// PCI switches are spread over the sockets in order. As many as there are GPUs or ports, whichever
// are fewer; the others are spread over them.
topology::Description makeMachine(const MachineSpec& spec);

}  // namespace tutti::sim
