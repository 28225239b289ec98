// GPUs and their NVLinks, as NVIDIA's management library (NVML) tells them. The library is opened
// at run time and is none of ours to need: without it there are no GPUs, and a line says so.
#pragma once

#include <string>

#include "base/status.h"
#include "topology/description.h"

namespace tutti::topology::nvml {

struct Options {
  std::string library = "libnvidia-ml.so.1";
};

// Adds <gpu> to the PCI devices of the description that NVML names; a GPU without a PCI device
// there (a container without /sys) is hung below the first CPU, and that is said. An error is one
// of NVML's own calls, with its number.
Status addGpus(const Options& options, Description& description);

}  // namespace tutti::topology::nvml
