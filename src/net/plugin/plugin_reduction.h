// Collective-network plug-ins (NCCL_NET_PLUGIN, whose files may hold one beside the network's or
// alone), versions 6 to 11 of their interface. A plug-in is initialised once a process.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "net/reduction.h"

namespace tutti::net::plugin {

// One entry of NCCL_NET_PLUGIN; see base/plugin_file.h. Null: there is no such plug-in, and none
// was asked for. An error names the plug-in, the call and what it returned. `process`: what
// version 11 gets as its communicator's id.
Result<std::unique_ptr<ReductionNetwork>> openReduction(const std::string& entry, uint64_t process);

}  // namespace tutti::net::plugin
