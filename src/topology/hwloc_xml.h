// The XML of hwloc 2 (`lstopo machine.xml`): processors, NUMA nodes, the PCI tree and network
// devices. hwloc knows no NVLink and no compute capability: its GPUs are PCI devices until NVML or
// a node profile completes them.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "topology/description.h"
#include "topology/xml_document.h"

namespace tutti::topology {

Result<Description> parseHwlocXml(const XmlDocument& document);

}  // namespace tutti::topology
