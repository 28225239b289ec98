// The topology XML of NCCL_TOPO_FILE and NCCL_TOPO_DUMP_FILE, version 1 (and AMD's 2, which adds
// <xgmi>):
//   <system version> <cpu numaid arch vendor familyid modelid affinity host_hash> <pci busid class
//   link_speed link_width> <gpu dev sm rank gdr> <nvlink target count tclass> <c2c bw count> <nic>
//   <net name dev speed port latency guid maxconn gdr>
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "topology/description.h"
#include "topology/xml_document.h"

namespace tutti::topology {

// Whatever the text, this returns: the description, or one error with file:line:column. Attributes
// and elements that are not known are left out, elements with a line in `assumptions`.
Result<Description> parseXml(std::string_view text, const std::string& source,
                             const XmlLimits& limits = {});

Result<Description> parseXml(const XmlDocument& document);

// parseXml() of this gives the description again.
std::string writeXml(const Description& description);

}  // namespace tutti::topology
