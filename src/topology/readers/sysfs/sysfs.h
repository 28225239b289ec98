// Processors, NUMA nodes, the PCI tree and network devices, as Linux tells them in /sys and /proc.
// Plain files, so that it needs no library where it runs; the root is a parameter, so that a test
// can make a machine out of files.
#pragma once

#include <string>

#include "base/status.h"
#include "topology/description.h"

namespace tutti::topology::sysfs {

struct Options {
  std::string root = "";  // before "/sys" and "/proc"
  uint64_t hostHash = 0;  // goes into the description
};

// Never fails for what is missing: a container without /sys, a virtual machine without NUMA or PCI
// give a smaller machine and a line in `assumptions`. PCI devices are kept where a GPU (display, 3D
// or accelerator class) or a NIC hangs below them; GPUs come without <gpu>: who knows them (NVML)
// adds it.
Result<Description> read(const Options& options);

}  // namespace tutti::topology::sysfs
