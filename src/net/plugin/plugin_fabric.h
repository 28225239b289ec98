// Network plug-ins (NCCL_NET_PLUGIN), versions 6 to 11 of their interface, as a fabric. A plug-in
// is initialised once a process and stays in its memory.
#pragma once

#include <memory>
#include <string>

#include "base/plugin_file.h"
#include "base/status.h"
#include "net/fabric.h"

namespace tutti::net::plugin {

// One entry of NCCL_NET_PLUGIN; see base/plugin_file.h. kInvalidUsage where something was asked for
// by name and is not there or has no version we know.
Result<PluginLibrary> load(const std::string& entry);

// Initialises it and looks at its adapters. An error names the plug-in, the call and what it
// returned. `process`: what versions with a context get as their communicator's id, with further
// contexts counted on. `trafficClass`: the one that is wanted first.
Result<std::unique_ptr<Fabric>> open(const PluginLibrary& library, uint64_t process,
                                     int trafficClass = kNoTrafficClass);

}  // namespace tutti::net::plugin
